"""An operator and a client that decide a branch of `dtx` at the same time, over many turns (DTX-11)."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.branches.xa import XaStatus as CoreStatus
from escrowmq.core.branches.xid import Xid as CoreXid
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp010.codec.spec import (
    DtxCommit,
    DtxEnd,
    DtxForget,
    DtxPrepare,
    DtxRecover,
    DtxRollback,
    DtxSelect,
    DtxStart,
    ExecutionResult,
    XaResult,
    XaStatus,
)
from tests.unit.wire.amqp010.branches import MANY, X, done, much_work
from tests.unit.wire.amqp010.clients import Client

FORCED = {True: CoreStatus.HEUR_COM, False: CoreStatus.HEUR_RB}
TOLD = {True: XaStatus.XA_HEURCOM, False: XaStatus.XA_HEURRB}
OPERATOR_TOO_LATE = "the operator was too late"


def in_doubt() -> Client:
    """Return a client with a prepared branch that is large, so that its outcome takes many turns."""
    client = Client()
    client.do(DtxSelect())
    client.do(DtxStart(X))
    much_work(client)
    client.do(DtxEnd(X))
    client.do(DtxPrepare(X))
    return client


def race(client: Client, call: Any, lead: int, *, commit: bool) -> tuple[XaStatus, CoreStatus | str]:
    """Let the operator begin `lead` turns after the client, or before it. Return what each of them is told."""
    made = client.server
    order = made.broker.large_requests.force(CoreXid(1, b"g", b"b"), commit=commit)
    found: CoreStatus | str = ""
    for turn in range(1000):
        if turn == max(0, -lead):
            made.receive(client.port, client.octets(call(X)))
        if turn >= lead and not found:
            try:
                next(order)
            except StopIteration as end:
                found = end.value.status
            except BrokerError as error:
                found = OPERATOR_TOO_LATE if error.condition is Condition.NOT_FOUND else error.text
        made.end_one_turn()
        made.run_disk()
        client.collect()
        if found and not client.idle():
            break
    told = client.expect(ExecutionResult).value
    assert isinstance(told, XaResult)
    return XaStatus(told.status or 0), found


@pytest.mark.rule("DTX-9", "DTX-11")
@pytest.mark.parametrize("commit", [True, False], ids=["forced commit", "forced rollback"])
@pytest.mark.parametrize("call", [DtxCommit, DtxRollback])
def test_one_of_them_decides_and_both_are_told_the_truth(call: Any, commit: bool) -> None:
    seen = set()
    for lead in (-400, -60, -20, *range(-5, 6), 20, 60, 400):
        client = in_doubt()
        told, found = race(client, call, lead, commit=commit)
        seen.add(found)
        if found == OPERATOR_TOO_LATE:
            assert told is XaStatus.XA_OK, lead
            committed = call is DtxCommit
        else:
            assert (told, found) == (TOLD[commit], FORCED[commit]), lead
            committed = commit
        client.inbox.clear()
        assert done(client.server) == ([b"work"] * MANY if committed else []), lead
        assert client.do(DtxRecover()).in_doubt == ([] if told is XaStatus.XA_OK else [X])
        if told is not XaStatus.XA_OK:
            client.do(DtxForget(X))
    assert seen == {OPERATOR_TOO_LATE, FORCED[commit]}

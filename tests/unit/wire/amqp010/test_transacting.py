"""The modes of a session, and what becomes of its transactions when it ends."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from escrowmq.core.branches.branch import Limits
from escrowmq.wire.amqp010.codec.spec import (
    DtxEnd,
    DtxPrepare,
    DtxSelect,
    DtxStart,
    QueueDeclare,
    SessionDetach,
    TxCommit,
    TxSelect,
    XaStatus,
)
from escrowmq.wire.amqp010.codec.structs import Command
from escrowmq.wire.amqp010.transacting import Transacting
from escrowmq.wire.amqp010.tx import tx_commit
from tests.unit.wire.amqp010.branches import MANY, X, done, later, much_work, work
from tests.unit.wire.amqp010.clients import Client, server
from tests.unit.wire.amqp091.clients import bodies


@pytest.mark.rule("DTX-1", "TX-1")
@pytest.mark.parametrize(
    ("first", "second"), [(TxSelect(), TxSelect()), (TxSelect(), DtxSelect()), (DtxSelect(), TxSelect())], ids=repr
)
def test_a_session_has_one_mode(first: Command, second: Command) -> None:
    client = Client()
    client.do(first)
    client.refused(second, 409)


@pytest.mark.rule("DTX-1")
def test_dtx_mode_can_be_selected_again() -> None:
    client = Client()
    client.do(DtxSelect())
    client.do(DtxSelect())


@pytest.mark.rule("TX-13")
def test_a_transaction_that_is_too_old_ends_the_session() -> None:
    client = Client(server(transaction=Limits(age=5000)))
    client.do(QueueDeclare("q"))
    client.do(TxSelect())
    work(client, b"1")
    later(client.server, 5001)
    client.collect()
    assert "older than 5 s" in (client.raised(506).description or "")
    assert bodies(client.server) == []


@pytest.mark.rule("TX-4", "DTX-7")
@pytest.mark.parametrize("mode", ["tx", "dtx", "dtx suspended"])
@pytest.mark.parametrize("how", ["detach", "lose", "refusal"])
def test_any_end_of_the_session_rolls_its_work_back(mode: str, how: str) -> None:
    made = server()
    client = Client(made)
    client.do(QueueDeclare("q"))
    client.do(TxSelect() if mode == "tx" else DtxSelect())
    if mode != "tx":
        client.do(DtxStart(X))
    work(client, b"dropped")
    if mode == "dtx suspended":
        client.do(DtxEnd(X, suspend=True))
    match how:
        case "detach":
            client.control(SessionDetach(b"session 1"))
        case "lose":
            made.lose(client.port)
            made.end_turn()
        case _:
            client.refused(QueueDeclare("none", passive=True), 404)
    assert bodies(made) == []
    if mode != "tx":
        (view,) = made.broker.branches.views()
        assert (view.state, view.workers) == ("rollback_only", 0)
        other = Client(made, attaches=False)
        other.attach(1, b"other")
        assert other.do(DtxPrepare(X)).status == XaStatus.XA_RBROLLBACK


@pytest.mark.rule("TX-5", "DUR-3")
def test_a_large_commit_that_is_written_is_carried_through_when_the_session_ends() -> None:
    made = server()
    client = Client(made)
    client.do(TxSelect())
    much_work(client)
    session = client.port.endpoint.sessions[1]
    part = session.part(Transacting)
    work = tx_commit(session, TxCommit(), None)
    assert isinstance(work, Generator)
    while part.committing is None:
        made.broker.engine.requests.left = 0
        next(work)
    work.close()
    made.lose(client.port)
    later(made, 0)
    while made.broker.engine.turn.unfinished:
        later(made, 0)
    assert done(made) == [b"work"] * MANY


def test_lists_of_channels_show_local_transactions() -> None:
    client = Client()
    assert client.port.endpoint.sessions[1].row()["transactional"] is False
    client.do(TxSelect())
    assert client.port.endpoint.sessions[1].row()["transactional"] is True


def test_operators_see_who_works_for_a_branch() -> None:
    client = Client()
    client.do(DtxSelect())
    client.do(DtxStart(X))
    (view,) = client.server.broker.branches.views()
    assert view.owner == f"guest from {client.port.endpoint.sessions[1].label}"

"""Every method of the dtx classes on a branch in every state, over the wire. Errors close only the channel."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.method import Method
from tests.harness.client import SimClient
from tests.harness.server import SimServer

X: Final = Xid(1, b"global", b"branch").encode()
Y: Final = Xid(1, b"global", b"other").encode()
OK, RDONLY = XaStatus.OK, XaStatus.RDONLY
RB, RBT, COM = XaStatus.RB_ROLLBACK, XaStatus.RB_TIMEOUT, XaStatus.HEUR_COM


class Scene(NamedTuple):
    """Two clients: channel 1 of `mine` works for the branch, channel 1 of `other` coordinates it and may work too."""

    server: SimServer
    mine: SimClient
    other: SimClient


def scene() -> Scene:
    server = SimServer(MemoryStorage(random.Random(1)))
    mine, other = SimClient(server, "mine"), SimClient(server, "other")
    for client in (mine, other):
        client.open_channel(1)
        client.call(1, spec.DtxDemarcationSelect(), spec.DtxDemarcationSelectOk)
    mine.declare(1, "q")
    return Scene(server, mine, other)


def unknown(s: Scene) -> None:
    """The broker has never seen the xid."""


def active(s: Scene) -> None:
    s.mine.call(1, spec.DtxDemarcationStart(X), spec.DtxDemarcationStartOk)
    s.mine.publish(1, "q", b"work")


def suspended(s: Scene) -> None:
    active(s)
    s.mine.call(1, spec.DtxDemarcationEnd(X, suspend=True), spec.DtxDemarcationEndOk)


def ended(s: Scene) -> None:
    active(s)
    s.mine.call(1, spec.DtxDemarcationEnd(X), spec.DtxDemarcationEndOk)


def rollback_only(s: Scene) -> None:
    active(s)
    s.mine.call(1, spec.DtxDemarcationEnd(X, fail=True), spec.DtxDemarcationEndOk)


def prepared(s: Scene) -> None:
    ended(s)
    assert s.other.call(1, spec.DtxCoordinationPrepare(X), spec.DtxCoordinationPrepareOk).flags == OK


def timed_out(s: Scene) -> None:
    ended(s)
    _pass(s, 61)


def timed_out_at_work(s: Scene) -> None:
    active(s)
    _pass(s, 61)


def decided(s: Scene) -> None:
    prepared(s)
    s.server.broker.coordinator.force(Xid.decode(X), commit=True)


def _pass(s: Scene, seconds: int) -> None:
    s.server.now += 1000 * seconds
    s.server.end_turn()
    s.server.run_disk()


STATES: Final = (
    unknown,
    active,
    suspended,
    ended,
    rollback_only,
    prepared,
    timed_out,
    timed_out_at_work,
    decided,
)

# For each call, the answer in each of STATES: flags, or the reply code of channel.close.
# In `timed_out_at_work`, unlike `timed_out`, the working channel has not ended the branch yet.
EXPECTED: Final[dict[str, tuple[int, ...]]] = {
    "start": (OK, 530, 530, 530, 530, 530, 530, 530, 530),
    "start join": (404, OK, OK, OK, OK, 503, RBT, RBT, 503),
    "start resume": (503, 503, 503, 503, 503, 503, 503, 503, 503),
    "end": (404, 404, 404, 404, 404, 404, 404, 404, 404),
    "my start": (OK, 530, 530, 530, 530, 530, 530, 530, 530),
    "my start join": (404, 503, OK, OK, OK, 503, RBT, RBT, 503),
    "my start resume": (503, 503, OK, 503, 503, 503, 503, 503, 503),
    "my end": (404, OK, 503, 404, 404, 404, 404, RBT, 404),
    "my end fail": (404, RB, 503, 404, 404, 404, 404, RBT, 404),
    "my end suspend": (404, OK, 503, 404, 404, 404, 404, RBT, 404),
    "prepare": (404, 503, 503, OK, RB, OK, RBT, RBT, 503),
    "commit": (404, 503, 503, 503, RB, OK, RBT, RBT, COM),
    "commit one-phase": (404, 503, 503, OK, RB, 503, RBT, RBT, 503),
    "rollback": (404, 503, 503, OK, OK, OK, RBT, RBT, COM),
    "forget": (404, 503, 503, 503, 503, 503, 503, 503, 0),
    "get-timeout": (404, 60, 60, 60, 60, 60, 60, 60, 60),
    "set-timeout": (404, 0, 0, 0, 0, 0, 503, 503, 0),
}
METHODS: Final[dict[str, Method]] = {
    "start": spec.DtxDemarcationStart(X),
    "start join": spec.DtxDemarcationStart(X, join=True),
    "start resume": spec.DtxDemarcationStart(X, resume=True),
    "end": spec.DtxDemarcationEnd(X),
    "end fail": spec.DtxDemarcationEnd(X, fail=True),
    "end suspend": spec.DtxDemarcationEnd(X, suspend=True),
    "prepare": spec.DtxCoordinationPrepare(X),
    "commit": spec.DtxCoordinationCommit(X),
    "commit one-phase": spec.DtxCoordinationCommit(X, one_phase=True),
    "rollback": spec.DtxCoordinationRollback(X),
    "forget": spec.DtxCoordinationForget(X),
    "get-timeout": spec.DtxCoordinationGetTimeout(X),
    "set-timeout": spec.DtxCoordinationSetTimeout(X, 5),
}


def answer(client: SimClient, method: Method) -> int:
    """Return the answer's flags, timeout or reply code, or 0 if it has none. Checks that an error closes only the
    channel.
    """
    client.send(1, method)
    client.collect()
    got: Any = client.inbox.popleft().method
    if isinstance(got, spec.ChannelClose):
        assert (got.class_id, got.method_id) == (method.CLASS_ID, method.METHOD_ID)
        client.send(1, spec.ChannelCloseOk())
        client.open_channel(1)  # fails unless the connection is still open
        return got.reply_code
    assert f"{method.NAME}-ok" == got.NAME
    return int(getattr(got, "flags", getattr(got, "timeout", 0)))


@pytest.mark.rule("DTX-3", "DTX-4", "DTX-5", "DTX-8", "DTX-9", "DTX-10", "DTX-12", "DTX-13")
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("call", EXPECTED)
def test_a_method_is_answered_according_to_the_state_of_the_branch(call: str, state: Callable[[Scene], None]) -> None:
    s = scene()
    state(s)
    client = s.mine if call.startswith("my ") else s.other
    assert answer(client, METHODS[call.removeprefix("my ")]) == EXPECTED[call][STATES.index(state)]


@pytest.mark.rule("DTX-1")
@pytest.mark.parametrize("call", METHODS)
def test_only_demarcation_requires_select(call: str) -> None:
    client = SimClient(SimServer(MemoryStorage(random.Random(1))))
    client.open_channel(1)
    assert answer(client, METHODS[call]) == (503 if METHODS[call].CLASS_ID == 101 else 404)


@pytest.mark.rule("DTX-3")
@pytest.mark.parametrize("call", ["start", "start join", "start resume"])
def test_a_channel_with_an_active_branch_cannot_start_another(call: str) -> None:
    s = scene()
    active(s)
    s.other.call(1, spec.DtxDemarcationStart(Y), spec.DtxDemarcationStartOk)
    assert answer(s.other, METHODS[call]) == (530 if call == "start" else 503)


@pytest.mark.rule("DTX-2")
def test_a_channel_may_work_for_another_branch_while_one_is_suspended() -> None:
    s = scene()
    suspended(s)
    s.mine.call(1, spec.DtxDemarcationStart(Y), spec.DtxDemarcationStartOk)
    s.mine.publish(1, "q", b"of another")
    s.mine.call(1, spec.DtxDemarcationEnd(Y), spec.DtxDemarcationEndOk)
    s.mine.call(1, spec.DtxDemarcationStart(X, resume=True), spec.DtxDemarcationStartOk)
    s.mine.call(1, spec.DtxDemarcationEnd(X), spec.DtxDemarcationEndOk)
    assert s.other.call(1, spec.DtxCoordinationCommit(Y, True), spec.DtxCoordinationCommitOk).flags == OK
    assert s.other.call(1, spec.DtxCoordinationRollback(X), spec.DtxCoordinationRollbackOk).flags == OK
    message = s.other.get(1, "q")
    assert message is not None
    assert message.body == b"of another"
    assert s.other.get(1, "q") is None

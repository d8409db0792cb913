"""Every call about a branch, in every state of the branch, over each protocol. Errors cost only channel or session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xid import Xid
from tests.conformance.branch_clients import CALLS, CLIENTS, DEMARCATION, BranchClient
from tests.unit.wire.amqp010.clients import SharingServer, server
from tests.unit.wire.amqp091.clients import bodies

X: Final = Xid(1, b"global", b"branch")
Y: Final = Xid(1, b"global", b"other")
OK, RDONLY = XaStatus.OK, XaStatus.RDONLY
RB, RBT = XaStatus.RB_ROLLBACK, XaStatus.RB_TIMEOUT
COM, HRB = XaStatus.HEUR_COM, XaStatus.HEUR_RB
PROTOCOLS: Final = [pytest.param(client, id=client.PROTOCOL) for client in CLIENTS]
MIXED: Final = [
    pytest.param(mine, other, id=f"{mine.PROTOCOL}-{other.PROTOCOL}") for mine in CLIENTS for other in CLIENTS
]


class Scene(NamedTuple):
    """Two clients: `mine` works for the branch, `other` coordinates it and may work too."""

    server: SharingServer
    mine: BranchClient
    other: BranchClient


def scene(mine: type[BranchClient], other: type[BranchClient]) -> Scene:
    made = server()
    found = Scene(made, mine(made, "mine"), other(made, "other"))
    found.mine.declare("q")
    return found


def unknown(s: Scene) -> None:
    """The broker has never seen the xid."""


def active(s: Scene) -> None:
    assert s.mine.call("start", X) == OK
    s.mine.publish("q", b"work")


def suspended(s: Scene) -> None:
    active(s)
    assert s.mine.call("end suspend", X) == OK


def ended(s: Scene) -> None:
    active(s)
    assert s.mine.call("end", X) == OK


def rollback_only(s: Scene) -> None:
    active(s)
    assert s.mine.call("end fail", X) == RB


def prepared(s: Scene) -> None:
    ended(s)
    assert s.other.call("prepare", X) == OK


def timed_out(s: Scene) -> None:
    ended(s)
    _pass(s, 61)


def timed_out_at_work(s: Scene) -> None:
    active(s)
    _pass(s, 61)


def decided(s: Scene) -> None:
    prepared(s)
    s.server.broker.coordinator.force(X, commit=True)


def decided_otherwise(s: Scene) -> None:
    prepared(s)
    s.server.broker.coordinator.force(X, commit=False)


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
    decided_otherwise,
)

# For each call, the answer in each of STATES: the status or the error code. In `timed_out_at_work`, unlike `timed_out`,
# the working client has not ended the branch yet. Calls of the working client begin with `my`. `decided` means that an
# operator has committed the branch, and `decided_otherwise` that it was rolled back.
EXPECTED_091: Final[dict[str, tuple[int, ...]]] = {
    "start": (OK, 530, 530, 530, 530, 530, 530, 530, 530, 530),
    "start join": (404, OK, OK, OK, OK, 503, RBT, RBT, 503, 503),
    "start resume": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "start join resume": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "end": (404, 404, 404, 404, 404, 404, 404, 404, 404, 404),
    "end fail": (404, 404, 404, 404, 404, 404, 404, 404, 404, 404),
    "end suspend": (404, 404, 404, 404, 404, 404, 404, 404, 404, 404),
    "end fail suspend": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "prepare": (404, 503, 503, OK, RB, OK, RBT, RBT, 503, 503),
    "commit": (404, 503, 503, 503, RB, OK, RBT, RBT, COM, HRB),
    "commit one-phase": (404, 503, 503, OK, RB, 503, RBT, RBT, 503, 503),
    "rollback": (404, 503, 503, OK, OK, OK, RBT, RBT, COM, HRB),
    "forget": (404, 503, 503, 503, 503, 503, 503, 503, 0, 0),
    "get-timeout": (404, 60, 60, 60, 60, 60, 60, 60, 60, 60),
    "set-timeout": (404, 0, 0, 0, 0, 0, 503, 503, 0, 0),
    "my start": (OK, 530, 530, 530, 530, 530, 530, 530, 530, 530),
    "my start join": (404, 503, OK, OK, OK, 503, RBT, RBT, 503, 503),
    "my start resume": (503, 503, OK, 503, 503, 503, 503, 503, 503, 503),
    "my start join resume": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "my end": (404, OK, 503, 404, 404, 404, 404, RBT, 404, 404),
    "my end fail": (404, RB, 503, 404, 404, 404, 404, RBT, 404, 404),
    "my end suspend": (404, OK, 503, 404, 404, 404, 404, RBT, 404, 404),
    "my end fail suspend": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "my prepare": (404, 503, 503, OK, RB, OK, RBT, RBT, 503, 503),
    "my commit": (404, 503, 503, 503, RB, OK, RBT, RBT, COM, HRB),
    "my commit one-phase": (404, 503, 503, OK, RB, 503, RBT, RBT, 503, 503),
    "my rollback": (404, 503, 503, OK, OK, OK, RBT, RBT, COM, HRB),
    "my forget": (404, 503, 503, 503, 503, 503, 503, 503, 0, 0),
    "my get-timeout": (404, 60, 60, 60, 60, 60, 60, 60, 60, 60),
    "my set-timeout": (404, 0, 0, 0, 0, 0, 503, 503, 0, 0),
}
EXPECTED_010: Final[dict[str, tuple[int, ...]]] = {
    "start": (OK, 530, 530, 530, 530, 530, 530, 530, 530, 530),
    "start join": (404, OK, OK, OK, OK, 503, RBT, RBT, 503, 503),
    "start resume": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "start join resume": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "end": (409, 409, 409, 409, 409, 409, 409, 409, 409, 409),
    "end fail": (409, 409, 409, 409, 409, 409, 409, 409, 409, 409),
    "end suspend": (409, 409, 409, 409, 409, 409, 409, 409, 409, 409),
    "end fail suspend": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "prepare": (404, 409, 409, OK, RB, OK, RBT, RBT, 409, 409),
    "commit": (404, 409, 409, 409, RB, OK, RBT, RBT, COM, HRB),
    "commit one-phase": (404, 409, 409, OK, RB, 409, RBT, RBT, 409, 409),
    "rollback": (404, 409, 409, OK, OK, OK, RBT, RBT, COM, HRB),
    "forget": (404, 409, 409, 409, 409, 409, 409, 409, 0, 0),
    "get-timeout": (404, 60, 60, 60, 60, 60, 60, 60, 60, 60),
    "set-timeout": (404, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    "my start": (OK, 530, 530, 530, 530, 530, 530, 530, 530, 530),
    "my start join": (404, 503, OK, OK, OK, 503, RBT, RBT, 503, 503),
    "my start resume": (503, 503, OK, 503, 503, 503, 503, 503, 503, 503),
    "my start join resume": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "my end": (409, OK, 409, 409, 409, 409, 409, RBT, 409, 409),
    "my end fail": (409, RB, 409, 409, 409, 409, 409, RBT, 409, 409),
    "my end suspend": (409, OK, 409, 409, 409, 409, 409, RBT, 409, 409),
    "my end fail suspend": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "my prepare": (404, 409, 409, OK, RB, OK, RBT, RBT, 409, 409),
    "my commit": (404, 409, 409, 409, RB, OK, RBT, RBT, COM, HRB),
    "my commit one-phase": (404, 409, 409, OK, RB, 409, RBT, RBT, 409, 409),
    "my rollback": (404, 409, 409, OK, OK, OK, RBT, RBT, COM, HRB),
    "my forget": (404, 409, 409, 409, 409, 409, 409, 409, 0, 0),
    "my get-timeout": (404, 60, 60, 60, 60, 60, 60, 60, 60, 60),
    "my set-timeout": (404, 0, 0, 0, 0, 0, 0, 0, 0, 0),
}
EXPECTED: Final = {"amqp091": EXPECTED_091, "amqp010": EXPECTED_010}


@pytest.mark.rule("DTX-3", "DTX-4", "DTX-5", "DTX-8", "DTX-9", "DTX-10", "DTX-12", "DTX-13")
@pytest.mark.parametrize(("mine", "other"), MIXED)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_answered_according_to_the_state_of_the_branch(
    call: str, state: Callable[[Scene], None], mine: type[BranchClient], other: type[BranchClient]
) -> None:
    s = scene(mine, other)
    state(s)
    assert s.other.call(call, X) == EXPECTED[other.PROTOCOL][call][STATES.index(state)]


@pytest.mark.rule("DTX-3", "DTX-4", "DTX-5", "DTX-8", "DTX-9", "DTX-10", "DTX-12", "DTX-13")
@pytest.mark.parametrize("kind", PROTOCOLS)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_of_the_client_that_works_for_the_branch_is_answered_likewise(
    call: str, state: Callable[[Scene], None], kind: type[BranchClient]
) -> None:
    s = scene(kind, kind)
    state(s)
    assert s.mine.call(call, X) == EXPECTED[kind.PROTOCOL][f"my {call}"][STATES.index(state)]


@pytest.mark.parametrize("table", EXPECTED.values(), ids=EXPECTED)
def test_the_table_has_every_cell(table: dict[str, tuple[int, ...]]) -> None:
    assert table.keys() == {*CALLS, *(f"my {call}" for call in CALLS)}
    assert {len(row) for row in table.values()} == {len(STATES)}


@pytest.mark.rule("DTX-1")
@pytest.mark.parametrize("kind", PROTOCOLS)
@pytest.mark.parametrize("call", CALLS)
def test_only_demarcation_requires_select(call: str, kind: type[BranchClient]) -> None:
    assert kind(server(), selects=False).call(call, X) == (503 if call in DEMARCATION else 404)


@pytest.mark.rule("DTX-3")
@pytest.mark.parametrize("kind", PROTOCOLS)
@pytest.mark.parametrize("call", ["start join resume", "end fail suspend"])
def test_flags_that_exclude_each_other_are_refused(call: str, kind: type[BranchClient]) -> None:
    s = scene(kind, kind)
    active(s)
    assert s.mine.call(call, X) == 503


@pytest.mark.rule("DTX-3")
@pytest.mark.parametrize("kind", PROTOCOLS)
@pytest.mark.parametrize("call", ["start", "start join", "start resume"])
def test_a_client_with_an_active_branch_cannot_start_another(call: str, kind: type[BranchClient]) -> None:
    s = scene(kind, kind)
    active(s)
    assert s.other.call("start", Y) == OK
    assert s.other.call(call, X) == (530 if call == "start" else 503)


@pytest.mark.rule("DTX-3")
@pytest.mark.parametrize(
    ("kind", "code"), [pytest.param(*pair, id=pair[0].PROTOCOL) for pair in zip(CLIENTS, (404, 503), strict=True)]
)
def test_a_client_cannot_end_another_branch_than_its_own(kind: type[BranchClient], code: int) -> None:
    s = scene(kind, kind)
    active(s)
    assert s.other.call("start", Y) == OK
    assert s.other.call("end", X) == code


@pytest.mark.rule("DTX-2", "DTX-5")
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_a_client_may_work_for_another_branch_while_one_is_suspended(kind: type[BranchClient]) -> None:
    s = scene(kind, kind)
    suspended(s)
    assert s.mine.call("start", Y) == OK
    s.mine.publish("q", b"of another")
    assert s.mine.call("end", Y) == OK
    assert s.mine.call("start resume", X) == OK
    assert s.mine.call("end", X) == OK
    assert s.other.call("commit one-phase", Y) == OK
    assert s.other.call("rollback", X) == OK
    assert bodies(s.server) == [b"of another"]


@pytest.mark.rule("DTX-7", "DTX-14")
@pytest.mark.parametrize("kind", PROTOCOLS)
@pytest.mark.parametrize("state", [active, suspended])
def test_a_branch_whose_client_is_lost_is_rolled_back(state: Callable[[Scene], None], kind: type[BranchClient]) -> None:
    s = scene(kind, kind)
    state(s)
    s.mine.lose()
    assert s.other.call("prepare", X) == RB
    assert bodies(s.server) == []


@pytest.mark.rule("DTX-8")
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_a_branch_without_work_is_read_only(kind: type[BranchClient]) -> None:
    s = scene(kind, kind)
    assert s.mine.call("start", X) == OK
    assert s.mine.call("end", X) == OK
    assert s.other.call("prepare", X) == RDONLY
    assert s.other.call("commit", X) == 404


@pytest.mark.rule("DTX-10", "DTX-11")
@pytest.mark.parametrize(("mine", "other"), MIXED)
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_every_client_sees_the_branches_in_doubt(
    outcome: str, mine: type[BranchClient], other: type[BranchClient]
) -> None:
    s = scene(mine, other)
    prepared(s)
    assert s.mine.recover() == s.other.recover() == [X]
    assert s.other.call(outcome, X) == OK
    assert s.mine.recover() == s.other.recover() == []
    assert bodies(s.server) == ([b"work"] if outcome == "commit" else [])

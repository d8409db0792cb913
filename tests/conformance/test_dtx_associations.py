"""Every call about a branch, for every association that a client may have with it and with another branch.

The states of the branch itself are in `test_dtx_states.py`. The codes are those of dtx on AMQP 0-9-1 and of AMQP 0-10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.conformance.branch_clients import CALLS, CLIENTS, BranchClient
from tests.conformance.test_dtx_states import OK, RB, RDONLY, Scene, X, Y, active, scene, suspended
from tests.unit.wire.amqp091.clients import bodies


def works_for_another(s: Scene) -> None:
    """The client has ended X, and works for Y."""
    active(s)
    assert s.mine.call("end", X) == OK
    assert s.mine.call("start", Y) == OK


def suspended_beside_another(s: Scene) -> None:
    """The client has suspended X, and works for Y."""
    suspended(s)
    assert s.mine.call("start", Y) == OK


def both_suspended(s: Scene) -> None:
    """The client has suspended X and Y."""
    suspended_beside_another(s)
    assert s.mine.call("end suspend", Y) == OK


def resumed(s: Scene) -> None:
    """The client has suspended X and resumed it."""
    suspended(s)
    assert s.mine.call("start resume", X) == OK


def joined(s: Scene) -> None:
    """Both clients work for X."""
    active(s)
    assert s.other.call("start join", X) == OK


def joined_by_the_other_only(s: Scene) -> None:
    """The client has ended X, for which the other one works."""
    joined(s)
    assert s.mine.call("end", X) == OK


def suspended_beside_work(s: Scene) -> None:
    """The client has suspended X, for which the other one works."""
    joined(s)
    assert s.mine.call("end suspend", X) == OK


def suspended_by_both(s: Scene) -> None:
    """Both clients have suspended X."""
    suspended_beside_work(s)
    assert s.other.call("end suspend", X) == OK


def suspended_by_the_other_only(s: Scene) -> None:
    """The client has ended X, which the other one has suspended."""
    suspended_by_both(s)
    assert s.mine.call("start resume", X) == OK
    assert s.mine.call("end", X) == OK


def failed_by_the_other(s: Scene) -> None:
    """The client works for X, which the other one has ended as failed."""
    joined(s)
    assert s.other.call("end fail", X) == RB


ASSOCIATIONS: Final = (
    works_for_another,
    suspended_beside_another,
    both_suspended,
    resumed,
    joined,
    joined_by_the_other_only,
    suspended_beside_work,
    suspended_by_both,
    suspended_by_the_other_only,
    failed_by_the_other,
)

# For each call about X, the answer for each of ASSOCIATIONS: the status, or the error code.
EXPECTED_091: Final[dict[str, tuple[int, ...]]] = {
    "start": (530, 530, 530, 530, 530, 530, 530, 530, 530, 530),
    "start join": (503, 503, OK, 503, 503, OK, OK, OK, OK, 503),
    "start resume": (503, 503, OK, 503, 503, 503, OK, OK, 503, 503),
    "start join resume": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "end": (404, 503, 503, OK, OK, 404, 503, 503, 404, RB),
    "end fail": (404, 503, 503, RB, RB, 404, 503, 503, 404, RB),
    "end suspend": (404, 503, 503, OK, OK, 404, 503, 503, 404, RB),
    "end fail suspend": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "prepare": (OK, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "commit": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "commit one-phase": (OK, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "rollback": (OK, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "forget": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "get-timeout": (60, 60, 60, 60, 60, 60, 60, 60, 60, 60),
    "set-timeout": (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
}
EXPECTED_010: Final[dict[str, tuple[int, ...]]] = {
    "start": (530, 530, 530, 530, 530, 530, 530, 530, 530, 530),
    "start join": (503, 503, OK, 503, 503, OK, OK, OK, OK, 503),
    "start resume": (503, 503, OK, 503, 503, 503, OK, OK, 503, 503),
    "start join resume": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "end": (503, 503, 409, OK, OK, 409, 409, 409, 409, RB),
    "end fail": (503, 503, 409, RB, RB, 409, 409, 409, 409, RB),
    "end suspend": (503, 503, 409, OK, OK, 409, 409, 409, 409, RB),
    "end fail suspend": (503, 503, 503, 503, 503, 503, 503, 503, 503, 503),
    "prepare": (OK, 409, 409, 409, 409, 409, 409, 409, 409, 409),
    "commit": (409, 409, 409, 409, 409, 409, 409, 409, 409, 409),
    "commit one-phase": (OK, 409, 409, 409, 409, 409, 409, 409, 409, 409),
    "rollback": (OK, 409, 409, 409, 409, 409, 409, 409, 409, 409),
    "forget": (409, 409, 409, 409, 409, 409, 409, 409, 409, 409),
    "get-timeout": (60, 60, 60, 60, 60, 60, 60, 60, 60, 60),
    "set-timeout": (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
}
EXPECTED: Final = {"amqp091": EXPECTED_091, "amqp010": EXPECTED_010}


@pytest.mark.rule("DTX-2", "DTX-3", "DTX-4", "DTX-5", "DTX-6", "DTX-14")
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.PROTOCOL) for kind in CLIENTS])
@pytest.mark.parametrize("association", ASSOCIATIONS, ids=lambda association: association.__name__)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_answered_according_to_the_association(
    call: str, association: Callable[[Scene], None], kind: type[BranchClient]
) -> None:
    s = scene(kind, kind)
    association(s)
    assert s.mine.call(call, X) == EXPECTED[kind.PROTOCOL][call][ASSOCIATIONS.index(association)]


@pytest.mark.parametrize("table", EXPECTED.values(), ids=EXPECTED)
def test_the_table_has_every_cell(table: dict[str, tuple[int, ...]]) -> None:
    assert table.keys() == set(CALLS)
    assert {len(row) for row in table.values()} == {len(ASSOCIATIONS)}


@pytest.mark.rule("DTX-6")
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.PROTOCOL) for kind in CLIENTS])
def test_a_branch_for_which_two_clients_work_takes_the_work_of_both(kind: type[BranchClient]) -> None:
    s = scene(kind, kind)
    joined(s)
    s.other.publish("q", b"of the other")
    assert s.mine.call("end", X) == OK
    assert s.other.call("end", X) == OK
    assert s.mine.call("commit one-phase", X) == OK
    assert bodies(s.server) == [b"work", b"of the other"]


@pytest.mark.rule("DTX-2", "DTX-7")
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.PROTOCOL) for kind in CLIENTS])
def test_a_client_that_is_lost_affects_only_the_branches_that_it_has_not_ended(kind: type[BranchClient]) -> None:
    s = scene(kind, kind)
    works_for_another(s)
    s.mine.publish("q", b"of another")
    s.mine.lose()
    assert s.other.call("prepare", X) == OK
    assert s.other.call("prepare", Y) == RB
    assert s.other.call("commit", X) == OK
    assert bodies(s.server) == [b"work"]


@pytest.mark.rule("DTX-8")
@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.PROTOCOL) for kind in CLIENTS])
def test_a_branch_without_work_of_two_clients_is_read_only(kind: type[BranchClient]) -> None:
    s = scene(kind, kind)
    assert s.mine.call("start", X) == OK
    assert s.other.call("start join", X) == OK
    assert s.mine.call("end", X) == OK
    assert s.other.call("end", X) == OK
    assert s.other.call("prepare", X) == RDONLY

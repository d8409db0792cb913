"""When half messages are due."""

from __future__ import annotations

from escrowmq.core.half.rows import Rows
from escrowmq.core.half.state import HalfState
from escrowmq.core.half.timetable import Timetable


def filled(*dues: int) -> tuple[Timetable, Rows]:
    """Return a timetable with half messages 1, 2, ... that wait for the same time, and their rows."""
    timetable, rows = Timetable(), Rows()
    for number, due in enumerate(dues, 1):
        rows.add(number, "m", 0, due, 1)
        timetable.add(number, 10)
    return timetable, rows


def test_half_messages_leave_when_they_are_due_and_in_order() -> None:
    timetable, rows = filled(10, 11)
    assert timetable.next(rows) == 10
    assert timetable.pop(rows, 9) == 0
    assert timetable.pop(rows, 10) == 1
    assert timetable.pop(rows, 10) == 0
    assert timetable.next(rows) == 11
    assert timetable.pop(rows, 11) == 2
    assert timetable.pop(rows, 11) == 0
    assert timetable.next(rows) is None


def test_different_delays_have_queues_of_their_own() -> None:
    timetable, rows = filled(1_000)
    rows.add(2, "m", 0, 5, 1)
    assert timetable.add(2, 5)
    assert timetable.next(rows) == 5
    assert timetable.pop(rows, 5) == 2


def test_decided_half_messages_leave_when_they_reach_the_front() -> None:
    timetable, rows = filled(10, 20)
    rows.set(1, HalfState.COMMITTED, 3, 0)
    assert timetable.next(rows) == 0
    assert timetable.pop(rows, 4) == 1
    assert timetable.pop(rows, 4) == 0


def test_half_messages_wait_for_a_producer_of_their_group() -> None:
    timetable, rows = filled(10)
    timetable.wait("g", "ann", timetable.pop(rows, 10))
    assert timetable.next(rows) is None
    assert not timetable.wake("other")
    assert timetable.wake("g")
    assert timetable.next(rows) == 0
    assert timetable.pop(rows, 10) == 1
    assert not timetable.wake("g")


def test_the_rest_of_a_group_and_user_waits_again_in_its_order() -> None:
    timetable, rows = filled(10, 10, 10, 10)
    for user in ("ann", "ann", "ann", "bob"):
        timetable.wait("g", user, timetable.pop(rows, 10))
    timetable.wake("g")
    timetable.wait("g", "ann", timetable.pop(rows, 10))
    timetable.rest_waits("g", "ann")
    timetable.rest_waits("g", "ann")  # bob's are due, and stay so
    assert [timetable.pop(rows, 10) for _ in range(2)] == [4, 0]
    timetable.wake("g")
    assert [timetable.pop(rows, 10) for _ in range(4)] == [1, 2, 3, 0]


def test_restored_half_messages_are_due_in_their_order() -> None:
    _, rows = filled(30, 20)
    timetable = Timetable()
    timetable.restore([2, 1], [7])
    assert list(timetable.decided) == [7]
    assert [timetable.pop(rows, 20), timetable.pop(rows, 20), timetable.pop(rows, 30)] == [2, 0, 1]

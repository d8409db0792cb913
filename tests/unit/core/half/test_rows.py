"""The columns of half messages."""

from __future__ import annotations

from escrowmq.core.half.rows import SIZE, Rows
from escrowmq.core.half.state import HalfState


def test_a_row_keeps_what_was_set() -> None:
    rows = Rows()
    rows.add(SIZE + 3, "m", 10, 20, 7)
    assert (rows.ident(SIZE + 3), rows.born(SIZE + 3), rows.due(SIZE + 3), rows.origin(SIZE + 3)) == ("m", 10, 20, 7)
    assert (rows.state(SIZE + 3), rows.checks(SIZE + 3)) == (HalfState.PENDING, 0)
    rows.set(SIZE + 3, HalfState.PARKED, 30, 15)
    assert (rows.state(SIZE + 3), rows.due(SIZE + 3), rows.checks(SIZE + 3)) == (HalfState.PARKED, 30, 15)
    rows.put(SIZE + 3, 40)
    assert rows.due(SIZE + 3) == 40


def test_a_number_without_a_row_has_no_state() -> None:
    rows = Rows()
    rows.add(1, "m", 10, 20, 7)
    assert rows.state(2) is None
    assert rows.state(10 * SIZE) is None


def test_a_chunk_is_freed_with_its_last_row() -> None:
    rows = Rows()
    rows.add(1, "a", 0, 0, 1)
    rows.add(2, "b", 0, 0, 1)
    rows.remove(1)
    assert list(rows.numbers()) == [2]
    rows.remove(2)
    assert rows.shared() == []


def test_numbers_are_in_order_and_greater_than_a_given_one() -> None:
    rows = Rows()
    for number in (3 * SIZE, 5, SIZE + 1, 6):
        rows.add(number, "m", 0, 0, 1)
    assert list(rows.numbers()) == [5, 6, SIZE + 1, 3 * SIZE]
    assert list(rows.numbers(5)) == [6, SIZE + 1, 3 * SIZE]


def test_a_shared_chunk_does_not_change() -> None:
    rows = Rows()
    rows.add(1, "a", 10, 20, 1)
    (shared,) = rows.shared()
    rows.set(1, HalfState.COMMITTED, 99, 3)
    rows.add(2, "b", 0, 0, 1)
    assert (shared.states[1], shared.due[1], shared.checks[1], shared.states[2]) == (HalfState.PENDING, 20, 0, 0)
    assert rows.state(1) is HalfState.COMMITTED


def test_the_numbers_in_a_state_are_in_order_of_their_due_times() -> None:
    rows = Rows()
    for number, due in ((1, 30), (2, 20), (SIZE + 1, 10), (SIZE + 2, 5)):
        rows.add(number, "m", 0, due, 1)
    rows.set(SIZE + 2, HalfState.COMMITTED, 7, 0)
    assert rows.in_states(HalfState.PENDING) == [SIZE + 1, 2, 1]
    assert rows.in_states(HalfState.COMMITTED, HalfState.ROLLED_BACK) == [SIZE + 2]


def test_the_first_number_in_a_state_is_found() -> None:
    rows = Rows()
    assert rows.first(HalfState.PARKED) == 0
    for number in (3, 300, 900):
        rows.add(number, "m", 1, 2, 1)
    rows.set(900, HalfState.PARKED, 3, 1)
    rows.set(300, HalfState.PARKED, 3, 1)
    assert (rows.first(HalfState.PENDING), rows.first(HalfState.PARKED)) == (3, 300)

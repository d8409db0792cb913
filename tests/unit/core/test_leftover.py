"""Requests whose clients are gone are carried through, in turns with budget left."""

from __future__ import annotations

from collections.abc import Iterator

from escrowmq.core.budget import Budget
from escrowmq.core.leftover import LeftOver, freed


def rest(done: list[int], *steps: int) -> Iterator[None]:
    for i, step in enumerate(steps):
        if i:
            yield
        done.append(step)


def test_each_turn_does_a_piece_and_the_rests_are_done_in_order() -> None:
    left, done = LeftOver(), list[int]()
    left.add(rest(done, 1, 2))
    left.add(rest(done, 3, 4))
    budget = Budget()
    seen = []
    while left:
        left.step(budget)
        seen.append(done.copy())
    assert seen == [[1], [1, 2, 3], [1, 2, 3, 4]]


def test_nothing_is_done_when_the_budget_is_used_up() -> None:
    left, done = LeftOver(), list[int]()
    left.add(rest(done, 1))
    budget = Budget()
    budget.left = 0
    left.step(budget)
    assert left
    assert not done


def test_objects_are_freed_in_pieces() -> None:
    objects = [*range(7)]
    left = []
    for _ in freed(objects, 3):
        left.append(len(objects))
    assert left == [4, 1, 0]


def test_a_deletion_begins_at_once_and_its_rest_is_taken_over() -> None:
    left, done = LeftOver(), list[int]()
    left.begin(rest(done, 1))
    assert (done, bool(left)) == ([1], False)
    left.begin(rest(done, 2, 3))
    assert (done, bool(left)) == ([1, 2], True)
    left.step(Budget())
    assert (done, bool(left)) == ([1, 2, 3], False)


def test_deletions_take_turns_with_each_other_and_with_rests() -> None:
    left, done = LeftOver(), list[int]()
    left.begin(rest(done, 10, 11, 12, 13))
    left.begin(rest(done, 20, 21))
    left.add(rest(done, 30, 31))
    budget, seen = Budget(), []
    while left:
        done.clear()
        left.step(budget)
        seen.append(done.copy())
    assert seen == [[11, 30], [21, 12, 31], [13]]

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

"""Watchers of a stream: called once, in order, within the budget."""

from __future__ import annotations

from escrowmq.core.budget import Budget
from escrowmq.core.queues.watching import CALL, Watchers


class Waiter:
    """Records its calls, and may watch again."""

    def __init__(self, name: str, calls: list[str], again: tuple[Watchers, int] | None = None) -> None:
        self.name = name
        self._calls = calls
        self._again = again

    def ready(self) -> None:
        self._calls.append(self.name)
        if self._again is not None:
            watchers, position = self._again
            watchers.add(position, self)


def test_a_watcher_is_called_once_when_its_position_is_reached() -> None:
    watchers, calls = Watchers(), list[str]()
    watchers.add(5, Waiter("a", calls))
    assert watchers.call(5, Budget())
    assert calls == []
    assert watchers.call(6, Budget())
    assert watchers.call(7, Budget())
    assert calls == ["a"]
    assert not watchers


def test_another_position_replaces_the_first() -> None:
    watchers, calls = Watchers(), list[str]()
    waiter = Waiter("a", calls)
    watchers.add(1, waiter)
    watchers.add(9, waiter)
    assert watchers.call(5, Budget())
    assert calls == []
    assert len(watchers) == 1


def test_a_watcher_that_was_removed_is_not_called() -> None:
    watchers, calls = Watchers(), list[str]()
    waiter = Waiter("a", calls)
    watchers.add(1, waiter)
    watchers.remove(waiter)
    watchers.remove(waiter)
    assert watchers.call(5, Budget())
    assert calls == []


def test_calls_stop_when_the_budget_is_used_up_and_go_on_in_order() -> None:
    watchers, calls = Watchers(), list[str]()
    for name in "abc":
        watchers.add(1, Waiter(name, calls))
    budget = Budget()
    budget.left = CALL
    assert not watchers.call(2, budget)
    assert calls == ["a"]
    assert watchers.call(2, Budget())
    assert calls == ["a", "b", "c"]


def test_a_watcher_that_watches_again_has_its_turn_after_the_others() -> None:
    watchers, calls = Watchers(), list[str]()
    watchers.add(1, Waiter("greedy", calls, (watchers, 0)))
    watchers.add(1, Waiter("b", calls))
    budget = Budget()
    for _ in range(3):
        budget.left = CALL
        assert not watchers.call(2, budget)
    assert calls == ["greedy", "b", "greedy"]


def test_replaced_positions_do_not_pile_up() -> None:
    watchers = Watchers()
    waiter = Waiter("a", [])
    for position in range(1000):
        watchers.add(position + 10, waiter)
    assert len(watchers._heap) < 200


def test_everyone_is_called_at_the_end() -> None:
    watchers, calls = Watchers(), list[str]()
    for name in "ab":
        watchers.add(100, Waiter(name, calls))
    watchers.end()
    watchers.end()
    assert calls == ["a", "b"]

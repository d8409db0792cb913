"""The age of transactions, one after the other."""

from __future__ import annotations

import pytest

from escrowmq.core.deadlines import Deadlines
from escrowmq.core.watch import Watch


class Clock:
    """Deadlines with a time that the test sets, and what they told."""

    def __init__(self, limit: int) -> None:
        self.deadlines = Deadlines()
        self.expired: list[int] = []
        self.now = 0
        self.watch = Watch(self.deadlines, limit, lambda: self.expired.append(self.now))

    def until(self, now: int) -> None:
        """Time passes, deadline by deadline."""
        while (due := self.deadlines.next()) is not None and due <= now:
            self.now = due
            for action in self.deadlines.due(due):
                action()
        self.now = now


@pytest.mark.rule("TX-13")
def test_a_branch_that_is_too_old_is_told() -> None:
    clock = Clock(100)
    clock.watch.start(0)
    clock.until(99)
    assert not clock.expired
    clock.until(100)
    assert clock.expired == [100]


def test_each_branch_has_its_own_age() -> None:
    clock = Clock(100)
    clock.watch.start(0)
    clock.watch.stop()
    clock.watch.start(60)
    clock.until(159)
    assert not clock.expired
    clock.until(160)
    assert clock.expired == [160]


def test_branches_that_end_in_time_share_one_deadline() -> None:
    clock = Clock(100)
    for now in range(1000):
        clock.until(now)
        clock.watch.start(now)
        clock.watch.stop()
        assert len(clock.deadlines) <= 1
    clock.until(5000)
    assert not clock.expired
    assert clock.deadlines.next() is None


def test_without_a_limit_nothing_is_set() -> None:
    clock = Clock(0)
    clock.watch.start(0)
    assert clock.deadlines.next() is None
    assert clock.watch.since == 0


def test_a_closed_watch_says_nothing() -> None:
    clock = Clock(100)
    clock.watch.start(0)
    clock.watch.close()
    clock.until(1000)
    assert not clock.expired

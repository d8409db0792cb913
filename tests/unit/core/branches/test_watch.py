"""One deadline sees to the age of one branch after the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.branches.watch import Watch
from escrowmq.core.deadlines import Deadlines


class Clock:
    """Deadlines, and a watch over an age of 100."""

    def __init__(self, limit: int = 100) -> None:
        self.deadlines = Deadlines()
        self.expired: list[int] = []
        self.now = 1000
        self.watch = Watch(self.deadlines, limit, self.expire)

    def expire(self) -> None:
        self.expired.append(self.now)
        self.watch.stop()

    def wait(self, ms: int) -> None:
        self.now += ms
        for action in self.deadlines.due(self.now):
            action()


@pytest.mark.rule("TX-13")
def test_an_age_that_is_reached() -> None:
    clock = Clock()
    clock.watch.start(clock.now)
    clock.wait(99)
    assert clock.expired == []
    clock.wait(1)
    assert clock.expired == [1100]
    clock.wait(1000)
    assert clock.expired == [1100]


def test_branches_that_end_in_time_cost_no_deadline_each() -> None:
    clock = Clock()
    for _ in range(1000):
        clock.watch.start(clock.now)
        clock.wait(1)
        clock.watch.stop()
    assert len(clock.deadlines) <= 1
    assert clock.expired == []


def test_without_a_limit_nothing_is_watched() -> None:
    clock = Clock(0)
    clock.watch.start(clock.now)
    assert clock.deadlines.next() is None


def test_after_closing_nothing_is_due() -> None:
    clock = Clock()
    clock.watch.start(clock.now)
    clock.watch.close()
    assert clock.deadlines.next() is None
    clock.wait(500)
    assert clock.expired == []


@given(st.lists(st.tuples(st.integers(0, 150), st.integers(0, 150)), max_size=20))
def test_each_branch_has_its_own_age(plan: list[tuple[int, int]]) -> None:
    """A pause, then a branch that lasts so long unless it expires, in steps of a millisecond."""
    clock = Clock()
    expected = []
    for pause, length in plan:
        clock.wait(pause)
        start = clock.now
        clock.watch.start(start)
        for _ in range(length):
            if clock.watch.since is not None:
                clock.wait(1)
        if length >= 100:
            expected.append(start + 100)
        clock.watch.stop()
    assert clock.expired == expected

"""One deadline serves the age limits of successive branches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.branches.watch import Watch
from escrowmq.core.deadlines import Deadlines


class Clock:
    """Deadlines, and a watch with an age limit of 100."""

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
def test_a_branch_expires_at_the_age_limit() -> None:
    clock = Clock()
    clock.watch.start(clock.now)
    clock.wait(99)
    assert clock.expired == []
    clock.wait(1)
    assert clock.expired == [1100]
    clock.wait(1000)
    assert clock.expired == [1100]


def test_branches_that_end_in_time_share_a_deadline() -> None:
    clock = Clock()
    for _ in range(1000):
        clock.watch.start(clock.now)
        clock.wait(1)
        clock.watch.stop()
    assert len(clock.deadlines) <= 1
    assert clock.expired == []


def test_without_a_limit_no_deadline_is_set() -> None:
    clock = Clock(0)
    clock.watch.start(clock.now)
    assert clock.deadlines.next() is None


def test_after_closing_no_deadline_is_left() -> None:
    clock = Clock()
    clock.watch.start(clock.now)
    clock.watch.close()
    assert clock.deadlines.next() is None
    clock.wait(500)
    assert clock.expired == []


@given(st.lists(st.tuples(st.integers(0, 150), st.integers(0, 150)), max_size=20))
def test_each_branch_has_its_own_age(plan: list[tuple[int, int]]) -> None:
    """`plan`: pauses, each followed by a branch that lasts the given time unless it expires, in milliseconds."""
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

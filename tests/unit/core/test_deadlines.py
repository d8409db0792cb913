"""Deadlines are returned in order of time, then in the order in which they were set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.deadlines import Deadline, Deadlines


def run(deadlines: Deadlines, now: int) -> None:
    for action in deadlines.due(now):
        action()


def test_nothing_is_due_before_its_time() -> None:
    called: list[str] = []
    deadlines = Deadlines()
    deadlines.set(10, lambda: called.append("a"))
    run(deadlines, 9)
    assert not called
    assert deadlines.next() == 10
    run(deadlines, 10)
    assert called == ["a"]
    assert deadlines.next() is None


def test_deadlines_of_equal_time_are_in_the_order_in_which_they_were_set() -> None:
    called: list[int] = []
    deadlines = Deadlines()
    for i in range(20):
        deadlines.set(5, lambda i=i: called.append(i))  # type: ignore[misc]
    run(deadlines, 5)
    assert called == list(range(20))


def test_a_cancelled_deadline_is_ignored() -> None:
    called: list[str] = []
    deadlines = Deadlines()
    first = deadlines.set(1, lambda: called.append("first"))
    deadlines.set(2, lambda: called.append("second"))
    first.cancel()
    first.cancel()
    assert deadlines.next() == 2
    run(deadlines, 2)
    assert called == ["second"]


def test_a_deadline_may_be_cancelled_by_another_that_is_due() -> None:
    called: list[str] = []
    set_: list[Deadline] = []
    deadlines = Deadlines()

    def cancel() -> None:
        set_[0].cancel()

    deadlines.set(1, cancel)
    set_.append(deadlines.set(1, lambda: called.append("later")))
    run(deadlines, 1)
    assert not called


def test_a_deadline_set_meanwhile_and_due_is_returned_too() -> None:
    called: list[str] = []
    deadlines = Deadlines()

    def outer() -> None:
        deadlines.set(2, lambda: called.append("inner"))

    deadlines.set(1, outer)
    run(deadlines, 2)
    assert called == ["inner"]


def test_cancelled_deadlines_do_not_accumulate() -> None:
    deadlines = Deadlines()
    kept = deadlines.set(10**9, lambda: None)
    for _ in range(10_000):
        deadlines.set(10**9, lambda: None).cancel()
    assert len(deadlines) < 200
    assert deadlines.next() == 10**9
    kept.cancel()
    assert deadlines.next() is None


def test_cancelling_a_past_deadline_does_nothing() -> None:
    deadlines = Deadlines()
    done = [deadlines.set(1, lambda: None) for _ in range(200)]
    run(deadlines, 1)
    for deadline in done:
        deadline.cancel()
    called: list[int] = []
    for i in range(100):
        deadlines.set(2, lambda i=i: called.append(i))  # type: ignore[misc]
    run(deadlines, 2)
    assert called == list(range(100))


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=200), st.integers(0, 20))
def test_deadlines_equal_a_sorted_list(plan: list[tuple[int, bool]], now: int) -> None:
    called: list[int] = []
    deadlines = Deadlines()
    for i, (at, cancelled) in enumerate(plan):
        deadline = deadlines.set(at, lambda i=i: called.append(i))  # type: ignore[misc]
        if cancelled:
            deadline.cancel()
    live = sorted((at, i) for i, (at, cancelled) in enumerate(plan) if not cancelled)
    run(deadlines, now)
    assert called == [i for at, i in live if at <= now]
    assert deadlines.next() == next((at for at, _ in live if at > now), None)


def test_after_a_stop_nothing_is_due() -> None:
    called: list[str] = []
    deadlines = Deadlines()
    deadlines.set(1, lambda: called.append("before"))
    deadlines.stop()
    deadlines.set(2, lambda: called.append("after"))
    assert deadlines.next() is None
    run(deadlines, 10)
    assert not called


def test_a_deadline_can_stop_the_others() -> None:
    called: list[str] = []
    deadlines = Deadlines()
    deadlines.set(1, deadlines.stop)
    deadlines.set(2, lambda: called.append("later"))
    run(deadlines, 10)
    assert not called

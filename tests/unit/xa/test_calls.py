"""Calls run concurrently, each with a time limit."""

from __future__ import annotations

import threading

from escrowmq.xa.calls import Callers, CallTimeout


def test_calls_run_concurrently_and_results_are_in_order() -> None:
    barrier = threading.Barrier(3, timeout=30)
    callers = Callers()

    def meet(number: int) -> int:
        barrier.wait()
        return number

    assert callers.run([lambda: meet(1), lambda: meet(2), lambda: meet(3)], 60) == [1, 2, 3]
    assert callers.run([], 1) == []


def test_an_error_is_a_result() -> None:
    (result,) = Callers().run([lambda: 1 // 0], None)
    assert isinstance(result, ZeroDivisionError)


def test_a_call_that_hangs_is_abandoned() -> None:
    hang = threading.Event()
    callers = Callers()
    late, early = callers.run([hang.wait, lambda: True], 2)
    assert isinstance(late, CallTimeout)
    assert str(late) == "no answer within 2 s"
    assert early is True
    hang.set()


def test_threads_are_reused() -> None:
    callers = Callers()
    before = threading.active_count()
    for _ in range(50):
        assert callers.run([threading.get_ident], 60)
    assert threading.active_count() - before <= 3

"""The queues and exchanges that an object concerns are recorded up to a limit."""

from __future__ import annotations

from escrowmq.core.access.owned import MOST, Concerns


def test_each_concern_counts_once() -> None:
    concerns = Concerns()
    for _ in range(2):
        concerns.add("queue", "q", "read")
        concerns.add("queue", "q", "write")
    assert list(concerns.names) == [("queue", "q", "read"), ("queue", "q", "write")]
    assert concerns.complete


def test_too_many_concerns_are_not_kept() -> None:
    concerns = Concerns()
    for number in range(MOST):
        concerns.add("queue", f"q{number}", "read")
    assert len(concerns.names) == MOST
    concerns.add("queue", "one more", "read")
    concerns.add("queue", "and another", "read")
    assert (concerns.complete, concerns.names) == (False, {})


def test_restored_concerns_are_those_of_the_record() -> None:
    restored = Concerns.restored([("exchange", "x", "write")], complete=False)
    assert (list(restored.names), restored.complete) == ([("exchange", "x", "write")], False)

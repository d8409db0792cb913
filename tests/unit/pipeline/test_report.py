"""The report says what the run has proved, and no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from escrowmq.pipeline import report
from escrowmq.pipeline.store import State


def continuity(*, head: bool, proved: bool) -> str:
    state = State(head=[20, "00", ""] if head else [])
    audit: Any = SimpleNamespace(store=SimpleNamespace(state=state), unchained=[], proved=proved)
    return report._continuity(audit)


def test_a_first_run_proves_only_that_the_segments_continue_each_other() -> None:
    said = continuity(head=False, proved=True)
    assert said.startswith("proved within the log only: each segment continues the one before. There is no earlier run")
    assert "the last run saw" not in said


def test_a_first_run_that_proves_nothing_says_what_the_next_one_does() -> None:
    said = continuity(head=False, proved=False)
    assert said.startswith("not proved: segments of older versions have no chain")
    assert said.endswith("the next run compares the log with the head below")


def test_a_later_run_proves_that_the_log_continues_the_one_that_the_last_run_saw() -> None:
    assert continuity(head=True, proved=True).endswith("and the log the one that the last run saw")
    assert continuity(head=True, proved=False).startswith("not proved")

"""The report says what the run has proved, and no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from escrowmq.pipeline import report
from escrowmq.pipeline.continuity import Continuity
from escrowmq.pipeline.digests import Compared
from escrowmq.pipeline.store import State


def continuity(*, head: bool, proved: bool) -> str:
    state = State(head=[20, "00", ""] if head else [])
    audit: Any = SimpleNamespace(store=SimpleNamespace(state=state), continuity=Continuity(proved=proved))
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


def test_contents_are_proved_as_far_as_frames_have_digests() -> None:
    said = report.contents(Compared(1200, 0, 0x40), changed=0)
    assert said.startswith("proved for 1,200 frames")
    assert said.endswith("the last frame, at LSN 0x40, has no later one; the next run compares it")
    assert "not proved" not in said


def test_contents_of_versions_without_digests_are_not_proved() -> None:
    said = report.contents(Compared(0, 7, 0x40), changed=0)
    assert said.startswith("not proved for 7 frames: they were written by a version without digests")
    assert "proved for 3 frames" in report.contents(Compared(3, 7, 0x40), changed=0)
    assert report.contents(Compared(), changed=0) == ""


def test_changed_contents_are_said_to_be() -> None:
    assert report.contents(Compared(9, 0, 0x40), changed=2).startswith("changed: 2 of 9 frames differ")


def test_deleted_parts_are_proved_only_by_notes() -> None:
    assert report.deleted(0, None, noted=True) == "none"
    assert report.deleted(1, True, noted=True) == "proved: the broker has noted that it deleted 1 part of the log"
    assert report.deleted(2, False, noted=False).startswith("not proved: 2 parts of the log may have been deleted by")
    assert report.deleted(2, False, noted=True).startswith("not proved for all of 2 parts of the log")

"""The answers to the calls of distributed transactions."""

from __future__ import annotations

from escrowmq.core.branches.xa import XaResult, XaStatus


def test_the_flags_have_the_numbers_of_the_protocol() -> None:
    names = ["RB_ROLLBACK", "RB_TIMEOUT", "HEUR_HAZ", "HEUR_COM", "HEUR_RB", "HEUR_MIX", "RDONLY", "OK"]
    assert [status.name for status in XaStatus] == names
    assert list(XaStatus) == list(range(1, 9))


def test_most_answers_wait_for_no_sync() -> None:
    assert XaResult(XaStatus.OK) == (8, 0, (), "")

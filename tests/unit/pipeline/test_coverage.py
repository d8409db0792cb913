"""The report does not say that a rule was checked on messages without the records that it needs."""

from __future__ import annotations

import pytest

from escrowmq.pipeline.coverage import RecordedMoves, checked, counted

NONE = RecordedMoves(0, 0)


@pytest.mark.parametrize(
    ("subject", "rule"),
    [
        ("messages", ("ORD-3", "not marked")),
        ("messages", ("ORD-1", "delivered out of order")),
        ("link termini", ("SET-10", "delivered without acquisition")),
    ],
)
def test_a_rule_about_deliveries_is_not_checked_without_their_records(subject: str, rule: tuple[str, str]) -> None:
    assert checked(subject, rule, 7, NONE) == "none: no deliveries are recorded"


def test_a_rule_about_deliveries_is_checked_on_messages_that_have_their_records() -> None:
    assert (
        checked("messages", ("ORD-3", "not marked"), 7000, RecordedMoves(3, 1000))
        == "3 messages with recorded deliveries"
    )


def test_deliveries_after_the_settlement_are_also_seen_in_returns_and_reservations() -> None:
    rule = ("TX-8", "delivered again")
    assert (
        checked("messages", rule, 7, RecordedMoves(0, 2))
        == "2 messages with recorded deliveries, returns or reservations"
    )
    assert checked("messages", rule, 7, NONE) == "none: no deliveries, returns or reservations are recorded"
    assert checked("link termini", rule, 7, NONE) == "7 link termini"


def test_other_rules_are_checked_on_all_messages() -> None:
    assert checked("messages", ("ORD-1", "reordered"), 7000, NONE) == "7,000 messages"


def test_the_number_is_the_one_that_the_words_have() -> None:
    found = RecordedMoves(3, 5)
    assert counted("messages", ("ORD-3", "not marked"), 7, found) == 3
    assert counted("messages", ("TX-8", "delivered again"), 7, found) == 5
    assert counted("messages", ("ORD-1", "reordered"), 7, found) == 7
    assert counted("link termini", ("SET-10", "delivered without acquisition"), 7, NONE) == 0
    assert counted("link termini", ("SET-10", "delivered without acquisition"), 7, found) == 7

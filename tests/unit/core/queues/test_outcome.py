"""Outcomes: their numbers are part of the journal's format, and their names are RabbitMQ's."""

from __future__ import annotations

import pytest

from escrowmq.core.queues.outcome import DEATH_REASONS, Disposition, Outcome


def test_numbers_are_part_of_the_journals_format() -> None:
    assert {outcome.name: outcome.value for outcome in Outcome} == {
        "ACCEPTED": 1,
        "REJECTED": 2,
        "EXPIRED": 3,
        "DROPPED": 4,
        "PURGED": 5,
        "DELIVERY_LIMIT": 6,
        "DUE": 7,
        "COMMITTED": 8,
        "ROLLED_BACK": 9,
        "RECALLED": 10,
    }


def test_reasons_are_those_of_rabbitmq() -> None:
    assert DEATH_REASONS == {
        Outcome.REJECTED: "rejected",
        Outcome.EXPIRED: "expired",
        Outcome.DROPPED: "maxlen",
        Outcome.DELIVERY_LIMIT: "delivery_limit",
    }
    assert Outcome.ACCEPTED not in DEATH_REASONS
    assert Outcome.PURGED not in DEATH_REASONS


@pytest.mark.parametrize(
    ("disposition", "returns"),
    [
        (Disposition.ACCEPTED, False),
        (Disposition.REJECTED, False),
        (Disposition.RELEASED, True),
        (Disposition.MODIFIED, True),
    ],
)
def test_a_disposition_says_whether_the_message_returns(disposition: Disposition, returns: bool) -> None:
    assert disposition.returns == returns
    assert (disposition.name in Outcome.__members__) != returns, "only a message that leaves has an outcome"

"""What becomes of a delivery, and why an entry leaves a queue."""

from __future__ import annotations

from enum import IntEnum


class Outcome(IntEnum):
    """How an entry left its queue, as the journal records it. Numbers are part of the journal's format."""

    ACCEPTED = 1
    REJECTED = 2
    EXPIRED = 3
    DROPPED = 4
    PURGED = 5
    DELIVERY_LIMIT = 6


DEATH_REASONS: dict[Outcome, str] = {
    Outcome.REJECTED: "rejected",
    Outcome.EXPIRED: "expired",
    Outcome.DROPPED: "maxlen",
    Outcome.DELIVERY_LIMIT: "delivery_limit",
}

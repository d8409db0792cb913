"""The dispositions of deliveries, and the reasons why entries leave a queue."""

from __future__ import annotations

from enum import Enum, IntEnum, auto


class Disposition(Enum):
    """A client's answer to a delivery. ACCEPTED and REJECTED remove the message; the others return it to its queue."""

    ACCEPTED = auto()
    REJECTED = auto()
    """The message is dead-lettered if its queue has a dead-letter exchange, else dropped."""
    RELEASED = auto()
    """The message returns to its place. The delivery counts, but not as a failed one."""
    MODIFIED = auto()
    """The message returns to its place, and the delivery counts as failed. AMQP 0-9-1 calls this *requeue*."""

    @property
    def returns(self) -> bool:
        """Whether the message returns to its place."""
        return self in (Disposition.RELEASED, Disposition.MODIFIED)


class Outcome(IntEnum):
    """Why an entry left its queue, as the journal records it. Numbers are part of the journal's format."""

    ACCEPTED = 1
    REJECTED = 2
    EXPIRED = 3
    DROPPED = 4
    PURGED = 5
    DELIVERY_LIMIT = 6
    DUE = 7
    """It had been delayed, and went on to its queues."""
    COMMITTED = 8
    """It was a half message, and went on to its queue."""
    ROLLED_BACK = 9
    """It was a half message, and was never delivered."""
    RECALLED = 10
    """It had been delayed, and its sender recalled it before it was due."""


DEATH_REASONS: dict[Outcome, str] = {
    Outcome.REJECTED: "rejected",
    Outcome.EXPIRED: "expired",
    Outcome.DROPPED: "maxlen",
    Outcome.DELIVERY_LIMIT: "delivery_limit",
}

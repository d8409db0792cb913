"""What becomes of a delivery, and why an entry leaves a queue."""

from __future__ import annotations

from enum import Enum, IntEnum, auto


class Disposition(Enum):
    """What a client says of a delivery. The message is gone with the first two, and returns with the others."""

    ACCEPTED = auto()
    REJECTED = auto()
    """The message is dead-lettered, if its queue says where to."""
    RELEASED = auto()
    """It returns to its place. It has been delivered, and has not failed."""
    MODIFIED = auto()
    """It returns to its place, and the delivery counts as one that failed: what AMQP 0-9-1 requeues."""

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


DEATH_REASONS: dict[Outcome, str] = {
    Outcome.REJECTED: "rejected",
    Outcome.EXPIRED: "expired",
    Outcome.DROPPED: "maxlen",
    Outcome.DELIVERY_LIMIT: "delivery_limit",
}

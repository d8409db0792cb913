"""The conditions under which the core refuses a request. Each protocol translates them in one table."""

from __future__ import annotations

from enum import Enum


class Condition(Enum):
    """The reason why the core refused a request.

    The value is a short, stable name for logs. A protocol maps each member to its own code in one table
    (AMQP 0-9-1: `wire/amqp091/errors.py`).
    """

    NOT_FOUND = "not-found"
    ACCESS_REFUSED = "access-refused"
    RESOURCE_LOCKED = "resource-locked"
    PRECONDITION_FAILED = "precondition-failed"
    INVALID_ARGUMENT = "invalid-argument"
    NOT_ALLOWED = "not-allowed"
    NOT_IMPLEMENTED = "not-implemented"
    ILLEGAL_STATE = "illegal-state"
    COMMAND_INVALID = "command-invalid"
    LIMIT_EXCEEDED = "limit-exceeded"
    UNAVAILABLE = "unavailable"
    INTERNAL = "internal"


class BrokerError(Exception):
    """A request that the core refuses.

    The protocol translates `condition`. `text` is for people: what happened, where, and what to do.
    """

    __slots__ = ("condition", "text")

    def __init__(self, condition: Condition, text: str) -> None:
        super().__init__(f"{condition.value}: {text}")
        self.condition = condition
        self.text = text


def check_growth(scarcity: str, what: str) -> None:
    """Raises LIMIT_EXCEEDED if a resource is scarce: the rest of it is for operations that free some of it (FAIR-3).

    `scarcity` names the resource, and is empty if there is enough. `what` names the object that would be new.
    """
    if scarcity:
        raise BrokerError(
            Condition.LIMIT_EXCEEDED, f"no room for {what}: the broker is {scarcity}; try again when its alarm is over"
        )

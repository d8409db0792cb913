"""The interface through which a selector reads a message, and the names of its fields.

A name has a section in front: `header.priority`, `properties.message-id`, `application-properties.colour`. The fields
are those of AMQP 1.0 (part 3, section 3.2), whatever the protocol that published the message (MSG-3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

HEADER: Final = "header."
ANNOTATIONS: Final = "message-annotations."
PROPERTIES: Final = "properties."
APPLICATION: Final = "application-properties."

HEADER_FIELDS: Final = frozenset({"durable", "priority", "ttl", "first-acquirer", "delivery-count"})
PROPERTY_FIELDS: Final = frozenset(
    {
        "message-id",
        "user-id",
        "to",
        "subject",
        "reply-to",
        "correlation-id",
        "content-type",
        "content-encoding",
        "absolute-expiry-time",
        "creation-time",
        "group-id",
        "group-sequence",
        "reply-to-group-id",
    }
)


class MessageFields(Protocol):
    """One message. It is valid during the call of a matcher only."""

    def value(self, name: str) -> object | None:
        """Return the value of a field, or None if the message does not have it. Times are in milliseconds. It must not
        raise.
        """
        ...


Matcher: TypeAlias = Callable[[MessageFields], bool]
"""Returns whether a message passes a filter."""


class SelectorError(ValueError):
    """A filter is refused. The text says why, and where."""

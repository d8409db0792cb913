"""The fields of a stored message, for selectors, whatever the protocol that published it (MSG-3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from escrowmq.wire.formats import FORMATS
from escrowmq.wire.selectors.jms import DEFAULT_PRIORITY
from escrowmq.wire.selectors.values import Matcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.selection import Selector
    from escrowmq.wire.neutral import Neutral

_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "message-id": "message_id",
        "user-id": "user_id",
        "to": "to",
        "subject": "subject",
        "reply-to": "reply_to",
        "correlation-id": "correlation_id",
        "content-type": "content_type",
        "content-encoding": "content_encoding",
        "absolute-expiry-time": "expires",
        "creation-time": "created",
        "group-id": "group_id",
        "group-sequence": "group_sequence",
        "reply-to-group-id": "reply_to_group_id",
    }
)
"""The attribute of the neutral form for each field of the properties section."""


class StoredMessage:
    """One message of a queue (`MessageFields`). The content is read when a field of it is asked for."""

    __slots__ = ("_entry", "_found", "_queue")

    def __init__(self, queue: Queue, entry: Entry) -> None:
        self._queue = queue
        self._entry = entry
        self._found: Neutral | None = None

    @property
    def _neutral(self) -> Neutral:
        if self._found is None:
            envelope = self._entry.run.envelope
            self._found = FORMATS[envelope.protocol].neutral(envelope, self._entry.content)
        return self._found

    def value(self, name: str) -> object | None:
        """Return the value of a field, or None if the message does not have it."""
        section, _, field = name.partition(".")
        match section:
            case "application-properties":
                return self._neutral.properties.get(field)
            case "properties":
                attribute = _PROPERTIES.get(field)
                return None if attribute is None else getattr(self._neutral, attribute)
            case "message-annotations":
                return self._neutral.annotations.get(field)
            case "header":
                header = _HEADER.get(field)
                return None if header is None else header(self)
        return None

    def _priority(self) -> object:
        priority = self._neutral.priority
        return DEFAULT_PRIORITY if priority is None else priority


_HEADER: Final[Mapping[str, Callable[[Any], object]]] = MappingProxyType(
    {
        "durable": lambda message: message._entry.run.envelope.durable,
        "priority": StoredMessage._priority,
        "ttl": lambda message: message._entry.run.envelope.ttl,
        "first-acquirer": lambda message: message._entry.deliveries == 0,
        "delivery-count": lambda message: message._queue.failures(message._entry),
    }
)


def selecting(matchers: Sequence[Matcher]) -> Selector:
    """Return a consumer's selector: a message must pass all `matchers`."""

    def selects(queue: Queue, entry: Entry) -> bool:
        message = StoredMessage(queue, entry)
        return all(matches(message) for matches in matchers)

    return selects

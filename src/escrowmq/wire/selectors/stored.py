"""The fields of a stored message, for selectors, whatever the protocol that published it (MSG-3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.publication import PROTOCOL
from escrowmq.wire.formats import FORMATS
from escrowmq.wire.selectors.jms import DEFAULT_PRIORITY
from escrowmq.wire.selectors.values import Matcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.admission import MessageFilter
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.selection import Selector
    from escrowmq.wire.amqp10.codec.sections import Layout
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


class _Sections:
    """The sections of a message of AMQP 1.0. Each is decoded when it is asked for, which is much faster than all."""

    __slots__ = ("_content", "_found", "_layout")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._layout: Layout | None = None
        self._found: dict[str, Mapping[Any, Any]] = {}

    def section(self, name: str) -> Mapping[Any, Any]:
        """Return a section as a map; a malformed one is empty."""
        found = self._found.get(name)
        if found is None:
            try:
                found = self._read(name)
            except CodecError:
                found = {}
            self._found[name] = found
        return found

    def _read(self, name: str) -> Mapping[Any, Any]:
        if self._layout is None:
            self._layout = sections.layout(self._content)
        layout = self._layout
        if name == "application-properties":
            return sections.read_map(self._content, layout.application_properties)
        if name == "message-annotations":
            return sections.read_map(self._content, layout.message_annotations)
        if layout.properties is None:
            return {}
        found = sections.properties(self._content)
        return {field: getattr(found, field.replace("-", "_")) for field in _PROPERTIES}


class _Translated:
    """The sections that a message of another protocol has in the neutral form."""

    __slots__ = ("_neutral",)

    def __init__(self, neutral: Neutral) -> None:
        self._neutral = neutral

    def section(self, name: str) -> Mapping[Any, Any]:
        """Return a section as a map."""
        if name == "application-properties":
            return self._neutral.properties
        if name == "message-annotations":
            return self._neutral.annotations
        return {field: getattr(self._neutral, attribute) for field, attribute in _PROPERTIES.items()}

    @property
    def priority(self) -> int:
        """The priority; publishers of AMQP 0-9-1 may set none."""
        priority = self._neutral.priority
        return DEFAULT_PRIORITY if priority is None else priority


class StoredMessage:
    """One message of a queue (`MessageFields`). The content is read when a field of it is asked for."""

    __slots__ = ("_entry", "_found", "_queue")

    def __init__(self, queue: Queue, entry: Entry) -> None:
        self._queue = queue
        self._entry = entry
        self._found: _Sections | _Translated | None = None

    @property
    def _content(self) -> _Sections | _Translated:
        if self._found is None:
            envelope, content = self._entry.run.envelope, self._entry.content
            if envelope.protocol == PROTOCOL:
                self._found = _Sections(content)
            else:
                self._found = _Translated(FORMATS[envelope.protocol].neutral(envelope, content))
        return self._found

    def value(self, name: str) -> object | None:
        """Return the value of a field, or None if the message does not have it."""
        section, _, field = name.partition(".")
        if section == "header":
            header = _HEADER.get(field)
            return None if header is None else header(self)
        if section in _SECTIONS:
            return self._content.section(section).get(field)
        return None

    def _priority(self) -> object:
        content = self._content
        return content.priority if isinstance(content, _Translated) else self._entry.run.envelope.priority


_SECTIONS: Final = frozenset({"properties", "application-properties", "message-annotations"})
_HEADER: Final[Mapping[str, Callable[[Any], object]]] = MappingProxyType(
    {
        "durable": lambda message: message._entry.run.envelope.durable,
        "priority": StoredMessage._priority,
        "ttl": lambda message: message._entry.run.envelope.ttl,
        "first-acquirer": lambda message: message._entry.deliveries == 0,
        "delivery-count": lambda message: message._queue.failures(message._entry),
    }
)


class _Fresh:
    """A message that is in no queue yet, in the part of an entry."""

    __slots__ = ("content", "envelope", "run")

    deliveries = 0

    def __init__(self, envelope: Envelope, content: bytes) -> None:
        self.run = self
        self.envelope = envelope
        self.content = content


class _NoQueue:
    """The queue of such a message."""

    @staticmethod
    def failures(_: object) -> int:
        """Return the number of failed deliveries."""
        return 0


def admitting(matchers: Sequence[Matcher]) -> MessageFilter:
    """Return the filter of a queue: a message must pass all `matchers` when it is routed."""
    no_queue: Any = _NoQueue()

    def admits(envelope: Envelope, content: bytes) -> bool:
        fresh: Any = _Fresh(envelope, content)
        message = StoredMessage(no_queue, fresh)
        return all(matches(message) for matches in matchers)

    return admits


def selecting(matchers: Sequence[Matcher]) -> Selector:
    """Return a consumer's selector: a message must pass all `matchers`."""

    def selects(queue: Queue, entry: Entry) -> bool:
        message = StoredMessage(queue, entry)
        return all(matches(message) for matches in matchers)

    return selects

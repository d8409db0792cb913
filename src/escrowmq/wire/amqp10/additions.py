"""The annotations that the broker adds to the deliveries of a link.

Messages of a stream carry their offset. Clients of RabbitMQ also expect the exchange and the routing key on every
message; the Python client fails on a message without annotations. Other deliveries are passed on as they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.wire.amqp10.annotations import annotated
from escrowmq.wire.amqp10.codec.encoding import encode
from escrowmq.wire.amqp10.codec.sections import split_head
from escrowmq.wire.amqp10.codec.types import Symbol, ULong
from escrowmq.wire.amqp10.publication import PROTOCOL
from escrowmq.wire.amqp10.translation import EXCHANGE, ROUTING_KEY

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue

STREAM_OFFSET: Final = "x-stream-offset"
_OFFSET: Final = encode(Symbol(STREAM_OFFSET))
_EXCHANGE: Final = encode(Symbol(EXCHANGE))
_ROUTING_KEY: Final = encode(Symbol(ROUTING_KEY))


class Additions:
    """The additions to messages of one queue: their offsets if it is a stream, their origin if that is asked for."""

    __slots__ = ("_added", "_envelope", "_origin", "_stream")

    def __init__(self, *, stream: bool, origin: bool) -> None:
        self._stream = stream
        self._origin = origin
        self._envelope: Envelope | None = None
        self._added: dict[bytes, bytes] = {}  # to all messages of this envelope

    def content_of(self, entry: Entry) -> bytes:
        """Return the content of a message of AMQP 1.0, with the additions."""
        return annotated(entry.content, self._of(entry))

    def to_payload(self, payload: bytes, entry: Entry) -> bytes:
        """Return the payload of a delivery with the additions. Translated messages and dead letters say already where
        they were published.
        """
        envelope = entry.run.envelope
        own = envelope.protocol == PROTOCOL and not envelope.deaths
        at = split_head(payload)[1]
        return payload[:at] + annotated(payload[at:], self._of(entry) if own else self._offset(entry))

    def _of(self, entry: Entry) -> dict[bytes, bytes]:
        envelope = entry.run.envelope
        if self._origin and envelope is not self._envelope:
            self._envelope = envelope
            self._added = {_EXCHANGE: _text(envelope.exchange), _ROUTING_KEY: _text(envelope.routing_key)}
        return self._added | self._offset(entry) if self._stream else self._added

    def _offset(self, entry: Entry) -> dict[bytes, bytes]:
        return {_OFFSET: encode(ULong(entry.position - 1))} if self._stream else {}


def _text(name: str) -> bytes:
    return encode(name.encode("utf-8", "replace").decode())


def additions_to(queue: Queue, *, origin: bool) -> Additions | None:
    """Return the additions to deliveries from `queue`; None if there are none."""
    return Additions(stream=queue.is_stream, origin=origin) if queue.is_stream or origin else None

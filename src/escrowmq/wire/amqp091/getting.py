"""basic.get: one channel's answers, built from templates. A polling client repeats the same method over and over."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.death import with_delivery_count
from escrowmq.wire.amqp091.delivery import CACHED, OWN_PROPERTIES, outgrown, parts_of, properties_room, view_of
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.frames import FRAME_END, FRAME_HEADER, FRAME_OVERHEAD, decode_method, method_frame
from escrowmq.wire.amqp091.keyed import routing_key_of
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp091.queue_methods import queue_named
from escrowmq.wire.outbox import LARGE

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.amqp091.channel import Channel
    from escrowmq.wire.amqp091.method import Method

RUN: Final = 8
"""The most gets of one client that are answered together before its output is checked again."""
_IDS: Final = struct.pack(">HH", spec.BasicGetOk.CLASS_ID, spec.BasicGetOk.METHOD_ID)
_TAG: Final = struct.Struct(">Q")
_COUNT: Final = struct.Struct(">I")
_BODY_SIZE: Final = struct.Struct(">Q")
_FRAME_SIZE: Final = struct.Struct(">I")


class Getting:
    """The last `basic.get` of a channel, its queue, and the parts of its answers.

    When the access rules have changed, the queue is looked up and the permission checked again.
    """

    __slots__ = (
        "_allowed",
        "_channel",
        "_deliveries",
        "_empty",
        "_envelope",
        "_getter",
        "_heads",
        "_inline",
        "_method",
        "_payload",
        "_queue",
        "_room",
        "_template",
        "label",
    )

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        frame_max = channel.connection.frame_max
        self._room = properties_room(frame_max) - OWN_PROPERTIES
        # The longest body that is copied between its frames.
        self._inline = min(frame_max - FRAME_OVERHEAD, LARGE - 1) if frame_max else LARGE - 1
        self.label = f"{channel.connection.label} channel {channel.number} get"
        self._payload = b""
        self._method: Method | None = None
        self._queue: Queue | None = None
        self._getter: Consumer | None = None  # referenced here, so that it is not created again for each get
        self._allowed = -1
        self._empty = method_frame(channel.number, spec.BasicGetEmpty())
        self._heads: dict[int, bytes] = {}
        # The envelope of the last answer, and the bytes before the tag, the message count, the body's size and the size
        # of its frame in answers with that envelope.
        self._envelope: Envelope | None = None
        self._deliveries = 0
        self._template = (b"", b"", b"", b"")

    def decode(self, payload: bytes) -> Method:
        """Return the method in `payload`, which usually equals the last one. Raises SyntaxFault."""
        if self._method is None or payload != self._payload:
            self._method = decode_method(payload)
            self._payload = payload
            self._queue = None
        return self._method

    def queue_of(self, method: spec.BasicGet) -> Queue:
        """Return the queue to read from. Raises SyntaxFault for a stream, and the same errors as `queue_named`."""
        version = self._channel.broker.access.version
        queue = self._queue
        if queue is not None and method is self._method and self._allowed == version and not queue.deleted:
            return queue
        queue = queue_named(self._channel, method.queue, Operation.GET)
        if queue.is_stream:
            raise SyntaxFault(codes.NOT_IMPLEMENTED, f"basic.get is not supported by stream queue '{queue.name}'")
        if method.queue:  # an empty name means the last declared queue, which changes
            self._queue, self._getter, self._allowed = queue, queue.getter, version
        return queue

    def answer(self, queue: Queue, first_tag: int, entries: list[Entry], missing: int) -> None:
        """Send `entries`, with tags counted from `first_tag`, then one empty answer for each message that was
        missing.
        """
        channel = self._channel
        number, connection = channel.number, channel.connection
        quorum = queue.options.queue_type == "quorum"  # each delivery has the number of earlier ones
        parts: list[bytes] = []
        head, flags, start, behind = self._template
        left = len(queue.order) + len(entries)
        for tag, entry in enumerate(entries, first_tag):
            left -= 1
            body = entry.content
            size = len(body)
            envelope = entry.run.envelope
            if (
                quorum
                or not 0 < size <= self._inline
                or envelope.protocol != PROTOCOL
                or (envelope.deaths and outgrown(envelope, self._room))
            ):
                if parts:
                    connection.put(number, b"".join(parts))
                    parts = []
                self._answer_single(tag, entry, left, quorum=quorum)
                continue
            if envelope is not self._envelope or entry.deliveries != self._deliveries:
                head, flags, start, behind = self._use(entry)
            parts += (
                head,
                _TAG.pack(tag),
                flags,
                _COUNT.pack(left),
                start,
                _BODY_SIZE.pack(size),
                behind,
                _FRAME_SIZE.pack(size),
                body,
                FRAME_END,
            )
        if missing:
            parts.append(self._empty * missing)
        if parts:
            connection.put(number, b"".join(parts), channel.broker.log.proof_lsn(0) if missing else 0)

    def _use(self, entry: Entry) -> tuple[bytes, bytes, bytes, bytes]:
        """Return the parts of answers with the envelope of `entry`."""
        self._envelope, self._deliveries = entry.run.envelope, entry.deliveries
        view = view_of(self._envelope)
        before, behind = view.pieces(self._channel.number, entry.deliveries > 0)
        end = 1 + len(view.address)
        template = self._head(len(view.address)), before[:end], before[end:], behind
        if len(behind) > CACHED:  # each channel would keep one
            self._envelope = None
        else:
            self._template = template
        return template

    def _head(self, address: int) -> bytes:
        """Frame header and payload up to the tag, for an address (exchange and routing key) of that length."""
        head = self._heads.get(address)
        if head is None:
            size = len(_IDS) + 8 + 1 + address + 4
            head = self._heads[address] = FRAME_HEADER.pack(codes.FRAME_METHOD, self._channel.number, size) + _IDS
        return head

    def _answer_single(self, tag: int, entry: Entry, left: int, *, quorum: bool) -> None:
        """An answer that needs its own frames: it is empty, large, or has its own properties."""
        envelope = entry.run.envelope
        properties, body = parts_of(envelope, entry.content, self._room)
        if quorum:
            properties = with_delivery_count(entry, properties)
        key = routing_key_of(envelope, entry.content)
        answer = spec.BasicGetOk(tag, entry.deliveries > 0, envelope.exchange, key, left)
        number = self._channel.number
        self._channel.connection.put_content(number, method_frame(number, answer), properties, body)

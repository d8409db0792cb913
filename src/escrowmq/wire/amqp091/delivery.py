"""Content frames for deliveries: everything but tag and body is built once and found again."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from escrowmq.core.message import Entry, Envelope
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.death import delivered_properties
from escrowmq.wire.amqp091.frames import (
    BASIC_CLASS,
    CONTENT_HEADER,
    FRAME_END,
    FRAME_HEADER,
    FRAME_OVERHEAD,
    content_frames,
)

_DELIVER: Final = 60
_TAG: Final = struct.Struct(">Q")
_IDS: Final = struct.Struct(">HH")
_TAILS: Final = 256

Properties = Callable[[Entry, bytes], bytes]


class View:
    """An envelope as AMQP 0-9-1 delivers it. Kept with the envelope.

    `tails` has what follows the delivery tag, up to the body, by (channel, body size, redelivered).
    """

    __slots__ = ("address", "properties", "tails")

    def __init__(self, envelope: Envelope) -> None:
        exchange, key = envelope.exchange.encode(), envelope.routing_key.encode()
        self.address = bytes((len(exchange),)) + exchange + bytes((len(key),)) + key
        self.properties = delivered_properties(envelope)
        self.tails: dict[tuple[int, int, bool], bytes] = {}

    def tail(self, channel: int, size: int, redelivered: bool) -> bytes:
        """What stands between tag and body of a delivery with one body frame."""
        key = (channel, size, redelivered)
        tail = self.tails.get(key)
        if tail is None:
            if len(self.tails) >= _TAILS:
                self.tails.clear()
            header = CONTENT_HEADER.pack(BASIC_CLASS, 0, size) + self.properties
            tail = self.tails[key] = b"".join(
                (
                    b"\x01" if redelivered else b"\x00",
                    self.address,
                    FRAME_END,
                    FRAME_HEADER.pack(codes.FRAME_HEADER, channel, len(header)),
                    header,
                    FRAME_END,
                    FRAME_HEADER.pack(codes.FRAME_BODY, channel, size),
                )
            )
        return tail


def view_of(envelope: Envelope) -> View:
    """The view that is kept with `envelope`."""
    view = envelope.view
    if view is None:
        view = envelope.view = View(envelope)
    assert isinstance(view, View)
    return view


class Deliveries:
    """Builds the deliveries to one consumer: `tag` is its consumer tag, `frame_max` the connection's.

    With `properties`, each entry has properties of its own (a stream's offset, a delivery count).
    """

    __slots__ = ("_channel", "_frame_max", "_heads", "_prefix", "_properties", "_room")

    def __init__(self, channel: int, tag: str, frame_max: int, properties: Properties | None = None) -> None:
        self._channel = channel
        name = tag.encode()
        self._prefix = _IDS.pack(BASIC_CLASS, _DELIVER) + bytes((len(name),)) + name
        self._frame_max = frame_max
        self._room = frame_max - FRAME_OVERHEAD if frame_max else 1 << 62
        self._properties = properties
        self._heads: dict[int, bytes] = {}

    def _head(self, address: int) -> bytes:
        """Frame header and payload up to the tag, for an address (exchange and routing key) of that length."""
        head = self._heads.get(address)
        if head is None:
            size = len(self._prefix) + 9 + address
            head = self._heads[address] = FRAME_HEADER.pack(codes.FRAME_METHOD, self._channel, size) + self._prefix
        return head

    def build(self, first_tag: int, entries: list[Entry]) -> bytes:
        """The frames of `entries`, tags counted from `first_tag`."""
        if self._properties is not None:
            return b"".join([self._single(first_tag + i, entry) for i, entry in enumerate(entries)])
        parts: list[bytes] = []
        append = parts.append
        pack, end = _TAG.pack, FRAME_END
        tag = first_tag
        envelope: Envelope | None = None
        size = -1
        redelivered = 0
        head = tail = b""
        for entry in entries:
            body = entry.body
            if entry.run.envelope is not envelope or len(body) != size or entry.deliveries != redelivered:
                envelope, size, redelivered = entry.run.envelope, len(body), entry.deliveries
                if not 0 < size <= self._room:
                    append(self._single(tag, entry))
                    tag += 1
                    envelope = None
                    continue
                view = envelope.view or view_of(envelope)
                head = self._head(len(view.address))
                tail = view.tail(self._channel, size, redelivered > 0)
            append(head)
            append(pack(tag))
            append(tail)
            append(body)
            append(end)
            tag += 1
        return b"".join(parts)

    def _single(self, tag: int, entry: Entry) -> bytes:
        """A delivery that is not like the others: empty, of many frames, or with properties of its own."""
        view = view_of(entry.run.envelope)
        properties = view.properties
        if self._properties is not None:
            properties = self._properties(entry, properties)
        redelivered = b"\x01" if entry.deliveries else b"\x00"
        method = self._head(len(view.address)) + _TAG.pack(tag) + redelivered + view.address + FRAME_END
        return method + content_frames(self._channel, properties, entry.body, self._frame_max)

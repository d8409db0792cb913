"""Content frames of deliveries. Everything but the tag and the body is built once and then reused."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091 import codes, keyed
from escrowmq.wire.amqp091.death import delivered_properties, history_of, shortened, with_history
from escrowmq.wire.amqp091.frames import (
    BASIC_CLASS,
    CONTENT_HEADER_SIZE,
    FRAME_END,
    FRAME_HEADER,
    FRAME_OVERHEAD,
    content_pieces,
)
from escrowmq.wire.amqp091.keyed import KEYED
from escrowmq.wire.amqp091.packed import CHANNEL, PACKED, readdressed, unpack
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp091.translation import fitted
from escrowmq.wire.formats import translated
from escrowmq.wire.outbox import LARGE, Piece

if TYPE_CHECKING:
    from escrowmq.core.queues.consumer import Consumer

_OWN: Final = frozenset((PROTOCOL, PACKED, KEYED))
_DELIVER: Final = 60
OWN_PROPERTIES: Final = 64  # bytes that an entry's own properties add at most
_TAG: Final = struct.Struct(">Q")
_IDS: Final = struct.Struct(">HH")
_CONTENT: Final = struct.Struct(">BBHIHH")  # end of the method frame; header frame up to the body's size
_BODY: Final = struct.Struct(">BBH")  # end of the header frame; body frame up to its size
_BODY_SIZE: Final = struct.Struct(">I")
_START: Final = struct.Struct(">BBH")  # end of the method frame; type and channel of the header frame

Properties = Callable[[Entry, bytes], bytes]


CACHED: Final = 1024
"""Bytes of properties up to which they are kept in the form that a channel sends."""
_MOST_CHANNELS: Final = 64  # for which they are kept


class View:
    """An envelope in the form in which AMQP 0-9-1 delivers it. It is kept with the envelope.

    `around` has two byte strings for each (channel, redelivered). For plain content, they are the bytes between the
    delivery tag and the body's size, and those between the body's size and the size of the body frame. For packed
    and keyed content, they are the bytes before the content, and the channel number if another one has to be put into
    it. `address` has exchange and routing key, or the exchange alone if the contents are keyed. Content that is
    `packed` has properties of its own. It is `whole` if it can be sent as it is; content of other protocols is
    translated.
    """

    __slots__ = ("_short", "address", "around", "history", "keyed", "packed", "properties", "whole")

    def __init__(self, envelope: Envelope) -> None:
        exchange, key = envelope.exchange.encode(), keyed.deliverable_key(envelope.routing_key).encode()
        own = envelope.protocol in _OWN
        self.keyed = envelope.protocol == KEYED
        self.address = bytes((len(exchange),)) + exchange + (b"" if self.keyed else bytes((len(key),)) + key)
        self.packed = envelope.protocol != PROTOCOL
        self.whole = self.packed and own and not envelope.deaths
        self.properties = b"" if self.packed else delivered_properties(envelope)
        self.history = history_of(envelope) if self.packed and own and envelope.deaths else b""
        self._short: tuple[int, bytes] | None = None
        self.around: dict[tuple[int, bool], tuple[bytes, bytes]] = {}

    def pieces(self, channel: int, redelivered: bool) -> tuple[bytes, bytes]:
        """Return the entry of `around` for a delivery with one body frame."""
        key = (channel, redelivered)
        pieces = self.around.get(key)
        if pieces is None:
            pieces = self._pieces(channel, redelivered)
            if len(self.properties) <= CACHED:  # longer ones would take much memory if each channel had its own
                if len(self.around) >= _MOST_CHANNELS:
                    self.around.clear()
                self.around[key] = pieces
        return pieces

    def _pieces(self, channel: int, redelivered: bool) -> tuple[bytes, bytes]:
        start = (b"\x01" if redelivered else b"\x00") + self.address
        if self.packed:
            if not self.keyed:
                start += _START.pack(0xCE, 2, channel)
            return start, b"" if channel == CHANNEL else channel.to_bytes(2, "big")
        size = CONTENT_HEADER_SIZE + len(self.properties)
        return (
            start + _CONTENT.pack(codes.FRAME_END, codes.FRAME_HEADER, channel, size, BASIC_CLASS, 0),
            self.properties + _BODY.pack(codes.FRAME_END, codes.FRAME_BODY, channel),
        )

    def fitting(self, room: int) -> bytes:
        """Return the properties of a dead letter with at most `room` bytes, as far as `death.shortened` can do that."""
        if self._short is None or self._short[0] != room:
            self._short = room, shortened(self.properties, room)
        return self._short[1]


def properties_room(frame_max: int) -> int:
    """Return how many bytes of properties fit into a header frame. A `frame_max` of 0 is no limit."""
    return frame_max - FRAME_OVERHEAD - CONTENT_HEADER_SIZE if frame_max else 1 << 62


def outgrown(envelope: Envelope, room: int) -> bool:
    """Return whether a dead letter's properties, which are in the envelope, have more than `room` bytes."""
    return bool(envelope.deaths) and len(view_of(envelope).properties) > room


def view_of(envelope: Envelope) -> View:
    """Return the view of `envelope`, which is kept with it, whatever protocol it arrived over."""
    view = envelope.view
    if view.__class__ is View:
        return view
    if envelope.protocol in _OWN:
        view = envelope.view = View(envelope)
    else:
        view = envelope.foreign = envelope.foreign or View(envelope)
    assert isinstance(view, View)
    return view


def parts_of(envelope: Envelope, content: bytes, room: int = 1 << 62) -> tuple[bytes, bytes]:
    """Properties, as consumers receive them, and body of a message, whatever protocol it arrived over. The properties
    of a dead letter are shortened to `room` bytes.
    """
    if envelope.protocol == KEYED:
        return unpack(keyed.packed_part(content))
    if envelope.protocol == PROTOCOL:
        view = view_of(envelope)
        return view.fitting(room) if outgrown(envelope, room) else view.properties, content
    if envelope.protocol != PACKED:
        own, body = translated(envelope, content, PROTOCOL)
        properties = delivered_properties(own)
        return fitted(shortened(properties, room) if own.deaths else properties, room), body
    properties, body = unpack(content)
    if envelope.deaths:
        properties = with_history(envelope, properties, view_of(envelope).history)
        if len(properties) > room:
            properties = shortened(properties, room)
    return properties, body


class _HeadsBySize(dict[int, bytes]):
    """Frame header and payload up to the tag, by the length of an address (exchange and routing key)."""

    __slots__ = ("_channel", "_prefix")

    def __init__(self, channel: int, tag: str) -> None:
        name = tag.encode()
        self._channel = channel
        self._prefix = _IDS.pack(BASIC_CLASS, _DELIVER) + bytes((len(name),)) + name

    def __missing__(self, address: int) -> bytes:
        size = len(self._prefix) + 9 + address
        head = self[address] = FRAME_HEADER.pack(codes.FRAME_METHOD, self._channel, size) + self._prefix
        return head


class Deliveries:
    """Builds the deliveries to one consumer. `tag` is its consumer tag, `frame_max` that of the connection.

    With `properties`, each entry has its own properties, for example a stream's offset or a delivery count.
    """

    __slots__ = ("_channel", "_frame_max", "_heads", "_inline", "_properties", "_properties_room", "_room")

    def __init__(self, channel: int, tag: str, frame_max: int, properties: Properties | None = None) -> None:
        self._channel = channel
        self._frame_max = frame_max
        # The longest body that fits into one frame, and the longest body that is copied between its frames; 0 for none.
        self._room = (frame_max - FRAME_OVERHEAD if frame_max else 1 << 62) if properties is None else 0
        self._inline = min(self._room, LARGE - 1)
        self._properties_room = properties_room(frame_max) - (OWN_PROPERTIES if properties is not None else 0)
        self._properties = properties
        self._heads = _HeadsBySize(channel, tag)

    def build(self, first_tag: int, entries: list[Entry]) -> list[Piece]:
        """Return the frames of `entries`, with tags counted from `first_tag`: one piece, or several if there are large
        bodies.
        """
        if len(entries) == 1:
            parts_alone = self.alone(first_tag, entries[0])
            if parts_alone:
                return [b"".join(parts_alone)]
        pieces: list[Piece] = []
        # `parts.append` written out is faster: the interpreter has a special instruction for it.
        parts: list[Piece] = []
        pack, pack_size, end = _TAG.pack, _BODY_SIZE.pack, FRAME_END
        channel, inline, room, heads = self._channel, self._inline, self._room, self._heads
        readdress = readdressed
        tag = first_tag
        envelope: Envelope | None = None
        size = -1
        redelivered = length = 0  # `length` is that of the address up to a routing key in the content
        head = before = behind = tail = b""
        packed = alone = False
        for entry in entries:
            body = entry.content
            if entry.run.envelope is not envelope or entry.deliveries != redelivered:
                envelope, redelivered = entry.run.envelope, entry.deliveries
                view = envelope.view if envelope.view.__class__ is View else view_of(envelope)
                length = len(view.address) + 1 if view.keyed else 0
                head = heads[len(view.address)]
                readdress = keyed.readdressed if view.keyed else readdressed
                before, behind = view.pieces(channel, redelivered > 0)
                # Whether the properties cannot be sent as they are, unless the content is whole.
                alone = view.packed or (bool(envelope.deaths) and outgrown(envelope, self._properties_room))
                packed = view.whole
                size = -1
            if packed and len(body) <= inline:
                parts.append(heads[length + body[0]] if length else head)
                parts.append(pack(tag))
                parts.append(before)
                parts.append(readdress(body, behind) if behind else body)
                tag += 1
                continue
            if len(body) != size:
                size = len(body)
                if alone:
                    parts += self._single(tag, entry)
                    tag += 1
                    size = -1
                    continue
                if not 0 < size <= inline:
                    if 0 < size <= room:  # a large body in one frame
                        parts += (head, pack(tag), before, pack(size), behind, pack_size(size))
                        pieces += (b"".join(parts), body)
                        parts = [end]
                    elif size < LARGE:
                        parts += self._single(tag, entry)
                    else:
                        pieces.append(b"".join(parts))
                        pieces += self._single(tag, entry)
                        parts = []
                    tag += 1
                    size = -1
                    continue
                tail = before + pack(size) + behind + pack_size(size)
            parts.append(head)
            parts.append(pack(tag))
            parts.append(tail)
            parts.append(body)
            parts.append(end)
            tag += 1
        pieces.append(b"".join(parts))
        return pieces

    def alone(self, tag: int, entry: Entry) -> tuple[bytes, ...]:
        """Return the parts of the frames of a single delivery, found in fewer steps than by `build`; empty if that is
        impossible.
        """
        envelope, body = entry.run.envelope, entry.content
        size = len(body)
        if envelope.protocol != PROTOCOL or not 0 < size <= self._inline:
            return ()
        if envelope.deaths and outgrown(envelope, self._properties_room):
            return ()
        view = envelope.view or view_of(envelope)
        before, behind = view.pieces(self._channel, entry.deliveries > 0)
        head = self._heads[len(view.address)]
        return head, _TAG.pack(tag), before, _TAG.pack(size), behind, _BODY_SIZE.pack(size), body, FRAME_END

    def _single(self, tag: int, entry: Entry) -> list[Piece]:
        """Return a delivery that needs frames of its own: it is empty, large, divided, or has its own properties."""
        view = view_of(entry.run.envelope)
        properties, body = parts_of(entry.run.envelope, entry.content, self._properties_room)
        if self._properties is not None:
            properties = self._properties(entry, properties)
        redelivered = b"\x01" if entry.deliveries else b"\x00"
        address = view.address + entry.content[: 1 + entry.content[0]] if view.keyed else view.address
        method = self._heads[len(address)] + _TAG.pack(tag) + redelivered + address + FRAME_END
        return content_pieces(method, self._channel, properties, body, self._frame_max)


def build_each(first_tag: int, deliveries: list[tuple[Consumer, list[Entry]]]) -> list[Piece]:
    """Do `Deliveries.build` for several consumers of one channel, whose deliveries have consecutive tags."""
    pieces: list[Piece] = []
    tag, large = first_tag, False
    for consumer, entries in deliveries:
        builder: Deliveries = consumer.view
        alone = builder.alone(tag, entries[0]) if len(entries) == 1 else ()
        if alone:
            pieces += alone
        else:
            built = builder.build(tag, entries)
            large = large or len(built) > 1
            pieces += built
        tag += len(entries)
    return pieces if large else [b"".join(pieces)]

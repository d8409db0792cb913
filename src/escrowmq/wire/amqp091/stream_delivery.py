"""Deliveries from a stream, which name the offset of each message. They are assembled from parts that do not change."""

from __future__ import annotations

import struct
from typing import Final

from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.delivery import Deliveries, parts_of, view_of
from escrowmq.wire.amqp091.frames import BASIC_CLASS, CONTENT_HEADER_SIZE, FRAME_END, FRAME_OVERHEAD
from escrowmq.wire.amqp091.properties import scan, with_header
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp091.table import Long
from escrowmq.wire.outbox import LARGE, Piece

NAME: Final = "x-stream-offset"

_HEADERS: Final = 0x2000
_FLAGS: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">q")
_TAG: Final = struct.Struct(">Q")
_SIZE: Final = struct.Struct(">Q")
_HEAD: Final = struct.Struct(">BBHIHH")  # end of the method frame; header frame up to the body's size
_BODY: Final = struct.Struct(">BBHI")  # end of the header frame; body frame up to its payload
_FIELD: Final = bytes((len(NAME),)) + NAME.encode() + b"l"
_FIELD_SIZE: Final = len(_FIELD) + _OFFSET.size


def around_offset(props: bytes) -> tuple[bytes, bytes]:
    """Return the octets of a delivery's properties before and behind its offset. `props` are the message's own."""
    flags = int(_FLAGS.unpack_from(props)[0])
    at = 2
    for flag in (0x8000, 0x4000):  # content-type, content-encoding
        if flags & flag:
            at += 1 + props[at]
    if not flags & _HEADERS:
        return b"".join((_FLAGS.pack(flags | _HEADERS), props[2:at], _LENGTH.pack(_FIELD_SIZE), _FIELD)), props[at:]
    end = at + 4 + int(_LENGTH.unpack_from(props, at)[0])
    if props.find(NAME.encode(), at, end) >= 0:  # perhaps in a value
        own = with_header(props, scan(props), NAME, Long(0))
        end = at + 4 + int(_LENGTH.unpack_from(own, at)[0])
        return own[: end - _OFFSET.size], own[end:]
    return b"".join((props[:at], _LENGTH.pack(end - at - 4 + _FIELD_SIZE), props[at + 4 : end], _FIELD)), props[end:]


def with_stream_offset(entry: Entry, props: bytes) -> bytes:
    """Return the properties of a delivery from a stream, with its offset. Clients count offsets from 0."""
    return _OFFSET.pack(entry.position - 1).join(around_offset(props))


class StreamDeliveries(Deliveries):
    """Builds the deliveries from a stream to one consumer."""

    __slots__ = ("_most",)

    def __init__(self, channel: int, tag: str, frame_max: int) -> None:
        super().__init__(channel, tag, frame_max, with_stream_offset)
        self._most = min(frame_max - FRAME_OVERHEAD, LARGE - 1) if frame_max else LARGE - 1

    def build(self, first_tag: int, entries: list[Entry]) -> list[Piece]:
        pieces: list[Piece] = []
        parts: list[Piece] = []
        pack, pack_offset, most, channel = _TAG.pack, _OFFSET.pack, self._most, self._channel
        envelope: Envelope | None = None
        redelivered, size, plain, keyed = 0, -1, False, False
        head = start = behind = exchange = address = first = last = b""
        for tag, entry in enumerate(entries, first_tag):
            body = entry.content
            if entry.run.envelope is not envelope or entry.deliveries != redelivered:
                envelope, redelivered, size = entry.run.envelope, entry.deliveries, -1
                view = view_of(envelope)
                exchange = address = view.address
                head, keyed = self._heads[len(address)], view.keyed
                plain = envelope.protocol == PROTOCOL and not envelope.deaths
                if plain:
                    start, behind = around_offset(view.properties)
            if not plain:
                if keyed:
                    address = exchange + body[: 1 + body[0]]
                    head = self._heads[len(address)]
                props, body = parts_of(envelope, body, self._properties_room)
                start, behind = around_offset(props)
                size = -1
            if not 0 < len(body) <= most:
                pieces.append(b"".join(parts))
                pieces += self._single(tag, entry)
                parts = []
                continue
            if len(body) != size:
                size = len(body)
                length = CONTENT_HEADER_SIZE + len(start) + _OFFSET.size + len(behind)
                frame = _HEAD.pack(codes.FRAME_END, codes.FRAME_HEADER, channel, length, BASIC_CLASS, 0)
                first = b"".join((b"\x01" if redelivered else b"\x00", address, frame, _SIZE.pack(size), start))
                last = behind + _BODY.pack(codes.FRAME_END, codes.FRAME_BODY, channel, size)
            parts += (head, pack(tag), first, pack_offset(entry.position - 1), last, body, FRAME_END)
        pieces.append(b"".join(parts))
        return pieces

"""Frames of AMQP 0-9-1 (section 4.2.3): constants, compiled layouts, building and parsing.

    octet 0: type   1..2: channel   3..6: payload size   7..: payload   last: 0xCE

A connection's endpoint reads frames in its own loop with these layouts. `next_frame` does the same in one call, for
clients and tools that are not on a hot path. There is no frame object.
"""

from __future__ import annotations

import struct
from typing import Final

from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.spec import METHODS
from escrowmq.wire.outbox import Piece

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
"""The header with which a client opens a connection."""

FRAME_HEADER: Final = struct.Struct(">BHI")
"""Type, channel, payload size."""
FRAME_HEADER_SIZE: Final = 7
FRAME_OVERHEAD: Final = 8
"""The octets of a frame that are not payload. `frame_max` includes them."""
FRAME_END: Final = bytes((codes.FRAME_END,))

METHOD_INDEX: Final = struct.Struct(">I")
"""Class id and method id at the start of a method payload, as one number (`Method.INDEX`)."""
METHOD_FRAME_HEADER: Final = struct.Struct(">BHII")
"""Frame header and method index."""
CONTENT_HEADER: Final = struct.Struct(">HHQ")
"""Class id, weight (zero), body size: the first 12 octets of a content header's payload; properties follow."""
CONTENT_HEADER_SIZE: Final = 12
CONTENT_FRAME_HEADER: Final = struct.Struct(">BHIHHQ")
"""Frame header and content header."""

BASIC_CLASS: Final = 60
HEARTBEAT: Final = FRAME_HEADER.pack(codes.FRAME_HEARTBEAT, 0, 0) + FRAME_END
"""The only valid heartbeat frame."""

_TYPES: Final = frozenset({codes.FRAME_METHOD, codes.FRAME_HEADER, codes.FRAME_BODY, codes.FRAME_HEARTBEAT})


# ---- building ----


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """Return a frame of any type. Raises ValueError if `channel` is not 0 to 65535."""
    try:
        return FRAME_HEADER.pack(kind, channel, len(payload)) + payload + FRAME_END
    except struct.error as error:
        raise ValueError(f"frame of type {kind} on channel {channel}: {error}") from None


def method_frame(channel: int, method: Method) -> bytes:
    """Return a method frame. Raises ValueError or TypeError if an argument does not fit (`Method.encode`)."""
    return frame(codes.FRAME_METHOD, channel, method.encode())


def header_frame(channel: int, props: bytes, body_size: int) -> bytes:
    """Return the content header frame of a message with these properties (see `properties`) and this body size in
    octets.
    """
    return frame(codes.FRAME_HEADER, channel, CONTENT_HEADER.pack(BASIC_CLASS, 0, body_size) + props)


def body_frames(channel: int, body: bytes, frame_max: int) -> bytes:
    """Return the body frames; none for an empty body. No frame exceeds `frame_max` octets (0: no limit), overhead
    included.

    Raises ValueError if `frame_max` leaves no room for a payload.
    """
    room = frame_max - FRAME_OVERHEAD if frame_max else len(body)
    if len(body) <= room:
        return frame(codes.FRAME_BODY, channel, body) if body else b""
    if room <= 0:
        raise ValueError(f"frame_max {frame_max} leaves no room for a payload")
    pieces = range(0, len(body), room)
    return b"".join([frame(codes.FRAME_BODY, channel, body[at : at + room]) for at in pieces])


def content_frames(channel: int, props: bytes, body: bytes, frame_max: int) -> bytes:
    """Content header and body frames, which follow a method with content."""
    return header_frame(channel, props, len(body)) + body_frames(channel, body, frame_max)


def content_pieces(head: bytes, channel: int, props: bytes, body: bytes, frame_max: int) -> list[Piece]:
    """`head` (the method frame), content header and body frames in pieces. A large body is not copied.

    `frame_max` has the same meaning as in `body_frames`.
    """
    room = frame_max - FRAME_OVERHEAD if frame_max else len(body)
    head += header_frame(channel, props, len(body))
    if not body:
        return [head]
    if len(body) <= room:
        return [head + FRAME_HEADER.pack(codes.FRAME_BODY, channel, len(body)), body, FRAME_END]
    view = memoryview(body)
    pieces: list[Piece] = []
    for at in range(0, len(body), room):
        part = view[at : at + room]
        pieces += [head + FRAME_HEADER.pack(codes.FRAME_BODY, channel, len(part)), part]
        head = FRAME_END
    return [*pieces, FRAME_END]


# ---- parsing ----


def next_frame(buf: bytes, at: int, frame_max: int) -> tuple[int, int, bytes, int] | None:
    """(type, channel, payload, start of the next frame) of the frame at `at`; None while it is incomplete.

    `frame_max` is in octets, 0 for no limit. Raises SyntaxFault (501) if the frame is too long, has an unknown type, is
    a heartbeat with a channel or a payload, or does not end with 0xCE.
    """
    if len(buf) - at < FRAME_HEADER_SIZE:
        return None
    kind, channel, size = FRAME_HEADER.unpack_from(buf, at)
    if kind not in _TYPES:
        raise SyntaxFault(codes.FRAME_ERROR, f"unknown frame type {kind}")
    if frame_max and size > frame_max - FRAME_OVERHEAD:
        raise SyntaxFault(codes.FRAME_ERROR, f"frame of {size + FRAME_OVERHEAD} octets, {frame_max} were agreed")
    if kind == codes.FRAME_HEARTBEAT and (channel or size):
        raise SyntaxFault(codes.FRAME_ERROR, "heartbeat frame with a channel or a payload")
    start = at + FRAME_HEADER_SIZE
    end = start + size
    if len(buf) <= end:
        return None
    if buf[end] != codes.FRAME_END:
        raise SyntaxFault(codes.FRAME_ERROR, f"frame ends with 0x{buf[end]:02x}, not with 0xce")
    return kind, channel, buf[start:end], end + 1


def frame_size(buf: bytes, at: int) -> int:
    """Return the octets of the frame at `at`, overhead included. The frame header must be complete."""
    return FRAME_OVERHEAD + int(FRAME_HEADER.unpack_from(buf, at)[2])


def remainder(buf: bytes) -> bytes:
    """Return the bytes after the last complete frame in `buf`, which begins with a frame; empty if the bytes are not
    frames.
    """
    at, end = 0, len(buf)
    if buf.startswith(PROTOCOL_HEADER):
        at = len(PROTOCOL_HEADER)
    while end - at >= FRAME_OVERHEAD:
        stop = at + FRAME_HEADER_SIZE + int(FRAME_HEADER.unpack_from(buf, at)[2])
        if stop >= end:
            break
        if buf[stop] != codes.FRAME_END:
            return b""
        at = stop + 1
    return buf[at:]


def decode_method(payload: bytes) -> Method:
    """Return the method in a method frame's payload.

    Raises SyntaxFault: 502 if it is malformed, 540 if the class or method is unknown.
    """
    if len(payload) < METHOD_INDEX.size:
        raise SyntaxFault(codes.SYNTAX_ERROR, "method frame without class and method id")
    (index,) = METHOD_INDEX.unpack_from(payload)
    kind = METHODS.get(index)
    if kind is None:
        raise SyntaxFault(codes.NOT_IMPLEMENTED, f"unknown method {index & 0xFFFF} of class {index >> 16}")
    return kind.decode(payload)


def decode_header(payload: bytes) -> tuple[int, bytes]:
    """(body size, raw properties) of a content header frame's payload. The properties are not checked.

    Raises SyntaxFault: 502 if it is too short, 501 for a class that is not basic or a weight that is not zero.
    """
    if len(payload) < CONTENT_HEADER_SIZE:
        raise SyntaxFault(codes.SYNTAX_ERROR, "content header: too short")
    class_id, weight, body_size = CONTENT_HEADER.unpack_from(payload)
    if class_id != BASIC_CLASS or weight:
        raise SyntaxFault(codes.FRAME_ERROR, f"content header of class {class_id}, weight {weight}")
    return body_size, payload[CONTENT_HEADER_SIZE:]

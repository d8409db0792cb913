"""Content of AMQP 0-9-1: the publishes of the load tool, and the ids in its deliveries.

The specification is sections 4.2.5 (property list) and 4.2.6 (header and body frames).
"""

from __future__ import annotations

from struct import pack, unpack_from
from typing import Final, NamedTuple

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.messages import LoadMessage

HEADER_FIXED_SIZE: Final = 14
"""Class, weight, body size and flags of a content header."""
_HEADERS: Final = 0x2000
_DELIVERY_MODE: Final = 0x1000
_PRIORITY: Final = 0x0800
_CORRELATION_ID: Final = 0x0400
_REPLY_TO: Final = 0x0200
_EXPIRATION: Final = 0x0100
_MESSAGE_ID: Final = 0x0080
_TIMESTAMP: Final = 0x0040


class Ids(NamedTuple):
    """The properties that identify a message and its answer; None where absent."""

    message_id: str | None
    correlation_id: str | None
    reply_to: str | None


def properties(message: LoadMessage, delivery_mode: int, reply_to: str | None = None) -> bytes:
    """Flags and property list of a message."""
    fields: list[tuple[int, bytes]] = []
    if message.headers is not None:
        fields.append((_HEADERS, frames.table({**message.headers})))
    fields.append((_DELIVERY_MODE, bytes((delivery_mode,))))
    if message.priority is not None:
        fields.append((_PRIORITY, bytes((message.priority,))))
    for flag, text in (
        (_CORRELATION_ID, message.correlation_id),
        (_REPLY_TO, reply_to),
        (_MESSAGE_ID, message.message_id),
    ):
        if text is not None:
            fields.append((flag, frames.shortstr(text)))
    if message.timestamp is not None:
        fields.append((_TIMESTAMP, pack(">Q", message.timestamp)))
    return pack(">H", sum(flag for flag, _ in fields)) + b"".join(field for _, field in fields)


def publish_head(channel: int, exchange: str, routing_key: str, body_size: int, properties: bytes) -> bytes:
    """basic.publish and the content header: everything of a publish except its body frames."""
    names = frames.shortstr(exchange) + frames.shortstr(routing_key)
    header = pack(">HHQ", 60, 0, body_size) + properties
    return frames.method(channel, frames.BASIC_PUBLISH, b"\0\0" + names + b"\0") + frames.frame(
        frames.HEADER, channel, header
    )


def body_frames(channel: int, body: bytes, frame_max: int) -> bytes:
    """Return the body in as few frames as `frame_max` (0: no limit) allows."""
    piece = frame_max - frames.FRAME_OVERHEAD if frame_max else max(len(body), 1)
    return b"".join(frames.frame(frames.BODY, channel, body[at : at + piece]) for at in range(0, len(body), piece))


def ids_of(header: bytes) -> Ids:
    """Return the ids in the payload of a content header. Later properties are not read."""
    (flags,) = unpack_from(">H", header, 12)
    at = HEADER_FIXED_SIZE
    for flag in (0x8000, 0x4000):  # content type, content encoding
        if flags & flag:
            at += 1 + header[at]
    if flags & _HEADERS:
        at += 4 + int(unpack_from(">I", header, at)[0])
    at += bool(flags & _DELIVERY_MODE) + bool(flags & _PRIORITY)
    texts: list[str | None] = []
    for flag in (_CORRELATION_ID, _REPLY_TO, _EXPIRATION, _MESSAGE_ID):
        text = None
        if flags & flag:
            end = at + 1 + header[at]
            text = header[at + 1 : end].decode("utf-8", "replace")
            at = end
        texts.append(text)
    correlation_id, reply_to, _, message_id = texts
    return Ids(message_id, correlation_id, reply_to)

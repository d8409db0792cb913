"""Stored messages in the form in which clients of classic remoting receive them, one after the other in a body."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.wire.formats import translated
from escrowmq.wire.rocketmq.content import (
    BORN_HOST_V6,
    PROTOCOL,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    MessageContent,
    unpack,
)

if TYPE_CHECKING:
    from escrowmq.core.messages.envelope import Envelope

LONGEST_PROPERTIES: Final = 32_767
MAGIC: Final = -626843481
_MAGIC_LONG_TOPIC: Final = -626843477
SHORT_TOPIC: Final = 127
_HEAD: Final = struct.Struct(">iiIiiqqiq")  # size, magic, checksum, queue, flag, offset, address, system flag, born
_PORT: Final = struct.Struct(">i")
_STORED: Final = struct.Struct(">q")
_TAIL: Final = struct.Struct(">iqi")  # failed deliveries, prepared offset, length of the body


class StoredAt(NamedTuple):
    """The facts about one delivery that the content does not have.

    `offset` is the message's number in its queue, from 0, and `address` the number of 64 bits that finds it again
    (`wire.rocketmq.ids`). `stored_ms` is the time of its arrival. The host has 4 or 16 octets.
    """

    topic: str
    queue: int
    offset: int
    address: int
    stored_ms: int
    host: bytes
    port: int


def encode_stored(content: MessageContent, delivered: StoredAt, *, prepared: int = 0) -> bytes:
    """Return one message. `prepared` is the offset of the half message from which it comes."""
    born = content.host or bytes(4)
    flags = content.system_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    flags |= (BORN_HOST_V6 if len(born) > 4 else 0) | (STORE_HOST_V6 if len(delivered.host) > 4 else 0)
    topic = delivered.topic.encode()
    short = len(topic) <= SHORT_TOPIC
    tail = b"".join(
        (
            born,
            _PORT.pack(content.port),
            _STORED.pack(delivered.stored_ms),
            delivered.host,
            _PORT.pack(delivered.port),
            _TAIL.pack(content.failures, prepared, len(content.body)),
            content.body,
            len(topic).to_bytes(1 if short else 2, "big"),
            topic,
            len(content.properties).to_bytes(2, "big"),
            content.properties,
        )
    )
    head = _HEAD.pack(
        _HEAD.size + len(tail),
        MAGIC if short else _MAGIC_LONG_TOPIC,
        zlib.crc32(content.body) & 0x7FFFFFFF,
        delivered.queue,
        content.flag,
        delivered.offset,
        delivered.address,
        flags,
        content.born_ms,
    )
    return head + tail


def content_for(envelope: Envelope, content: bytes) -> MessageContent:
    """Return the content of a stored message of any protocol, as clients of RocketMQ receive it."""
    if envelope.protocol != PROTOCOL:
        content = translated(envelope, content, PROTOCOL)[1]
    return unpack(content)


def without_transaction(content: MessageContent) -> MessageContent:
    """Return a half message's content as a producer is to check it: its state is not decided."""
    return content._replace(system_flag=content.system_flag & ~TRANSACTION_MASK)


class BatchedMessage(NamedTuple):
    """One message of a batch."""

    flag: int
    body: bytes
    properties: bytes


class BatchError(ValueError):
    """A batch is malformed. The text says why."""


_PART: Final = struct.Struct(">iiiii")  # size, magic, checksum, flag, length of the body


def decode_batch(body: bytes, most: int) -> list[BatchedMessage]:
    """Return the messages in the body of a batch send. Raises BatchError for a malformed batch, or more than `most`."""
    parts: list[BatchedMessage] = []
    at, total, start_of_body = 0, len(body), _PART.size
    unpack = _PART.unpack_from
    while at < total:
        try:
            size, _, _, flag, length = unpack(body, at)
        except struct.error:
            raise BatchError("the last message of the batch is incomplete") from None
        end = at + start_of_body + length
        properties_length = int.from_bytes(body[end : end + 2], "big")
        if length < 0 or size != start_of_body + length + 2 + properties_length or at + size > total:
            raise BatchError(f"a message of the batch has the wrong size {size}")
        parts.append(BatchedMessage(flag, body[at + start_of_body : end], body[end + 2 : at + size]))
        at += size
        if len(parts) > most:
            raise BatchError(f"the batch has more than {most} messages")
    return parts

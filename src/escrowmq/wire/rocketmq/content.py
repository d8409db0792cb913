"""The content of a stored message of RocketMQ: flags, the birth of the message, its properties, and its body.

Both generations of clients store this form. Properties and body are exactly as the producer sent them. Topic and tag
are the exchange and the routing key of the envelope. All numbers are big-endian.

    octets   0–3    the application's flag
             4–7    system flag: compression, and the state of a transaction
             8–15   time of birth in milliseconds since the epoch
             16–19  queue of the topic that the producer chose; -1 if it chose none
             20–23  number of failed deliveries in the group to which a retry belongs
             24     octets of the host of birth: 4, 16, or 0 if it is not known
             25–26  port of birth
             27–30  octets of the properties
             31–    host, properties, body
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from escrowmq.core.messages.envelope import Envelope

PROTOCOL: Final = 120
"""The protocol number of envelopes whose messages have this content."""
ANY_QUEUE: Final = -1

COMPRESSED: Final = 0x1
MULTIPLE_TAGS: Final = 0x2
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMITTED: Final = 0x8
TRANSACTION_MASK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
COMPRESSION_MASK: Final = 0x700
"""The compression of the body: 1 is LZ4, 2 Zstandard, 3 zlib, each shifted by 8 bits; 0 is zlib, from old clients."""

_HEAD: Final = struct.Struct(">iiqiiBHI")
_ENVELOPES: Final = 4096


class MessageContent(NamedTuple):
    """The content of one message. `host` is the address of birth in 4 or 16 octets, or empty."""

    properties: bytes
    body: bytes
    flag: int = 0
    system_flag: int = 0
    born_ms: int = 0
    queue: int = ANY_QUEUE
    failures: int = 0
    host: bytes = b""
    port: int = 0

    def pack(self) -> bytes:
        """Return the octets that are stored."""
        head = _HEAD.pack(
            self.flag,
            self.system_flag,
            self.born_ms,
            self.queue,
            self.failures,
            len(self.host),
            self.port,
            len(self.properties),
        )
        return b"".join((head, self.host, self.properties, self.body))


def head_of(
    flag: int, system_flag: int, born_ms: int, queue: int, failures: int, born: tuple[bytes, int], properties: int
) -> bytes:
    """Return the octets before the properties, of which there are `properties`. `born` is host and port."""
    host, port = born
    return _HEAD.pack(flag, system_flag, born_ms, queue, failures, len(host), port, properties) + host


def unpack(content: bytes) -> MessageContent:
    """Return the parts of stored octets."""
    flag, system_flag, born_ms, queue, failures, host_length, port, length = _HEAD.unpack_from(content)
    at = _HEAD.size + host_length
    return MessageContent(
        content[at : at + length],
        content[at + length :],
        flag,
        system_flag,
        born_ms,
        queue,
        failures,
        content[_HEAD.size : at],
        port,
    )


def properties_of(content: bytes) -> bytes:
    """Return the properties in stored octets, without the rest."""
    at = _HEAD.size + content[24]
    return content[at : at + int.from_bytes(content[27:31], "big")]


@lru_cache(_ENVELOPES)
def envelope_of(topic: str, tag: str) -> Envelope:
    """Return the envelope of all messages of `topic` with `tag`, which is empty for messages without one."""
    return Envelope(topic, tag, protocol=PROTOCOL, durable=True)

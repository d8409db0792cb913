"""The content of a stored message of AMQP 0-10: the delivery properties of this message alone, its message properties
and its body.

The delivery properties that many messages share are in the envelope. All numbers are big-endian.

    octet    0   which of the following parts are there: 1 timestamp, 2 expiration; 4: the publisher set `redelivered`
             8   octets each: timestamp, expiration, as the publisher sent them
             the struct32 of the message properties as the publisher sent it, or four zero octets if it sent none
             body
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

PROTOCOL: Final = 110
"""The protocol number of envelopes whose messages have this content."""
DEFAULT_PRIORITY: Final = 4
"""The priority of a message whose publisher sets none."""
TIMESTAMP: Final = 1
EXPIRATION: Final = 2
REDELIVERED: Final = 4
NO_PROPERTIES: Final = bytes(4)

_MASK: Final = TIMESTAMP | EXPIRATION | REDELIVERED
_STARTS: Final = tuple(1 + 8 * ((flags & TIMESTAMP) + (flags >> 1 & 1)) for flags in range(_MASK + 1))
_SIZE: Final = struct.Struct(">I")
_TIME: Final = struct.Struct(">Q")


class TransferContent(NamedTuple):
    """The content of one message. `properties` is an encoded struct32; empty if there is none."""

    properties: bytes
    body: bytes
    timestamp: int | None = None
    expiration: int | None = None
    redelivered: bool = False

    def pack(self) -> bytes:
        """Return the octets that are stored."""
        return head_of(self.timestamp, self.expiration, redelivered=self.redelivered) + b"".join(
            (self.properties or NO_PROPERTIES, self.body)
        )


def head_of(timestamp: int | None, expiration: int | None, *, redelivered: bool = False) -> bytes:
    """Return the octets before the message properties."""
    flags, parts = REDELIVERED if redelivered else 0, [b""]
    if timestamp is not None:
        flags |= TIMESTAMP
        parts.append(_TIME.pack(timestamp))
    if expiration is not None:
        flags |= EXPIRATION
        parts.append(_TIME.pack(expiration))
    parts[0] = bytes((flags,))
    return b"".join(parts)


def extents(content: bytes) -> tuple[int, int]:
    """Return where the message properties begin, and where the body does. Raises ValueError for octets that no endpoint
    has stored.
    """
    start = _STARTS[content[0] & _MASK] if content else 0
    if len(content) < start + _SIZE.size or content[0] & ~_MASK:
        raise ValueError("the content is no message of AMQP 0-10")
    body = start + _SIZE.size + int(_SIZE.unpack_from(content, start)[0])
    if body > len(content):
        raise ValueError("the message properties reach beyond the end of the content")
    return start, body


def unpack(content: bytes) -> TransferContent:
    """Return the parts of stored octets. Raises ValueError as `extents`."""
    start, body = extents(content)
    flags, at = content[0], 1
    timestamp = expiration = None
    if flags & TIMESTAMP:
        (timestamp,) = _TIME.unpack_from(content, at)
        at += _TIME.size
    if flags & EXPIRATION:
        (expiration,) = _TIME.unpack_from(content, at)
    properties = content[start:body]
    return TransferContent(
        b"" if properties == NO_PROPERTIES else properties,
        content[body:],
        timestamp,
        expiration,
        bool(flags & REDELIVERED),
    )

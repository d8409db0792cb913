"""The DELIVERIES record: which messages were handed to which consumer, for the audit."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from escrowmq.core.records.references import Range

_HEAD: Final = struct.Struct("<IQI")  # queue id, time in ms, number of parts
_PART: Final = struct.Struct("<BHI")  # flags, length of the consumer's name, number of ranges
_RANGE: Final = struct.Struct("<QI")  # first position, count
REDELIVERED: Final = 1
"""The messages were marked as delivered before."""


SETTLED: Final = 2
"""The messages were settled by being delivered, because the consumer does not acknowledge."""


class Part(NamedTuple):
    """The messages that one consumer got: ranges of positions, in order. `flags`: REDELIVERED, SETTLED."""

    consumer: str
    flags: int
    ranges: list[Range]


class Delivered(NamedTuple):
    """A DELIVERIES record: the messages of a queue that one turn delivered at `time` (ms), in this order."""

    queue: int
    time: int
    parts: list[Part]


def encode_deliveries(found: Delivered) -> bytes:
    """Return the payload of a DELIVERIES record."""
    pieces = [_HEAD.pack(found.queue, found.time, len(found.parts))]
    for consumer, flags, ranges in found.parts:
        name = consumer.encode("utf-8", "surrogatepass")[: 1 << 15]
        pieces += (_PART.pack(flags, len(name), len(ranges)), name, *(_RANGE.pack(*each) for each in ranges))
    return b"".join(pieces)


def decode_deliveries(data: bytes | memoryview) -> Delivered:
    queue, time, number = _HEAD.unpack_from(data)
    at = _HEAD.size
    parts = []
    for _ in range(number):
        flags, length, count = _PART.unpack_from(data, at)
        at += _PART.size
        name = bytes(data[at : at + length]).decode("utf-8", "surrogatepass")
        at += length
        ranges = [Range(*_RANGE.unpack_from(data, at + i * _RANGE.size)) for i in range(count)]
        at += count * _RANGE.size
        parts.append(Part(name, flags, ranges))
    return Delivered(queue, time, parts)

"""Deliveries in the log, for audit: what was handed to whom, and when. Off unless asked for (`journal.detail`)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from escrowmq.core.records import Kind, Range, ranges_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from escrowmq.core.message import Entry
    from escrowmq.core.ports import Log
    from escrowmq.core.queue import Queue

_HEAD: Final = struct.Struct("<IQI")  # queue id, time in ms, number of parts
_PART: Final = struct.Struct("<BHI")  # flags, length of the consumer's name, number of ranges
_RANGE: Final = struct.Struct("<QI")  # first position, count

REDELIVERED: Final = 1
"""Marked as delivered before."""
SETTLED: Final = 2
"""Settled by being handed over."""


class Part(NamedTuple):
    """What one consumer got: ranges of positions, in order. `flags`: REDELIVERED, SETTLED."""

    consumer: str
    flags: int
    ranges: list[Range]


class Delivered(NamedTuple):
    """A DELIVERIES record: what of a queue was handed out in one turn, at `time` (ms), in the order of the parts."""

    queue: int
    time: int
    parts: list[Part]


def encode_deliveries(found: Delivered) -> bytes:
    """A DELIVERIES record."""
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


class Host(Protocol):
    """What this needs of the broker."""

    now: int
    log: Log


class Deliveries:
    """What was handed out in this turn, until `flush` writes it down."""

    __slots__ = ("_host", "_waiting")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: dict[Queue, list[Part]] = {}

    def note(self, queue: Queue, consumer: str, entries: Sequence[Entry], *, settled: bool) -> None:
        """`entries` go to a client. Those that are not in the log are not told of."""
        if not (queue.durable and queue.logged):
            return
        flags = SETTLED if settled else 0
        fresh = [e.position for e in entries if not e.deliveries and e.run.envelope.durable]
        again = [e.position for e in entries if e.deliveries and e.run.envelope.durable]
        parts = self._waiting.setdefault(queue, [])
        if again:
            parts.append(Part(consumer, flags | REDELIVERED, ranges_of(again)))
        if fresh:
            parts.append(Part(consumer, flags, ranges_of(fresh)))

    def flush(self) -> None:
        """Append the records. To be called before it is recorded what became of the deliveries."""
        if not self._waiting:
            return
        for queue, parts in self._waiting.items():
            if parts:
                queue.record_delivered()  # whoever knows of the delivery knows that it has to be marked next time
                self._host.log.append(Kind.DELIVERIES, encode_deliveries(Delivered(queue.ident, self._host.now, parts)))
        self._waiting.clear()

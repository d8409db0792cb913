"""The state of a terminus as records: for snapshots, and for a terminus that becomes durable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.termini import NumberedRange, encode_acquired, encode_arrived, numbered_ranges
from escrowmq.core.termini.arrivals import AcceptedCopy
from escrowmq.core.termini.locks import locked_ranges

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.termini.terminus import Terminus

PIECE: Final = 50_000
"""Number of tags, or of ranges, in one record."""


def set_fields(terminus: Terminus) -> dict[str, Any]:
    """Return the fields of the record that makes the terminus durable."""
    key, settings = terminus.key, terminus.settings
    return {
        "number": terminus.number,
        "vhost": key.vhost,
        "container": key.container,
        "link": key.link,
        "role": key.role.value,
        "user": terminus.user,
        "durability": int(settings.durability),
        "policy": settings.policy.value,
        "timeout_ms": settings.timeout_ms,
        "second": settings.second,
        "address": settings.address,
        "data": settings.data,
        "default": settings.default.name,
        "next_delivery": terminus.deliveries.next_number,
    }


class CapturedTerminus:
    """A quick copy of a durable terminus, which is encoded as records later, on any thread."""

    __slots__ = ("_accepted", "_fields", "_keeps", "_locked", "_number", "_slots")

    def __init__(self, terminus: Terminus) -> None:
        self._number = terminus.number
        self._fields = set_fields(terminus)
        self._keeps = terminus.keeps
        self._accepted = terminus.arrivals.accepted() if self._keeps else AcceptedCopy([], [], [])
        self._slots = terminus.deliveries.slots() if self._keeps else []
        self._locked = terminus.deliveries.locks.columns() if self._keeps else []

    def records(self) -> Iterator[tuple[Kind, list[bytes]]]:
        """Yield the records of the terminus and of its unsettled deliveries."""
        yield Kind.TERMINUS_SET, [encode_change(**self._fields)]
        yield from self.unsettled()

    def unsettled(self) -> Iterator[tuple[Kind, list[bytes]]]:
        """Yield the records of its unsettled deliveries."""
        tags, fingerprints = self._accepted.tags, self._accepted.fingerprints()
        for at in range(0, len(tags), PIECE):
            some = slice(at, at + PIECE)
            arrived = encode_arrived(self._number, Disposition.ACCEPTED, tags[some], fingerprints[some])
            yield Kind.ARRIVED, [arrived]
        by_queue: dict[int, list[NumberedRange]] = {}
        for queue, *columns in self._locked:
            numbers, firsts, counts = columns
            by_queue.setdefault(queue.ident, []).extend(locked_ranges((numbers, firsts, counts)))
        in_memory: dict[Queue, list[tuple[int, int]]] = {}
        for first, slots, consumer in self._slots:
            if consumer.queue.durable and not consumer.queue.is_stream and not consumer.queue.deleted:
                in_memory.setdefault(consumer.queue, []).extend(
                    (number, entry.position)
                    for number, entry in enumerate(slots, first)
                    if entry is not None and entry.run.envelope.durable
                )
        for queue, deliveries in in_memory.items():
            by_queue.setdefault(queue.ident, []).extend(numbered_ranges(deliveries))
        for ident, ranges in by_queue.items():
            for at in range(0, len(ranges), PIECE):
                yield Kind.ACQUIRED, [encode_acquired(self._number, ident, ranges[at : at + PIECE])]


def unsettled_records(terminus: Terminus) -> Iterator[tuple[Kind, list[bytes]]]:
    """Yield the records of the unsettled deliveries of a terminus that becomes durable."""
    return CapturedTerminus(terminus).unsettled()

"""The state of a terminus as records: for snapshots, and for a terminus that becomes durable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.termini import NumberedRange, encode_acquired, encode_arrived, numbered_ranges
from escrowmq.core.termini.locks import locked_ranges

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.termini.terminus import Terminus, TerminusKey, TerminusSettings

PIECE: Final = 50_000
"""Number of tags, or of ranges, in one record."""


def set_fields(terminus: Terminus) -> dict[str, Any]:
    """Return the fields of the record that makes the terminus durable."""
    return _fields(terminus.number, terminus.key, terminus.user, terminus.settings, terminus.deliveries.next_number)


def _fields(number: int, key: TerminusKey, user: str, settings: TerminusSettings, next_number: int) -> dict[str, Any]:
    return {
        "number": number,
        "vhost": key.vhost,
        "container": key.container,
        "link": key.link,
        "role": key.role.value,
        "user": user,
        "durability": int(settings.durability),
        "policy": settings.policy.value,
        "timeout_ms": settings.timeout_ms,
        "second": settings.second,
        "address": settings.address,
        "data": settings.data,
        "default": settings.default.name,
        "next_delivery": next_number,
    }


class CapturedTerminus:
    """A quick copy of a durable terminus, which is encoded as records later, on any thread.

    A user may have many thousands of termini, which are copied between two turns, so what never changes is read later,
    and so is the number of the next delivery, which may be too high. `unsettled` is None for a terminus that has no
    unsettled deliveries in the log.
    """

    __slots__ = ("_number", "_settings", "_terminus", "unsettled")

    def __init__(self, terminus: Terminus) -> None:
        self._terminus = terminus
        self._number = terminus.number
        self._settings = terminus.settings
        self.unsettled = CapturedUnsettled(terminus) if terminus.keeps and not terminus.idle else None

    def records(self) -> Iterator[tuple[Kind, list[bytes]]]:
        """Yield the records of the terminus and of its unsettled deliveries."""
        terminus = self._terminus
        fields = _fields(self._number, terminus.key, terminus.user, self._settings, terminus.deliveries.next_number)
        yield Kind.TERMINUS_SET, [encode_change(**fields)]
        if self.unsettled is not None:
            yield from self.unsettled.records()


class CapturedUnsettled:
    """A quick copy of the unsettled deliveries of a terminus that keeps them."""

    __slots__ = ("_accepted", "_locked", "_number", "_slots")

    def __init__(self, terminus: Terminus) -> None:
        self._number = terminus.number
        self._accepted = terminus.arrivals.accepted()
        self._slots = terminus.deliveries.slots()
        self._locked = terminus.deliveries.locks.columns()

    def records(self) -> Iterator[tuple[Kind, list[bytes]]]:
        """Yield the records."""
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
    """Yield the records of the unsettled deliveries of a terminus that has begun to keep them."""
    return CapturedUnsettled(terminus).records()

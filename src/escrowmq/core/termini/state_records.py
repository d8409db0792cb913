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
    from escrowmq.core.termini.terminus import Terminus, TerminusKey, TerminusSettings

PIECE: Final = 50_000
"""Number of tags, or of ranges, in one record."""
_NOTHING: Final = AcceptedCopy([], [], [])


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


class DurableTermini:
    """The durable termini, each with its number and settings as the log has them, so that a snapshot copies them in one
    step however many they are. Only those of which deliveries may be unsettled are looked at.
    """

    __slots__ = ("_granted", "_unsettled")

    def __init__(self) -> None:
        self._granted: dict[Terminus, tuple[int, TerminusSettings]] = {}
        self._unsettled: dict[Terminus, None] = {}

    def changed(self, terminus: Terminus) -> None:
        """Note that number or settings of a terminus have changed."""
        if terminus.number:
            self._granted[terminus] = terminus.number, terminus.settings
            if not terminus.idle:
                self._unsettled[terminus] = None
        else:
            self._granted.pop(terminus, None)
            self._unsettled.pop(terminus, None)

    def unsettled(self, terminus: Terminus) -> None:
        """Note that there are new unsettled deliveries of a terminus, which may be durable."""
        if terminus.number:
            self._unsettled[terminus] = None

    def captured(self) -> CapturedTermini:
        """Return a copy."""
        found: dict[Terminus, CapturedUnsettled] = {}
        for terminus in list(self._unsettled):
            if terminus.keeps and not terminus.idle:
                found[terminus] = CapturedUnsettled(terminus)
            else:
                del self._unsettled[terminus]
        return CapturedTermini(self._granted.copy(), found)


class CapturedTermini:
    """A quick copy of the durable termini, which is encoded as records later, on any thread. What never changes is read
    later, and so is the number of the next delivery, which may be too high. `unsettled` has those of which durable
    deliveries are unsettled.
    """

    __slots__ = ("_granted", "unsettled")

    def __init__(
        self, granted: dict[Terminus, tuple[int, TerminusSettings]], unsettled: dict[Terminus, CapturedUnsettled]
    ) -> None:
        self._granted = granted
        self.unsettled = unsettled

    def records(self) -> Iterator[tuple[Kind, list[bytes]]]:
        """Yield the records of the termini and of their unsettled deliveries."""
        for terminus, (number, settings) in self._granted.items():
            fields = _fields(number, terminus.key, terminus.user, settings, terminus.deliveries.next_number)
            yield Kind.TERMINUS_SET, [encode_change(**fields)]
            unsettled = self.unsettled.get(terminus)
            if unsettled is not None:
                yield from unsettled.records()


class CapturedUnsettled:
    """A quick copy of the unsettled deliveries of a terminus that keeps them. Most termini have them in one direction,
    so that half of the copies are not made.
    """

    __slots__ = ("_accepted", "_locked", "_number", "_slots")

    def __init__(self, terminus: Terminus) -> None:
        arrivals, deliveries = terminus.arrivals, terminus.deliveries
        self._number = terminus.number
        self._accepted = _NOTHING if arrivals.empty else arrivals.accepted()
        some = not deliveries.empty
        self._slots = deliveries.slots() if some else []
        self._locked = deliveries.locks.columns() if some else []

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

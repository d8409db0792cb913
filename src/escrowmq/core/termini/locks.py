"""Deliveries of a terminus that recovery found in the log: references, numbered, without content in memory (SET-10).

They are locked for the terminus until its link resumes, it expires, or an operator releases them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.records.references import Reference
from escrowmq.core.records.termini import NumberedRange
from escrowmq.core.reservations.reservation import Part

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry, Run
    from escrowmq.core.queues.queue import Queue


_FEW_PARTS: Final = 8
_run = attrgetter("run")


class LockedPiece(NamedTuple):
    """Contiguous locked messages of one block, of which the first has `number`. Each had been delivered `deliveries`
    times before this delivery.
    """

    queue: Queue
    number: int
    reference: Reference
    deliveries: int

    def part(self, at: int, length: int) -> LockedPiece:
        """Return `length` messages from number `at` on, where the first one has number 0."""
        first, _, lsn, start = self.reference
        return self._replace(number=self.number + at, reference=Reference(first + at, length, lsn, start + at))


class _LockedPart:
    """Messages of one queue in order of position and of number. The queue has the same `part` (`Queue.locked`)."""

    __slots__ = ("part", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.part = Part()
        queue.locked.append(self.part)

    def rows(self) -> Iterator[LockedPiece]:
        part = self.part
        for i in range(part.begin, part.end):
            yield LockedPiece(self.queue, part.numbers[i], part.at(i), part.deliveries[i])

    def find(self, number: int) -> int | None:
        """Return the position of the delivery with this number."""
        part = self.part
        i = bisect_right(part.numbers, number, part.begin) - 1
        if i < part.begin or number >= part.numbers[i] + part.counts[i]:
            return None
        return part.firsts[i] + number - part.numbers[i]

    def select(self, numbers: Sequence[int]) -> tuple[int, int, list[LockedPiece], list[LockedPiece]]:
        """Look for the deliveries with these numbers, which are sorted. Return the numbers of the first reference that
        has some and of the one after the last, the deliveries among them, and the others in these references.
        """
        part = self.part
        begin = max(bisect_right(part.numbers, numbers[0], part.begin) - 1, part.begin)
        end = bisect_right(part.numbers, numbers[-1], part.begin)
        found: list[LockedPiece] = []
        others: list[LockedPiece] = []
        for k in range(begin, end):
            number, reference, deliveries = part.numbers[k], part.at(k), part.deliveries[k]
            piece = LockedPiece(self.queue, number, reference, deliveries)
            at = 0
            for first, count in _stretches(numbers, number, number + reference.length):
                if first > number + at:
                    others.append(piece.part(at, first - number - at))
                found.append(piece.part(first - number, count))
                at = first - number + count
            if at < reference.length:
                others.append(piece.part(at, reference.length - at))
        return begin, end, found, others

    def take(self, numbers: Sequence[int]) -> None:
        """Remove the deliveries with these numbers, which are sorted. Others are ignored."""
        begin, end, found, others = self.select(numbers)
        if not found:
            return
        self.queue.change()
        part = self.part
        rows = [(*each.reference, each.number, each.deliveries) for each in others]
        columns = (part.firsts, part.counts, part.lsns, part.indexes, part.numbers, part.deliveries)
        for i, column in enumerate(columns):
            column[begin:end] = array(column.typecode, [row[i] for row in rows])
        part.messages -= sum([each.reference.length for each in found])
        if not len(part):
            self.queue.locked.remove(part)


def _stretches(numbers: Sequence[int], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield those of `numbers`, which are sorted, that are in range(begin, end): the first of each sequence without
    gaps, and its length.
    """
    i, last = bisect_left(numbers, begin), bisect_left(numbers, end)
    if isinstance(numbers, range):
        if i < last:
            yield numbers[i], last - i
        return
    while i < last:
        first = i
        i += 1
        while i < last and numbers[i] == numbers[i - 1] + 1:
            i += 1
        yield numbers[first], i - first


class Locks:
    """The locked deliveries of one terminus."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[_LockedPart] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def count(self) -> int:
        """The number of locked deliveries."""
        return sum([len(part.part) for part in self._parts])

    def add(self, piece: LockedPiece) -> None:
        """Lock messages. Pieces are added in order of their numbers."""
        queue, number, reference, deliveries = piece
        queue.change()
        found = self._part_for(piece)
        if found is None:
            found = _LockedPart(queue)
            self._parts.append(found)
        part = found.part
        part.append(*reference)
        part.numbers.append(number)
        part.deliveries.append(deliveries)
        queue.unsettled += reference.length

    def _part_for(self, piece: LockedPiece) -> _LockedPart | None:
        for part in self._parts:
            if part.queue is piece.queue and part.part.firsts[-1] < piece.reference.first:
                return part
        return None

    def fits(self, piece: LockedPiece) -> bool:
        """Return whether the piece can be locked for little memory and time: others are in order, or few are not."""
        return len(self._parts) < _FEW_PARTS or self._part_for(piece) is not None

    def find(self, number: int) -> tuple[Queue, int] | None:
        """Return queue and position of the delivery with this number."""
        for part in self._parts:
            position = part.find(number)
            if position is not None:
                return part.queue, position
        return None

    def pieces(self) -> Iterator[LockedPiece]:
        """Yield everything, part by part."""
        for rows in self.rows():
            yield from rows

    def rows(self) -> Iterator[Iterator[LockedPiece]]:
        """Yield the rows of each part, which are in order of their numbers."""
        for part in self._parts:
            yield part.rows()

    def columns(self) -> list[tuple[Queue, array[int], array[int], array[int]]]:
        """Return copies of numbers, positions and counts, for a snapshot."""
        found = []
        for each in self._parts:
            part, begin = each.part, each.part.begin
            found.append((each.queue, part.numbers[begin:], part.firsts[begin:], part.counts[begin:]))
        return found

    def select(self, numbers: Sequence[int]) -> list[LockedPiece]:
        """Return the deliveries with these numbers, which are sorted. Others are ignored."""
        return [piece for part in self._parts for piece in part.select(numbers)[2]] if numbers else []

    def take(self, numbers: Sequence[int]) -> None:
        """Remove these deliveries."""
        for part in self._parts:
            part.take(numbers)
        self._parts = [part for part in self._parts if len(part.part)]

    def take_all(self) -> list[LockedPiece]:
        """Remove and return everything."""
        taken: list[LockedPiece] = []
        for part in self._parts:
            taken += part.rows()
            if part.part in part.queue.locked:  # unless the queue was deleted
                part.queue.change()
                part.queue.locked.remove(part.part)
            part.part.clear()
        self._parts.clear()
        return taken


def is_lockable(queue: Queue, run: Run) -> bool:
    """Return whether the messages of a run are in the log, and stay there over a restart."""
    return run.lsn > 0 and run.envelope.durable and queue.durable and not queue.is_stream and not queue.deleted


def pieces_of(queue: Queue, first: int, entries: Sequence[Entry]) -> Iterator[LockedPiece]:
    """Yield the deliveries with numbers from `first` on as pieces. All of them can be locked."""
    number = first
    for run, group in groupby(entries, _run):
        some = list(group)
        begin = 0
        for i, entry in enumerate(some):
            after = some[i + 1] if i + 1 < len(some) else None
            if after is None or after.position != entry.position + 1 or after.deliveries != entry.deliveries:
                reference = Reference(some[begin].position, i + 1 - begin, run.lsn, some[begin].start)
                yield LockedPiece(queue, number + begin, reference, entry.deliveries)
                begin = i + 1
        number += len(some)


def locked_ranges(columns: tuple[array[int], array[int], array[int]]) -> list[NumberedRange]:
    """Return the columns of a part as ranges. Neighbours become one."""
    found: list[NumberedRange] = []
    for number, first, count in zip(*columns, strict=True):
        last = found[-1] if found else None
        if last is not None and (number, first) == (last.number + last.length, last.first + last.length):
            found[-1] = NumberedRange(last.number, last.first, last.length + count)
        else:
            found.append(NumberedRange(number, first, count))
    return found


def locked_pieces(
    queue: Queue, each: NumberedRange, references: Backlog, deliveries: dict[int, int]
) -> Iterator[LockedPiece]:
    """Yield the messages of a range that are in `references`, which hold all messages of the queue."""
    for reference in references.within(each.first, each.length):
        number = each.number + reference.first - each.first
        positions = range(reference.first, reference.first + reference.length)
        counts = [deliveries.get(position, 0) for position in positions]
        begin = 0
        for i in range(1, reference.length + 1):
            if i < reference.length and counts[i] == counts[begin]:
                continue
            part = Reference(reference.first + begin, i - begin, reference.lsn, reference.start + begin)
            yield LockedPiece(queue, number + begin, part, counts[begin])
            begin = i

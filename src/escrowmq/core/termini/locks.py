"""Deliveries of a terminus that recovery found in the log: references, numbered, without content in memory (SET-10).

They are locked for the terminus until its link resumes, it expires, or an operator releases them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.records.references import Reference
from escrowmq.core.records.termini import NumberedRange
from escrowmq.core.reservations.reservation import Part

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue


class LockedPiece(NamedTuple):
    """Contiguous locked messages of one block, of which the first has `number`. Each had been delivered `deliveries`
    times before this delivery.
    """

    queue: Queue
    number: int
    reference: Reference
    deliveries: int

    def joined(self, other: LockedPiece) -> LockedPiece | None:
        """Return both pieces as one, if `other` continues this one."""
        reference, length = self.reference, self.reference.length
        follows = Reference(reference.first + length, other.reference.length, reference.lsn, reference.start + length)
        if other != (self.queue, self.number + length, follows, self.deliveries):
            return None
        return self._replace(reference=reference._replace(length=length + other.reference.length))


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
        wanted = set(numbers)
        found: list[LockedPiece] = []
        others: list[LockedPiece] = []
        for k in range(begin, end):
            number, reference, deliveries = part.numbers[k], part.at(k), part.deliveries[k]
            at = 0
            for i in range(1, reference.length + 1):
                inside = number + at in wanted
                if i < reference.length and (number + i in wanted) is inside:
                    continue
                some = Reference(reference.first + at, i - at, reference.lsn, reference.start + at)
                (found if inside else others).append(LockedPiece(self.queue, number + at, some, deliveries))
                at = i
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


class Locks:
    """The locked deliveries of one terminus."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[_LockedPart] = []

    @property
    def count(self) -> int:
        """The number of locked deliveries."""
        return sum([len(part.part) for part in self._parts])

    def add(self, piece: LockedPiece) -> None:
        """Lock messages. Pieces are added in order of their numbers."""
        queue, number, reference, deliveries = piece
        for found in self._parts:
            part = found.part
            if found.queue is queue and part.firsts[-1] < reference.first:
                break
        else:
            found = _LockedPart(queue)
            part = found.part
            self._parts.append(found)
        part.append(*reference)
        part.numbers.append(number)
        part.deliveries.append(deliveries)
        queue.unsettled += reference.length

    def find(self, number: int) -> tuple[Queue, int] | None:
        """Return queue and position of the delivery with this number."""
        for part in self._parts:
            position = part.find(number)
            if position is not None:
                return part.queue, position
        return None

    def pieces(self) -> Iterator[LockedPiece]:
        """Yield everything, part by part."""
        for part in self._parts:
            yield from part.rows()

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

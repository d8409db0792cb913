"""The backlog, which is the part of a queue that is not in memory: references into the log, in compact arrays."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, compress
from typing import Final

from escrowmq.core.records.references import TRANSIENT, Range, Reference

_TOP: Final = array("I", [TRANSIENT]).tobytes().index(0x80)  # the byte of a number that has the bit TRANSIENT


class Backlog:
    """References in order of position. They are taken from the front and added at the end.

    A reference stands for a whole run. Ten million messages that arrived in runs therefore cost at most a few bytes
    each; if each arrived alone, they cost 24 bytes each.
    """

    __slots__ = ("_head", "counts", "firsts", "indexes", "lsns", "messages")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.lsns = array("Q")
        self.counts = array("I")
        self.indexes = array("I")
        self.messages = 0
        self._head = 0

    @classmethod
    def of(cls, *references: Reference) -> Backlog:
        """Return a backlog of these references, which must be in order."""
        made = cls()
        for reference in references:
            made.append(*reference)
        return made

    def __len__(self) -> int:
        """Return the number of messages."""
        return self.messages

    def __iter__(self) -> Iterator[Reference]:
        for i in range(self._head, len(self.firsts)):
            yield Reference(self.firsts[i], self.counts[i], self.lsns[i], self.indexes[i])

    def __contains__(self, position: int) -> bool:
        i = self.find(position)
        return i is not None and self.firsts[i] <= position < self.firsts[i] + self.counts[i]

    def append(self, first: int, count: int, lsn: int, index: int) -> None:
        """Add a reference at the end."""
        self.firsts.append(first)
        self.counts.append(count)
        self.lsns.append(lsn)
        self.indexes.append(index)
        self.messages += count

    @property
    def begin(self) -> int:
        """Return the number of the first reference, for `at`."""
        return self._head

    @property
    def end(self) -> int:
        """Return the number after that of the last reference."""
        return len(self.firsts)

    def at(self, i: int) -> Reference:
        """Return reference number `i`, which is between `begin` and `end` - 1."""
        return Reference(self.firsts[i], self.counts[i], self.lsns[i], self.indexes[i])

    def find(self, position: int) -> int | None:
        """Return the number of the last reference that begins at or before `position`. If there is none, return that of
        the first one; None if the backlog is empty.
        """
        if self._head == len(self.firsts):
            return None
        return max(bisect_right(self.firsts, position, self._head) - 1, self._head)

    def within(self, first: int, length: int) -> Iterator[Reference]:
        """Yield the parts of the references within the `length` positions from `first` on."""
        i, behind = self.find(first), first + length
        while i is not None and i < len(self.firsts) and self.firsts[i] < behind:
            begin, count, lsn, start = self.at(i)
            at, end = max(first, begin), min(behind, begin + count)
            if at < end:
                yield Reference(at, end - at, lsn, start + at - begin)
            i += 1

    def peek(self) -> Reference:
        """Return the first reference. Raises IndexError if there is none."""
        i = self._head
        return Reference(self.firsts[i], self.counts[i], self.lsns[i], self.indexes[i])

    def take(self, most: int) -> Reference:
        """Remove and return the first reference, but no more than its first `most` messages."""
        i = self._head
        first, count, lsn, index = self.firsts[i], self.counts[i], self.lsns[i], self.indexes[i]
        if count > most:
            self.firsts[i] = first + most
            self.counts[i] = count - most
            self.indexes[i] = index + most
            self.messages -= most
            return Reference(first, most, lsn, index)
        self._head = i + 1
        self.messages -= count
        if self._head > 4096 and self._head * 2 > len(self.firsts):
            self._trim()
        return Reference(first, count, lsn, index)

    def split(self, most: int, parts: int, before: int = 0) -> Backlog:
        """Remove and return the first references: at most `parts` of them, with at most `most` messages. The last one
        may be divided. With `before`, only references that begin before that position are taken.
        """
        begin = self._head
        stop = min(begin + parts, len(self.firsts))
        if before:
            stop = bisect_left(self.firsts, before, begin, stop)
        end, count = stop, sum(self.counts[begin:stop])
        if count > most:
            end = begin + bisect_right(list(accumulate(self.counts[begin:stop])), most)
            count = sum(self.counts[begin:end])
        taken = Backlog()
        taken.firsts, taken.lsns = self.firsts[begin:end], self.lsns[begin:end]
        taken.counts, taken.indexes = self.counts[begin:end], self.indexes[begin:end]
        taken.messages = count
        self._head = end
        self.messages -= count
        if end < stop and count < most:
            taken.append(*self.take(most - count))
        if self._head > 4096 and self._head * 2 > len(self.firsts):
            self._trim()
        return taken

    def take_out(self, positions: Sequence[int]) -> None:
        """Remove `positions`, which are sorted and all there. Later references are shifted at most once."""
        at, count = 0, len(positions)
        while at < count and self.firsts[self._head] == positions[at]:
            most = self.counts[self._head]
            length = 1
            while length < most and at + length < count and positions[at + length] == positions[at] + length:
                length += 1
            self.take(length)
            at += length
        changes: list[tuple[int, int, list[Reference]]] = []
        self.messages -= count - at
        while at < count:
            i = self.find(positions[at]) or 0
            first, length, lsn, index = self.at(i)
            begin, end = first, first + length
            others: list[Reference] = []
            while at < count and positions[at] < end:
                if positions[at] > begin:
                    others.append(Reference(begin, positions[at] - begin, lsn, index + begin - first))
                begin = positions[at] + 1
                at += 1
            if begin < end:
                others.append(Reference(begin, end - begin, lsn, index + begin - first))
            changes.append((i, i + 1, others))
        if changes:
            self.substitute(changes)

    def _trim(self) -> None:
        for column in (self.firsts, self.lsns, self.counts, self.indexes):
            del column[: self._head]
        self._head = 0

    def clear(self) -> None:
        for column in (self.firsts, self.lsns, self.counts, self.indexes):
            del column[:]
        self.messages = self._head = 0

    def withdraw(self) -> Backlog:
        """Remove and return everything, in one step."""
        taken = Backlog()
        taken.replace(self)
        self.replace(Backlog())
        return taken

    def lasts(self) -> bool:
        """Return whether a restart would restore everything: no reference is TRANSIENT."""
        return self.indexes[self._head :].tobytes()[_TOP::4].isascii()

    def bounds(self) -> tuple[int, int]:
        """Return the first position and the one after the last. Raises IndexError if the backlog is empty."""
        return self.firsts[self._head], self.firsts[-1] + self.counts[-1]

    def remove(self, ranges: list[Range]) -> None:
        """Remove the positions of `ranges`, which are sorted and disjoint. Positions that are not there are ignored."""
        if not ranges:
            return
        kept = Backlog()
        starts = [r.first for r in ranges]
        for first, count, lsn, index in self:
            at, end = first, first + count
            i = max(bisect_right(starts, at) - 1, 0)
            while at < end and i < len(ranges) and ranges[i].first < end:
                gone, gone_end = ranges[i].first, ranges[i].first + ranges[i].length
                if gone_end > at:
                    if gone > at:
                        kept.append(at, gone - at, lsn, index + at - first)
                    at = max(at, gone_end)
                i += 1
            if at < end:
                kept.append(at, end - at, lsn, index + at - first)
        self.replace(kept)

    def move(self, moved: Mapping[int, tuple[int, int]]) -> None:
        """Change the addresses of messages: position → (LSN of the block, number in it). Positions that are not there
        are ignored.
        """
        order = sorted(moved)
        kept = Backlog()
        for first, count, lsn, index in self:
            at, end = first, first + count
            i = bisect_left(order, at)
            while i < len(order) and order[i] < end:
                position = order[i]
                if position > at:
                    kept.append(at, position - at, lsn, index + at - first)
                new_lsn, start = moved[position]
                length = 1
                while (
                    i + 1 < len(order)
                    and order[i + 1] == position + length < end
                    and moved[order[i + 1]] == (new_lsn, start + length)
                ):
                    length += 1
                    i += 1
                kept.append(position, length, new_lsn, start)
                at = position + length
                i += 1
            if at < end:
                kept.append(at, end - at, lsn, index + at - first)
        self.replace(kept)

    def lying_in(self, begin: int, end: int, first_lsn: int, end_lsn: int) -> list[int]:
        """Return which of the references `begin` to `end` - 1 refer to blocks in [`first_lsn`, `end_lsn`) of the
        log.
        """
        return [i for i, lsn in enumerate(self.lsns[begin:end], begin) if first_lsn <= lsn < end_lsn]

    def substitute(self, changes: list[tuple[int, int, list[Reference]]]) -> None:
        """For each (`i`, `j`, others), replace references `i` to `j` - 1 by `others`, which name the same positions.

        The changes are in order and disjoint. Later references are shifted at most once, for any number of changes.
        """
        if all(j - i == len(others) for i, j, others in changes):
            for i, _, others in changes:
                for k, (first, count, lsn, index) in enumerate(others, i):
                    self.firsts[k], self.counts[k], self.lsns[k], self.indexes[k] = first, count, lsn, index
            return
        columns = (self.firsts, self.counts, self.lsns, self.indexes)
        begin, end = changes[0][0], changes[-1][1]
        for field, column in enumerate(columns):
            window = array(column.typecode)
            at = begin
            for i, j, others in changes:
                window += column[at:i]
                window.extend([reference[field] for reference in others])
                at = j
            column[begin:end] = window

    def columns(self) -> tuple[array[int], array[int], array[int], array[int]]:
        """Return copies of the columns: first positions, LSNs of blocks, counts, numbers in the blocks."""
        head = self._head
        return self.firsts[head:], self.lsns[head:], self.counts[head:], self.indexes[head:]

    def select(self, chosen: bytes) -> Backlog:
        """Return a backlog of those references for which `chosen` has an octet other than 0, in their order."""
        found = Backlog()
        columns = zip((found.firsts, found.lsns, found.counts, found.indexes), self.columns(), strict=True)
        for column, whole in columns:
            column.extend(compress(whole, chosen))
        found.messages = sum(found.counts)
        return found

    def join(self, other: Backlog, begin: int) -> None:
        """Append the references of `other` from number `begin` on."""
        self.firsts += other.firsts[begin:]
        self.lsns += other.lsns[begin:]
        self.counts += other.counts[begin:]
        self.indexes += other.indexes[begin:]
        self.messages += sum(other.counts[begin:])

    def replace(self, other: Backlog) -> None:
        """Take over the content of `other`."""
        self.firsts, self.lsns = other.firsts, other.lsns
        self.counts, self.indexes = other.counts, other.indexes
        self.messages, self._head = other.messages, other._head

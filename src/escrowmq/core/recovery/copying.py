"""What compaction copies with: blocks read piece by piece, and a memory of what was copied where."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.ports import Log
from escrowmq.core.records.blocks import BLOCK, encode_block
from escrowmq.core.records.references import Reference

READ_AHEAD: Final = 256 * 1024
_BUCKET: Final = 12  # so many low bits of an LSN do not count: 4 KiB of log share a bucket
T = TypeVar("T")
_ROW: Final = 5  # LSN, first number, count, new LSN, new first number


class Address(NamedTuple):
    """A message's place: number `start` of the block at `lsn`."""

    lsn: int
    start: int


class Copies:
    """Which messages of which blocks have been copied, and where to.

    What lies within 4 KiB of log is found together, in an array of 40 bytes for each run of messages: a segment that is
    full of small messages costs about half of its size.
    """

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[int, array[int]] = {}

    def note(self, lsn: int, start: int, count: int, new: Address) -> None:
        """`count` messages from number `start` on of the block at `lsn` lie at `new` now, side by side."""
        bucket = self._buckets.get(lsn >> _BUCKET)
        if bucket is None:
            bucket = self._buckets[lsn >> _BUCKET] = array("Q")
        bucket.extend((lsn, start, count, new.lsn, new.start))

    def cut(self, reference: Reference) -> Iterator[tuple[Reference, Address | None]]:
        """The parts of `reference`, in order: each was copied as a whole to one place, or not at all (None)."""
        first, length, lsn, start = reference
        bucket = self._buckets.get(lsn >> _BUCKET)
        at, end = start, start + length
        if bucket is not None:
            for number, count, new_lsn, new_start in sorted(_rows_of(bucket, lsn)):
                if number + count <= at:
                    continue
                if number >= end:
                    break
                if number > at:
                    yield Reference(first + at - start, number - at, lsn, at), None
                    at = number
                size = min(number + count, end) - at
                yield Reference(first + at - start, size, lsn, at), Address(new_lsn, new_start + at - number)
                at += size
        if at < end:
            yield Reference(first + at - start, end - at, lsn, at), None


def _rows_of(bucket: array[int], lsn: int) -> list[tuple[int, int, int, int]]:
    lsns = bucket[::_ROW]
    if lsn not in lsns:
        return []
    return [
        (bucket[i + 1], bucket[i + 2], bucket[i + 3], bucket[i + 4])
        for i in range(0, len(bucket), _ROW)
        if bucket[i] == lsn
    ]


def part_of(items: deque[T], start: int, most: int) -> list[T]:
    """At most `most` items from number `start` on: a deque has no slices. The way there begins at the nearer end."""
    size = len(items)
    if start < size // 2:
        return list(islice(items, start, start + most))
    end = min(start + most, size)
    found = list(islice(reversed(items), size - end, max(size - start, size - end)))
    found.reverse()
    return found


class BlockReader:
    """Reads parts of blocks from the log. What is copied is bytes: neither envelope nor bodies are decoded."""

    __slots__ = (
        "_bodies",
        "_chunk",
        "_chunk_lsn",
        "_count",
        "_envelope",
        "_log",
        "_lsn",
        "_number",
        "_skipped",
        "_time",
    )

    def __init__(self, log: Log) -> None:
        self._log = log
        self._chunk = b""
        self._chunk_lsn = 0
        self._lsn = -1
        self._time = self._count = 0
        self._envelope = b""
        self._bodies = 0  # where the first body lies
        self._number = self._skipped = 0  # so many bytes lie before the body with this number

    def open(self, lsn: int) -> BlockReader:
        """Turn to the block at `lsn`."""
        if lsn != self._lsn:
            _, self._time, self._count, head = BLOCK.unpack(self._read(lsn, BLOCK.size))
            self._envelope = self._read(lsn + BLOCK.size, head)
            self._bodies = lsn + BLOCK.size + head + 4 * self._count
            self._number = self._skipped = 0
            self._lsn = lsn
        return self

    def fit(self, start: int, most: int, room: int) -> tuple[int, int]:
        """How many of the `most` messages from number `start` on have `room` bytes together, but at least one; and how
        many bytes those have.
        """
        lengths = self._lengths(start, most)
        size = sum(lengths)
        if size <= room:
            return most, size
        count, size = 1, lengths[0]
        while count < most and size + lengths[count] <= room:
            size += lengths[count]
            count += 1
        return count, size

    def copy(self, pieces: Sequence[tuple[int, int]]) -> list[bytes]:
        """The parts of a block that holds the messages of `pieces` (first number, count) alone."""
        lengths = array("I")
        contents = []
        for start, count in pieces:
            some = self._lengths(start, count)
            size = sum(some)
            contents.append(self._read(self._bodies + self._before(start), size))
            self._number, self._skipped = start + count, self._skipped + size
            lengths += some
        total = 16 + len(self._envelope) + 4 * len(lengths) + sum(map(len, contents))
        head = BLOCK.pack(total, self._time, len(lengths), len(self._envelope))
        return [head, self._envelope, lengths.tobytes(), *contents]

    def _lengths(self, start: int, count: int) -> array[int]:
        return array("I", self._read(self._bodies - 4 * (self._count - start), 4 * count))

    def _before(self, start: int) -> int:
        """How many bytes lie before the body with this number; most often the next one is asked for."""
        if start < self._number:
            self._number = self._skipped = 0
        if start > self._number:
            self._skipped += sum(self._lengths(self._number, start - self._number))
            self._number = start
        return self._skipped

    def _read(self, lsn: int, length: int) -> bytes:
        at = lsn - self._chunk_lsn
        if at >= 0 and at + length <= len(self._chunk):
            return self._chunk[at : at + length]
        if not length:
            return b""  # it may be the end of everything
        if length >= READ_AHEAD:
            return self._log.read(lsn, length)
        chunk = self._log.read_ahead(lsn, READ_AHEAD)
        if len(chunk) < length:
            return self._log.read(lsn, length)
        self._chunk, self._chunk_lsn = chunk, lsn
        return chunk[:length]


class LoadedMessages:
    """The same as `BlockReader` for messages whose bodies are in memory, by their numbers."""

    __slots__ = ("_bodies", "_envelope", "_time")

    def __init__(self, time: int, envelope: Envelope, contents: dict[int, bytes]) -> None:
        self._time = time
        self._envelope = envelope
        self._bodies = contents

    def fit(self, start: int, most: int, room: int) -> tuple[int, int]:
        """As many as are asked for: whoever loaded them has seen to their size."""
        return most, 0

    def copy(self, pieces: Sequence[tuple[int, int]]) -> list[bytes]:
        """As of `BlockReader`."""
        contents = [self._bodies[number] for start, count in pieces for number in range(start, start + count)]
        return encode_block(self._time, self._envelope, contents)

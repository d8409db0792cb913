"""Tools of compaction: reading blocks in parts, and remembering where messages were copied to."""

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
_BUCKET: Final = 12  # low bits of an LSN that are ignored: 4 KiB of log share a bucket
T = TypeVar("T")
_ROW: Final = 5  # LSN, first number, count, new LSN, new first number


class Address(NamedTuple):
    """The address of a message: number `start` of the block at `lsn`."""

    lsn: int
    start: int


class Copies:
    """Remembers which messages of which blocks have been copied, and where to.

    All entries for 4 KiB of log share an array, with 40 bytes for each run of messages. A segment full of small
    messages costs about half of its size.
    """

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[int, array[int]] = {}

    def note(self, lsn: int, start: int, count: int, new: Address) -> None:
        """Note that `count` messages of the block at `lsn`, from number `start` on, are now contiguous at `new`."""
        bucket = self._buckets.get(lsn >> _BUCKET)
        if bucket is None:
            bucket = self._buckets[lsn >> _BUCKET] = array("Q")
        bucket.extend((lsn, start, count, new.lsn, new.start))

    def cut(self, reference: Reference) -> Iterator[tuple[Reference, Address | None]]:
        """Yield the parts of `reference`, in order, each with the address that it was copied to, or None."""
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
    """Return at most `most` items from number `start` on, since a deque has no slices. It walks from the nearer end."""
    size = len(items)
    if start < size // 2:
        return list(islice(items, start, start + most))
    end = min(start + most, size)
    found = list(islice(reversed(items), size - end, max(size - start, size - end)))
    found.reverse()
    return found


class BlockReader:
    """Reads parts of blocks from the log. They are copied as bytes, without decoding envelope or bodies."""

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
        self._bodies = 0  # address of the first body
        self._number = self._skipped = 0  # a body's number, and the number of bytes before it

    def open(self, lsn: int) -> BlockReader:
        """Turn to the block at `lsn`."""
        if lsn != self._lsn:
            self._lsn = -1  # until the block is open
            _, self._time, self._count, head = BLOCK.unpack(self._read(lsn, BLOCK.size))
            self._envelope = self._read(lsn + BLOCK.size, head)
            self._bodies = lsn + BLOCK.size + head + 4 * self._count
            self._number = self._skipped = 0
            self._lsn = lsn
        return self

    def fit(self, start: int, most: int, room: int) -> tuple[int, int]:
        """Return how many of the `most` messages from number `start` on fit into `room` bytes, at least one, and their
        size in bytes.
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
        """Return the parts of a block that holds only the messages of `pieces` (first number, count)."""
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
        """Return the number of bytes before the body with this number. Callers usually ask for consecutive bodies."""
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
    """The counterpart of `BlockReader` for messages whose bodies are in memory, by number."""

    __slots__ = ("_bodies", "_envelope", "_time")

    def __init__(self, time: int, envelope: Envelope, contents: dict[int, bytes]) -> None:
        self._time = time
        self._envelope = envelope
        self._bodies = contents

    def fit(self, start: int, most: int, room: int) -> tuple[int, int]:
        """Return all messages asked for, since the caller has limited the size of the messages that it loaded."""
        return most, 0

    def copy(self, pieces: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the parts of a block, as `BlockReader.copy` does."""
        contents = [self._bodies[number] for start, count in pieces for number in range(start, start + count)]
        return encode_block(self._time, self._envelope, contents)

"""Reading messages of a reservation or a stream in bulk, as columns.

Content is read from the log in large pieces, without creating an object for each message.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final, NamedTuple

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.ports import Log
from escrowmq.core.records.blocks import BLOCK
from escrowmq.core.records.references import TRANSIENT, Reference
from escrowmq.core.reservations.reservation import Row

READ_AHEAD: Final = 1 << 20
MOST_MESSAGES: Final = 50_000
"""Maximum number of messages in a batch, even if they are small, so that reading it does not delay other clients."""
_ENVELOPES: Final = 1024
_HEAD: Final = BLOCK.size


class Shared(NamedTuple):
    """The properties that neighbouring messages of a batch share, up to number `end` - 1 counted from 0.

    `time` is their time of arrival in milliseconds since the epoch.
    """

    end: int
    envelope: Envelope
    time: int
    redelivered: bool


class Batch(NamedTuple):
    """Messages in columns. `first` is the number of the first message, `next` the number at which to continue."""

    first: int
    next: int
    positions: array[int]
    lengths: array[int]
    contents: list[bytes]
    """The bodies back to back. The division into pieces has no meaning."""
    runs: list[Shared]

    def __len__(self) -> int:
        return len(self.positions)


class BatchReader:
    """Makes batches. It caches envelopes, and bytes that it has read ahead."""

    __slots__ = ("_chunk", "_chunk_lsn", "_envelopes", "_log")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._chunk = b""
        self._chunk_lsn = 0
        self._envelopes: dict[bytes, Envelope] = {}

    def read(self, first: int, rows: Iterable[Row], end: int, most_bytes: int) -> Batch:
        """Return the messages of `rows` below `end`, as many as fit into `most_bytes`, but at least one. The first
        message of `rows` has the number `first`. If there are none, the batch is empty and both its numbers are `end`.
        """
        first = number = min(first, end)
        positions: list[int] = []
        lengths: list[int] = []
        contents: list[bytes] = []
        runs: list[Shared] = []
        room = most_bytes
        end = min(end, first + MOST_MESSAGES)
        unpack, last = BLOCK.unpack_from, (b"", -1, False)
        chunk, chunk_lsn, inside = self._chunk, self._chunk_lsn, len(self._chunk) - _HEAD
        for position, length, lsn, start, deliveries in rows:
            if number >= end:
                break
            at = lsn - chunk_lsn
            if not 0 <= at <= inside or at + 4 + unpack(chunk, at)[0] > len(chunk):
                chunk, at = self._block(lsn)
                chunk_lsn, inside = self._chunk_lsn, len(chunk) - _HEAD
            size, time, total, head = unpack(chunk, at)
            stop = at + 4 + size
            lengths_at = at + _HEAD + head
            shared = chunk[at + _HEAD : lengths_at], time, deliveries > 0
            if total == 1:
                taken = stop - lengths_at - 4
                if taken > room and lengths:
                    break
                content = (
                    chunk[lengths_at + 4 : stop] if stop <= len(chunk) else self._read(stop - taken + lsn - at, taken)
                )
                if shared != last:
                    if lengths:
                        runs.append(self._shared(len(lengths), *last))
                    last = shared
                positions.append(position)
                lengths.append(taken)
                number += 1
            else:
                some, before = self._fitting(
                    lsn + _HEAD + head, start & ~TRANSIENT, min(length, end - number), room, at_least=not lengths
                )
                if not some:
                    break
                taken = sum(some)
                content = self._read(lsn + _HEAD + head + 4 * total + before, taken)
                if shared != last:
                    if lengths:
                        runs.append(self._shared(len(lengths), *last))
                    last = shared
                positions.extend(range(position, position + len(some)))
                lengths.extend(some)
                number += len(some)
                if len(some) < length:
                    contents.append(content)
                    break
            contents.append(content)
            room -= taken
        if lengths:
            runs.append(self._shared(len(lengths), *last))
        return Batch(first, number, array("Q", positions), array("I", lengths), contents, runs)

    def envelope_of(self, lsn: int) -> Envelope:
        """Return the envelope of the block at `lsn`."""
        chunk, at = self._block(lsn)
        (_, _, _, head) = BLOCK.unpack_from(chunk, at)
        return self._envelope(chunk[at + _HEAD : at + _HEAD + head])

    def size_of(self, reference: Reference) -> int:
        """Return the size in bytes of the bodies of `reference`."""
        chunk, at = self._block(reference.lsn)
        (_, _, _, head) = BLOCK.unpack_from(chunk, at)
        start = reference.start & ~TRANSIENT
        return sum(self._lengths(reference.lsn + _HEAD + head, start, reference.length)[0])

    def _lengths(self, lsn: int, start: int, count: int) -> tuple[array[int], int]:
        lengths = array("I", self._read(lsn, 4 * (start + count)))
        return lengths[start:], sum(lengths[:start])

    def _fitting(self, lsn: int, start: int, most: int, room: int, *, at_least: bool) -> tuple[array[int], int]:
        """Return the lengths of at most `most` bodies that fit into `room`, from number `start` of the block whose
        lengths begin at `lsn`, and the number of bytes before the first of them.
        """
        lengths, before = self._lengths(lsn, start, most)
        if sum(lengths) > room:
            fitting = bisect_right(list(accumulate(lengths)), room)
            lengths = lengths[: max(fitting, 1 if at_least else 0)]
        return lengths, before

    def _shared(self, end: int, head: bytes, time: int, redelivered: bool) -> Shared:
        return Shared(end, self._envelope(head), time, redelivered)

    def _envelope(self, head: bytes) -> Envelope:
        envelope = self._envelopes.get(head)
        if envelope is None:
            if len(self._envelopes) >= _ENVELOPES:
                self._envelopes.clear()
            envelope = self._envelopes[head] = Envelope.decode(head)
        return envelope

    def _block(self, lsn: int) -> tuple[bytes, int]:
        """Return bytes with at least the head and envelope of the block at `lsn`, and the block's offset in them."""
        chunk, at = self._chunk, lsn - self._chunk_lsn
        if at < 0 or len(chunk) - at < _HEAD:
            return self._ahead(lsn), 0
        size, _, _, head = BLOCK.unpack_from(chunk, at)
        if at + 4 + size <= len(chunk) or (size > READ_AHEAD and at + _HEAD + head <= len(chunk)):
            return chunk, at
        return self._ahead(lsn), 0

    def _ahead(self, lsn: int) -> bytes:
        chunk = self._log.read_ahead(lsn, READ_AHEAD)
        if len(chunk) < _HEAD or len(chunk) < _HEAD + int(BLOCK.unpack_from(chunk)[3]):
            # The bytes read ahead may end early, at an incomplete frame or at the end of the segment.
            head = int(BLOCK.unpack(self._log.read(lsn, _HEAD))[3])
            chunk = self._log.read(lsn, _HEAD + head)
        self._chunk, self._chunk_lsn = chunk, lsn
        return chunk

    def _read(self, lsn: int, length: int) -> bytes:
        at = lsn - self._chunk_lsn
        if at >= 0 and at + length <= len(self._chunk):
            return self._chunk[at : at + length]
        return self._log.read(lsn, length) if length else b""

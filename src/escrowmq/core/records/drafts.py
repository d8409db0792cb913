"""A COMMIT record that is encoded in pieces, before the positions of its messages are known."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from escrowmq.core.records.branches import ADDRESS
from escrowmq.core.records.commits import COMMIT, OPERATION
from escrowmq.core.records.kinds import Kind

_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_TARGET: Final = struct.Struct("<IQ")
_TIME_AT: Final = 4  # in a block: its length, then its time
_LARGE: Final = 32 * 1024
"""Bytes of a block from which on it is not copied."""
_SMALL: Final = 4096  # bytes in a part on average below which copying is cheaper
_SERIES: Final = 16  # places at equal distances that are worth the same steps for all
_CACHED: Final = 512  # places of a series that are written together, so that their bytes stay in the processor's cache
_BIG_ENDIAN: Final = array("H", [1]).tobytes()[0] == 0
_ONE: Final = (1).to_bytes(8, "little")
_TIME: Final = -1  # stands for the time beside the numbers of queues
_PART: Final = 1024 * 1024
"""Bytes after which another part begins."""
_MOST: Final = 5000  # positions after which another part begins; writing one takes up to 0.3 microseconds


class _Numbers:
    """Places of 64-bit numbers in a part, and the numbers to which `write` adds something.

    Places at equal distances, as those of equally long operations, are written by a few steps for all of them.
    """

    __slots__ = ("_distance", "_places", "_relatives", "_starts")

    def __init__(self) -> None:
        self._places = array("L")
        self._relatives = array("Q")
        self._starts = [0]  # of series of places at equal distances
        self._distance = 0

    def add(self, place: int, relative: int) -> None:
        """Add a place, behind all others."""
        count = len(self._places)
        if count:
            distance = place - self._places[-1]
            if count == self._starts[-1] + 1:
                self._distance = distance
            elif distance != self._distance:
                self._starts.append(count)
        self._places.append(place)
        self._relatives.append(relative)

    def __len__(self) -> int:
        return len(self._places)

    def write(self, data: bytearray, base: int) -> None:
        """Write the numbers, with `base` added to each."""
        places = self._places
        for start, end in pairwise((*self._starts, len(places))):
            if end - start < _SERIES:
                for i in range(start, end):
                    _U64.pack_into(data, places[i], base + self._relatives[i])
            else:
                for first in range(start, end, _CACHED):
                    self._write_series(data, base, first, min(first + _CACHED, end))

    def _write_series(self, data: bytearray, base: int, start: int, end: int) -> None:
        """Write numbers at equal distances. They are the digits of one long number, of which none overflows, so one
        addition serves all.
        """
        places, count, relatives = self._places, end - start, self._relatives[start:end]
        if _BIG_ENDIAN:
            relatives.byteswap()
        many = int.from_bytes(relatives.tobytes(), "little") + base * int.from_bytes(_ONE * count, "little")
        found = many.to_bytes(8 * count, "little")
        distance = places[start + 1] - places[start] if count > 1 else 1
        for at in range(8):
            first = places[start] + at
            data[first : first + distance * (count - 1) + 1 : distance] = found[at::8]


class _Part:
    """Some bytes of the record, with the places of positions, by queue, and of times. `done` has the bytes with the
    numbers that `filled` names, if it is true.
    """

    __slots__ = ("count", "data", "done", "filled", "positions", "times")

    def __init__(self) -> None:
        self.count = 0  # of positions
        self.data = bytearray()
        self.done = b""
        self.filled: dict[int, int] = {}
        self.positions: dict[int, _Numbers] = {}
        self.times = _Numbers()

    def target(self, queue: int, relative: int) -> None:
        """Add a target with its position."""
        numbers = self.positions.get(queue)
        if numbers is None:
            numbers = self.positions[queue] = _Numbers()
        numbers.add(len(self.data) + _U32.size, relative)
        self.data += _TARGET.pack(queue, 0)
        self.count += 1

    def fill(self, bases: Mapping[int, int], time: int) -> int:
        """Write the numbers, unless that has been done with the same ones. Return how many were written."""
        wanted = {queue: bases[queue] for queue in self.positions}
        if self.times:
            wanted[_TIME] = time
        if self.done and wanted == self.filled:
            return 0
        data = self.data or bytearray(self.done)
        written = 0
        for queue, positions in self.positions.items():
            if self.filled.get(queue) != bases[queue]:
                positions.write(data, bases[queue])
                written += len(positions)
        self.times.write(data, time)
        self.data, self.done, self.filled = bytearray(), bytes(data), wanted
        return written + len(self.times)

    def reopen(self) -> None:
        """Go on with a part that has been filled."""
        if self.done:
            self.data, self.done, self.filled = bytearray(self.done), b"", {}


class Draft:
    """The operations of one commit or several. Their number is unlimited, since `finish` takes no step in Python for
    each of them.

    The position of a run is given relative to the first position that the record takes in its queue, which `finish`
    adds. `size` is the length of the record.
    """

    __slots__ = ("_begun", "_count", "_parts", "operations", "size")

    def __init__(self, prefix: int = 0) -> None:
        """`prefix` is the number of bytes in the record before the first commit."""
        self._parts: list[_Part | bytes] = [_Part()]
        self._begun: tuple[bytearray, int] | None = None  # the place of the number of operations
        self._count = 0
        self.operations = 0
        self.size = prefix

    def begin(self, branch: int) -> None:
        """Begin the commit of a branch."""
        self._end()
        data = self._open().data
        self._begun = (data, len(data) + _U64.size)
        data += COMMIT.pack(branch, 0)
        self.size += COMMIT.size

    def _end(self) -> None:
        if self._begun is not None:
            data, place = self._begun
            _U32.pack_into(data, place, self.operations - self._count)
        self._count = self.operations

    def _open(self) -> _Part:
        part = self._parts[-1]
        if isinstance(part, bytes) or len(part.data) + len(part.done) > _PART or part.count > _MOST:
            part = _Part()
            self._parts.append(part)
        part.reopen()
        return part

    def publish(self, targets: Sequence[tuple[int, int]], block: Sequence[bytes], *, timeless: bool = False) -> int:
        """Add a PUBLISH operation: `targets` are queues with relative positions, `block` is the encoded block. Return
        its offset in the record. The time in a `timeless` block is replaced by that of the commit.
        """
        part = self._open()
        data, size = part.data, sum(map(len, block))
        length = _U32.size + _TARGET.size * len(targets) + size
        data += OPERATION.pack(Kind.PUBLISH, length)
        data += _U32.pack(len(targets))
        for queue, relative in targets:
            part.target(queue, relative)
        offset = self.size + OPERATION.size + length - size
        if timeless:
            part.times.add(len(data) + _TIME_AT, 0)
        if size < _LARGE or size < _SMALL * len(block):
            data += b"".join(block)
        else:
            data += block[0]  # it has the time
            self._parts += block[1:]
        self.operations += 1
        self.size += OPERATION.size + length
        return offset

    def placed(self, targets: Sequence[tuple[int, int]], lsn: int, count: int) -> None:
        """Add a PLACED operation: `targets` as for `publish`, and the `count` messages of the block at `lsn`."""
        part = self._open()
        data = part.data
        length = _U32.size + _TARGET.size * len(targets) + ADDRESS.size
        data += OPERATION.pack(Kind.PLACED, length)
        data += _U32.pack(len(targets))
        for queue, relative in targets:
            part.target(queue, relative)
        data += ADDRESS.pack(lsn, count)
        self.operations += 1
        self.size += OPERATION.size + length

    def add(self, kind: Kind, payload: bytes) -> None:
        """Add any other operation."""
        self._open().data += OPERATION.pack(kind, len(payload)) + payload
        self.operations += 1
        self.size += OPERATION.size + len(payload)

    def fill(self, bases: Mapping[int, int], time: int) -> Iterator[int]:
        """Write the positions and times beforehand, and yield the number of them in each part. `finish` has to write
        only those that have changed since.
        """
        self._end()
        self._begun = None
        for part in self._parts:
            if isinstance(part, _Part):
                yield part.fill(bases, time)

    def finish(self, bases: Mapping[int, int], time: int) -> list[bytes]:
        """Return the parts of the record after its prefix. `bases` are the first positions, by queue."""
        self._end()
        found: list[bytes] = []
        for part in self._parts:
            if isinstance(part, _Part):
                part.fill(bases, time)
                found.append(part.done)
            else:
                found.append(part)
        self._parts.clear()
        return found

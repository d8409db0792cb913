"""A COMMIT record that is encoded in pieces, before the positions of its messages are known."""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import add
from typing import Final

from escrowmq.core.records.commits import COMMIT, OPERATION
from escrowmq.core.records.kinds import Kind

_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_TARGET: Final = struct.Struct("<IQ")
_TIME_AT: Final = 4  # in a block: its length, then its time
_LARGE: Final = 32 * 1024
"""Bytes of a block from which on it is not copied."""
_SMALL: Final = 4096  # bytes in a part on average below which copying is cheaper
_PART: Final = 1024 * 1024
"""Bytes after which another part begins."""


class _Part:
    """Some bytes of the record. `places` are the offsets of positions, with their queues and their relative values;
    `times` are the offsets of times.
    """

    __slots__ = ("data", "owners", "places", "relatives", "times")

    def __init__(self) -> None:
        self.data = bytearray()
        self.places = array("L")
        self.owners = array("L")
        self.relatives = array("Q")
        self.times = array("L")


class Draft:
    """The operations of a commit. Their number is unlimited, since `finish` takes no step in Python for each of them.

    The position of a run is given relative to the first position that the commit takes in its queue, which `finish`
    adds. `size` is the length of the record.
    """

    __slots__ = ("_parts", "operations", "size")

    def __init__(self) -> None:
        self._parts: list[_Part | bytes] = [_Part()]
        self.operations = 0
        self.size = COMMIT.size

    def _open(self) -> _Part:
        part = self._parts[-1]
        if isinstance(part, bytes) or len(part.data) > _PART:
            part = _Part()
            self._parts.append(part)
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
            part.places.append(len(data) + _U32.size)
            part.owners.append(queue)
            part.relatives.append(relative)
            data += _TARGET.pack(queue, 0)
        offset = self.size + OPERATION.size + length - size
        if timeless:
            part.times.append(len(data) + _TIME_AT)
        if size < _LARGE or size < _SMALL * len(block):
            data += b"".join(block)
        else:
            data += block[0]  # it has the time
            self._parts += block[1:]
        self.operations += 1
        self.size += OPERATION.size + length
        return offset

    def add(self, kind: Kind, payload: bytes) -> None:
        """Add any other operation."""
        self._open().data += OPERATION.pack(kind, len(payload)) + payload
        self.operations += 1
        self.size += OPERATION.size + len(payload)

    def finish(self, branch: int, bases: Mapping[int, int], time: int) -> list[bytes]:
        """Return the parts of the record. `bases` are the first positions, by queue."""
        found = [COMMIT.pack(branch, self.operations)]
        for part in self._parts:
            if isinstance(part, bytes):
                found.append(part)
                continue
            positions = map(add, map(bases.__getitem__, part.owners), part.relatives)
            deque(map(_U64.pack_into, repeat(part.data), part.places, positions), 0)
            for place in part.times:
                _U64.pack_into(part.data, place, time)
            found.append(bytes(part.data))
        self._parts.clear()
        return found

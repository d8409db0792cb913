"""The parts of the log that the journal has deleted. It notes them in a record before it deletes them.

So a missing part that no such record explains was removed by somebody else (REMOVED, docs/internals/records.md). The
newest record has all parts that were deleted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from escrowmq.core.records.kinds import Kind
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.format import LINK_SIZE
from escrowmq.journal.segments import Segment

REMOVED: Final = int(Kind.REMOVED)
HEAD: Final = struct.Struct("<I")
"""The number of holes that follow."""
HOLE: Final = struct.Struct("<QQ12s")
UNKNOWN: Final = bytes(LINK_SIZE)
"""The link of a hole whose last segment had no digest, or whose digest cannot be known any more."""

Range = tuple[int, int]
"""A part of the log: its first LSN, and the LSN behind it."""


class Hole(NamedTuple):
    """A part of the log that was deleted.

    Args:
        first_lsn: where it begins.
        end_lsn: where it ends, and the next segment begins.
        link: the beginning of the digest of its last segment, which is in the header of the next one, or UNKNOWN.
    """

    first_lsn: int
    end_lsn: int
    link: bytes = UNKNOWN


def encode(holes: Sequence[Hole]) -> bytes:
    """Return the payload of the record."""
    return HEAD.pack(len(holes)) + b"".join(HOLE.pack(*hole) for hole in holes)


def decode(data: bytes | memoryview) -> list[Hole]:
    """Return the holes in the payload of a record.

    Raises:
        ValueError: The payload is none of REMOVED.
    """
    if len(data) < HEAD.size or len(data) != HEAD.size + HOLE.size * HEAD.unpack_from(data)[0]:
        raise ValueError(f"a record of removed segments of {len(data)} bytes has another length than it says")
    holes = [Hole(*fields) for fields in HOLE.iter_unpack(data[HEAD.size :])]
    end = -1
    for hole in holes:
        if not end < hole.first_lsn < hole.end_lsn:
            raise ValueError(f"the hole at LSN {hole.first_lsn:#x} is empty, or does not come after the one before it")
        end = hole.end_lsn
    return holes


def merged(holes: Iterable[Hole]) -> list[Hole]:
    """Return the same holes in order, with neighbours made one. No two of them overlap."""
    found: list[Hole] = []
    for hole in sorted(holes):
        if found and found[-1].end_lsn == hole.first_lsn:
            found[-1] = hole._replace(first_lsn=found[-1].first_lsn)
        else:
            found.append(hole)
    return found


def within(holes: Iterable[Hole], missing: Iterable[Range]) -> list[Hole]:
    """Return the holes as far as they lie in one of the ranges. A hole that loses its end loses its link."""
    ranges = list(missing)
    found = []
    for hole in holes:
        for first, end in ranges:
            begin, stop = max(first, hole.first_lsn), min(end, hole.end_lsn)
            if begin < stop:
                found.append(Hole(begin, stop, hole.link if stop == hole.end_lsn else UNKNOWN))
    return merged(found)


def unexplained(missing: Iterable[Range], holes: Sequence[Hole]) -> Iterator[Range]:
    """Yield the parts of the ranges that lie in none of the holes, which are in order."""
    for begin, end in missing:
        at = begin
        for hole in holes:
            if hole.end_lsn <= at or hole.first_lsn >= end:
                continue
            if at < hole.first_lsn:
                yield at, hole.first_lsn
            at = hole.end_lsn
        if at < end:
            yield at, end


class DeletedParts:
    """The holes of a log that a journal has open, and the dead segments that it is about to delete."""

    def __init__(self) -> None:
        self.holes: list[Hole] = []
        """Those that the log notes."""
        self._dead: list[Segment] = []

    def replay(self, file: str, payload: bytes | memoryview) -> None:
        """Take the holes from a record. `file` is the name of its file for errors.

        Raises:
            JournalDamaged: The payload is none of REMOVED.
        """
        try:
            self.holes = decode(payload)
        except ValueError as error:
            raise JournalDamaged(file, 0, str(error)) from error

    def found(self, missing: Sequence[Range], *, noting: bool) -> list[str]:
        """Compare the gaps of the log with what the replayed records say. Return what is wrong, in words.

        If the log has no frame of a version that is `noting` what it deletes, the gaps are taken as they are. A noted
        segment that still exists belongs to no hole: the process ended before it had deleted the segment.
        """
        if not noting:
            self.holes = [Hole(*each) for each in missing]
        wrong = [
            f"the log from LSN {first:#x} to {end:#x} is missing, and no record says that the broker has deleted it"
            for first, end in unexplained(missing, self.holes)
        ]
        self.holes = within(self.holes, missing)
        return wrong

    def add(self, dead: list[Segment]) -> None:
        """Note dead segments as deleted. The record must be on disk before `take` is called."""
        self._dead = dead
        self.holes = merged([*self.holes, *(Hole(each.first_lsn, each.end_lsn, each.link) for each in dead)])

    def take(self) -> list[Segment]:
        """Return the segments to be deleted now."""
        dead, self._dead = self._dead, []
        return dead

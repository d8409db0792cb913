"""The loop's table of segments: where each begins, how many live messages it holds, and which are dead."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.storage import Storage

_LIVE: Final = 4
"""A segment will hardly be read again if at most one in so many of its messages lives."""


@dataclass(slots=True, eq=False)
class Segment:
    """Addresses `first_lsn` to `end_lsn`. A `missing` segment is a gap where dead segments were deleted."""

    first_lsn: int
    end_lsn: int
    missing: bool = False
    live: int = 0
    total: int = 0
    """The messages that it ever held, as far as known. This is accurate enough to choose what to compact."""
    known_total: int = 0
    """The same according to its footer at startup."""
    endless: bool = False
    """Its footer is lost, so only the first LSN of the next file tells where it ends."""
    dead_since: int | None = None
    """The end of the log when it was first seen without live messages. The last settlement lies before that."""
    unchecked: JournalFile | None = None
    """The file, if its frames lie below the snapshot and were not checked at startup. Reads check them once."""
    checked: set[int] = field(default_factory=set)
    cached: bool = True
    """The system may still have a copy of the file in memory."""
    link: bytes = bytes(fmt.LINK_SIZE)
    """The beginning of the digest in its footer; zeros if it has none, or is not sealed yet."""

    @property
    def name(self) -> str:
        """The name of its file."""
        return fmt.segment_name(self.first_lsn)

    @property
    def size(self) -> int:
        """The size of its frames in bytes."""
        return self.end_lsn - self.first_lsn


class SegmentTable:
    """All segments in ascending order. The last one is being written.

    Until the replay is over, the table also contains the gaps between segments.
    """

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)
        self._starts = [segment.first_lsn for segment in self._segments]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def current(self) -> Segment:
        """The last segment."""
        return self._segments[-1]

    @property
    def before_current(self) -> int:
        """The number of messages that the second-to-last segment ever held."""
        return self._segments[-2].total if len(self._segments) > 1 else 0

    def take_read(self) -> str:
        """The name of a file that will hardly be read again, because few of its messages live; empty if there is none.

        Each name is returned only once.
        """
        for segment in self._segments[:-1]:
            if segment.cached and not segment.missing and segment.live <= segment.total // _LIVE:
                segment.cached = False
                return segment.name
        return ""

    def begin(self, lsn: int) -> None:
        """Begin a new segment at `lsn`."""
        self._segments.append(Segment(lsn, lsn))
        self._starts.append(lsn)

    def find(self, lsn: int) -> Segment | None:
        """Return the segment that holds, or will hold, this address, or None if there is none."""
        if self._starts and lsn >= self._starts[-1]:
            return self._segments[-1]
        i = bisect_right(self._starts, lsn)
        if i and lsn < self._segments[i - 1].end_lsn:
            return self._segments[i - 1]
        return None

    def extent(self, lsn: int) -> tuple[int, int]:
        """Return the addresses that belong to the same segment as `lsn`, as begin and end; none if there is no such
        segment.
        """
        segment = self.find(lsn)
        if segment is None:
            return lsn, lsn
        return segment.first_lsn, sys.maxsize if segment is self._segments[-1] else segment.end_lsn

    def read(self, storage: Storage, lsn: int, length: int) -> bytes:
        """Read `length` bytes, or fewer if they extend beyond their record into damaged frames.

        Raises:
            JournalDamaged: The bytes are missing, or the frames around the record are damaged.
        """
        segment = self.find(lsn)
        if segment is None or segment.missing or lsn + length > segment.end_lsn:
            raise JournalDamaged(fmt.segment_name(lsn), 0, f"no segment holds LSN {lsn:#x} to {lsn + length:#x}")
        if segment.unchecked is not None:
            length = _whole(segment, segment.unchecked, lsn, length)
        offset = lsn - segment.first_lsn + fmt.FILE_HEADER_SIZE
        data = storage.read(segment.name, offset, length)
        if len(data) != length:
            raise JournalDamaged(segment.name, offset, f"the file is {length - len(data)} bytes too short")
        return data

    def sealed(self, end_lsn: int, link: bytes) -> None:
        """Note the link to the segment that ends at `end_lsn`, if there is one."""
        segment = self.find(end_lsn - 1)
        if segment is not None:
            segment.link = link

    def missing(self) -> list[tuple[int, int]]:
        """Return the gaps, as first LSN and end."""
        return [(segment.first_lsn, segment.end_lsn) for segment in self._segments if segment.missing]

    def take_dead(self, below: int, synced: int, now: int, keep_bytes: int) -> list[Segment]:
        """Remove the dead segments from the table and return them.

        `below` is the snapshot's LSN, `synced` the synced LSN, `now` the end of the log. `keep_bytes` of dead segments
        stay, newest first.

        A segment without live messages is taken only when the log is synced up to the point at which that was noticed:
        the record that settled its last message must be on disk before the message is deleted. The last file always
        stays, because it proves that the log reached the snapshot. So does the file after an endless one that stays.
        """
        dead = []
        for segment in self._segments[:-1]:
            if segment.live:
                segment.dead_since = None
            elif segment.end_lsn <= below and segment.end_lsn < synced:
                if segment.dead_since is None:
                    segment.dead_since = now
                if segment.dead_since <= synced:
                    dead.append(segment)
        kept = 0
        while dead and kept + dead[-1].size <= keep_bytes:
            kept += dead.pop().size
        leaving = {segment.first_lsn for segment in dead}
        for before, behind in pairwise(self._segments):
            if before.endless and before.first_lsn not in leaving and behind.first_lsn in leaving:
                dead.remove(behind)
        self._remove(dead)
        return dead

    def drop_holes(self) -> None:
        """Remove the gaps after the replay, when all live messages are counted.

        Raises:
            JournalDamaged: There are live messages in a gap.
        """
        holes = [segment for segment in self._segments if segment.missing]
        for hole in holes:
            if hole.live:
                lost = f"the log from LSN {hole.first_lsn:#x} to {hole.end_lsn:#x}"
                raise JournalDamaged(
                    hole.name, 0, f"{lost} is missing, with {hole.live} live message{'s' * (hole.live != 1)} in it"
                )
        self._remove(holes)
        for segment in self._segments:
            segment.total = max(segment.total, segment.known_total)

    def _remove(self, gone: list[Segment]) -> None:
        if gone:
            self._segments = [segment for segment in self._segments if segment not in gone]
            self._starts = [segment.first_lsn for segment in self._segments]


def _whole(segment: Segment, file: JournalFile, lsn: int, length: int) -> int:
    """Return how many of `length` bytes at `lsn` lie in intact frames. Raises JournalDamaged if the first frame is not.

    A record lies between two indexed frames, so only bytes that were read ahead are cut off.
    """
    at, stop = lsn, lsn + length
    while at < stop:
        try:
            at = _check(segment, file, at)
        except JournalDamaged:
            if at == lsn:
                raise
            return at - lsn
    return length


def _check(segment: Segment, file: JournalFile, lsn: int) -> int:
    """Check the frames between the indexed frames around `lsn`. Returns the address of the later one."""
    start, end = file.granule(lsn)
    if start not in segment.checked:
        walk = file.walk(start, end)
        for _ in walk:
            pass
        if walk.lsn != end:
            raise JournalDamaged(segment.name, walk.offset, walk.why)
        segment.checked.add(start)
    return end

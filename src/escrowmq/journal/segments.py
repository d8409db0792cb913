"""The segments of a log as the loop knows them: where each begins, how many live messages it holds, which are dead."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.storage import Storage


@dataclass(slots=True, eq=False)
class Segment:
    """Addresses `first_lsn` up to `end_lsn`. A `missing` one is a hole where dead segments were deleted."""

    first_lsn: int
    end_lsn: int
    missing: bool = False
    live: int = 0
    total: int = 0
    """Messages that it ever held, as far as known; good enough to choose what to compact."""
    known_total: int = 0
    """The same, as its footer told at the start."""
    dead_since: int | None = None
    """The log's end when it was first seen without live messages; what killed the last one lies before it."""
    unchecked: JournalFile | None = None
    """Set if no one has checked the frames since the start (they lie below the snapshot): reads do it then, once."""
    checked: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        """Its file."""
        return fmt.segment_name(self.first_lsn)

    @property
    def size(self) -> int:
        """Bytes of frames."""
        return self.end_lsn - self.first_lsn


class SegmentTable:
    """All segments, ascending; the last one is being filled. Until the replay is over, holes between them are in it
    too.
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
        """The last one."""
        return self._segments[-1]

    @property
    def before_current(self) -> int:
        """The messages that the segment before the last one ever held."""
        return self._segments[-2].total if len(self._segments) > 1 else 0

    def begin(self, lsn: int) -> None:
        """What follows goes into a new segment, which starts here."""
        self._segments.append(Segment(lsn, lsn))
        self._starts.append(lsn)

    def find(self, lsn: int) -> Segment | None:
        """The segment that holds, or will hold, this address; None if there is none (any more)."""
        if self._starts and lsn >= self._starts[-1]:
            return self._segments[-1]
        i = bisect_right(self._starts, lsn)
        if i and lsn < self._segments[i - 1].end_lsn:
            return self._segments[i - 1]
        return None

    def read(self, storage: Storage, lsn: int, length: int) -> bytes:
        """`length` bytes, or fewer if they reach beyond their record into frames that are not whole.

        Raises JournalDamaged if they are not there, or the frames around the record are not whole.
        """
        segment = self.find(lsn)
        if segment is None or segment.missing or lsn + length > segment.end_lsn:
            raise JournalDamaged(fmt.segment_name(lsn), 0, f"no segment holds LSN {lsn:#x} to {lsn + length:#x}")
        if segment.unchecked is not None:
            length = _whole(segment, segment.unchecked, lsn, length)
        offset = lsn - segment.first_lsn + fmt.FILE_HEADER_SIZE
        data = storage.read(segment.name, offset, length)
        if len(data) != length:
            raise JournalDamaged(segment.name, offset, f"the file ends {length - len(data)} bytes too early")
        return data

    def take_dead(self, below: int, synced: int, now: int, keep_bytes: int) -> list[Segment]:
        """Drop what is dead, return it. `below`: the snapshot's LSN; `now`: the log's end; `keep_bytes`: how much of
        it stays.

        A segment found without live messages is only taken once the log is synced up to where it was so found: the
        record that settled its last message must be on disk before the message goes. The last file always stays: it
        proves that
        the log reached the snapshot.
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
        self._remove(dead)
        return dead

    def drop_holes(self) -> None:
        """The replay is over, and with it the counting of what lives. Raises JournalDamaged if messages still live in
        a segment that is not there.
        """
        holes = [segment for segment in self._segments if segment.missing]
        for hole in holes:
            if hole.live:
                lost = f"the log from LSN {hole.first_lsn:#x} to {hole.end_lsn:#x}"
                raise JournalDamaged(hole.name, 0, f"{lost} is missing, and {hole.live} live messages in it")
        self._remove(holes)
        for segment in self._segments:
            segment.total = max(segment.total, segment.known_total)

    def _remove(self, gone: list[Segment]) -> None:
        if gone:
            self._segments = [segment for segment in self._segments if segment not in gone]
            self._starts = [segment.first_lsn for segment in self._segments]


def _whole(segment: Segment, file: JournalFile, lsn: int, length: int) -> int:
    """How many of `length` bytes lie in frames that are whole. Raises JournalDamaged if those at `lsn` do not.

    A record lies between two indexed frames, so what is cut off here was only read ahead.
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
    """Check the frames from the indexed one before `lsn` to the next indexed one, which is returned."""
    start, end = file.granule(lsn)
    if start not in segment.checked:
        walk = file.walk(start, end)
        for _ in walk:
            pass
        if walk.lsn != end:
            raise JournalDamaged(segment.name, walk.offset, walk.why)
        segment.checked.add(start)
    return end

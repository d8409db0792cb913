"""Reads the replicated log in order, folds it, and hands on what counts.

A log that has lost its newest entries grows again. A node that had read them, and that reads on behind them, would fold
another log than the others do. The stamps of entries show it: one that does not fit makes the tail read the whole log
again and compare.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from escrowmq.journal.format import read_file_header
from escrowmq.replica.entries import Entry, SegmentStart, Stamp, decode
from escrowmq.replica.errors import EntriesLost, EntriesTrimmed
from escrowmq.replica.fold import Applied, Fold, Judgement, ReplicatedFrame, SnapshotPiece
from escrowmq.replica.log import ReplicatedLog, StoredEntry

READ: Final = 64
"""The entries that are asked for at once, each of up to a megabyte."""
REMEMBERED: Final = 8
"""How many of the newest entries a node remembers, to find out whether the log still has them."""

COMPARED_FOR: Final = 1000
"""For so many entries, further doubtful ones of the same leader do not make a node read the whole log again."""


class LocalCopy(Protocol):
    """The node's own copy of the journal."""

    def segment(self, header: bytes, messages: int) -> None:
        """Begin a segment, or find that the copy has it. The one before ever held so many messages."""
        ...

    def frame(self, frame: ReplicatedFrame) -> None:
        """Add a frame behind the last one, or find that the copy has it.

        If the copy has other bytes there, everything from there on never counted, or the log has lost it. It must not
        stay in the copy.
        """
        ...

    def snapshot(self, piece: SnapshotPiece) -> None:
        """Add a piece to the file of a snapshot. With its last one, the snapshot replaces all older ones."""
        ...


class SegmentPlace(NamedTuple):
    """Where a segment that counted begins in the log. A reader may begin there."""

    lsn: int
    position: int
    epoch: int
    chain: bytes


class LogTail:
    """A node's place in the log, and the state of the log there."""

    def __init__(self, log: ReplicatedLog, copy: LocalCopy, position: int = 0) -> None:
        """`position` is 0, or the place of a segment that counted. `LogTail.opened` finds it."""
        self._log = log
        self._copy = copy
        self._begin = position
        self.position = position
        """The position of the next entry to read."""
        self.fold = Fold()
        self.counted = 0
        """The entries so far that counted. It grows while a leader is there."""
        self.interrupted = False
        """Whether the copy has failed to take an entry. The tail has passed that entry, so it must not be used again:
        a new one begins at one of `segments`.
        """
        self.segments: list[SegmentPlace] = []
        """The segments that counted, from the one on where this reader began."""
        self._recent: deque[tuple[int, bytes]] = deque(maxlen=REMEMBERED)
        self._compared: dict[bytes, int] = {}
        """The chains of doubtful entries, and the position where the log was found to be what this node has read."""

    @classmethod
    def opened(cls, log: ReplicatedLog, copy: LocalCopy, places: Sequence[SegmentPlace] = ()) -> LogTail:
        """Return a tail at the newest of `places` where the log still has that segment, or else at the oldest entry.

        `places` are `segments` of an earlier tail, in order. The copy must be whole up to there. Raises OSError.
        """
        begin, end = log.begin(), log.end()
        known = [place for place in places if begin <= place.position < end]
        while known:
            place = known.pop()
            for stored in log.read(place.position, 1):
                if _is_segment(stored, place):
                    tail = cls(log, copy, place.position)
                    tail.segments = known
                    return tail
        return cls(log, copy, begin)

    def read_to_end(self) -> None:
        """Read everything that the log has now. Raises EntriesLost, EntriesTrimmed, EntryDamaged and OSError."""
        self.read_to(self._log.end())

    def read_on(self) -> None:
        """Read what the log shows at a glance. There may be more, and what the log has lost is found later.

        Raises as `read_to_end` does.
        """
        while found := self._log.glance(self.position, READ):
            if found[0].position > self.position:
                self._check_trimmed()
            for stored in found:
                self.take(stored)
            if len(found) < READ:
                return

    def read_to(self, end: int) -> None:
        """Read the entries before the position `end`. Raises as `read_to_end` does."""
        if end < self.position:
            raise EntriesLost(end, f"it ends there, and this node has read up to {self.position}")
        while self.position < end:
            found = self._log.read(self.position, min(READ, end - self.position))
            if not found or found[0].position > self.position:
                self._check_trimmed()
            if not found:
                raise EntriesLost(self.position, f"it is said to end at {end}")
            for stored in found:
                self.take(stored)

    def take(self, stored: StoredEntry, entry: Entry | None = None) -> Applied:
        """Apply the entry at the next position. `entry` is that one, if the caller has it.

        Raises EntriesLost if there is a gap before it, and EntryDamaged.
        """
        if stored.position != self.position:
            raise EntriesLost(self.position, f"the entry after it is at {stored.position}")
        entry = decode(stored.data) if entry is None else entry
        if self.position == self._begin and self._begin:
            self.fold = _begun(entry, self.position)
        applied = self.fold.apply(entry, self.position)
        self.position += 1
        self._recent.append((stored.position, stored.data))
        if applied.judgement is Judgement.DOUBTFUL:
            self._doubt(entry.stamp)
        self.interrupted = True
        self._hand_on(entry, stored.position, applied)
        self.interrupted = False
        return applied

    def forget(self, position: int) -> None:
        """Forget the segments before a position, which the log has no more."""
        self.segments = [place for place in self.segments if place.position >= position]

    def verify(self) -> None:
        """Raise EntriesLost if the newest entries that this node has read are not in the log any more."""
        known = dict(self._recent)
        begin = self._log.begin()
        at = max(begin, self._recent[0][0]) if self._recent else self.position
        while at < self.position:
            found = self._log.read(at, self.position - at)
            if not found:
                raise EntriesLost(at, f"this node has read up to {self.position}")
            for stored in found:
                if known.get(stored.position, stored.data) != stored.data:
                    raise EntriesLost(stored.position, "another entry is there now")
                at = stored.position + 1

    def _hand_on(self, entry: Entry, position: int, applied: Applied) -> None:
        if applied.judgement is Judgement.COUNTS:
            self.counted += 1
        if applied.segment is not None:
            self._note_place(applied.segment, position)
            self._copy.segment(applied.segment.header, applied.segment.messages)
        if applied.frame is not None:
            self._copy.frame(applied.frame)
        if applied.snapshot is not None:
            self._copy.snapshot(applied.snapshot)

    def _note_place(self, start: SegmentStart, position: int) -> None:
        lsn = read_file_header("a segment that counts", start.header).lsn
        if self.segments and self.segments[-1].lsn == self.fold.next_lsn:
            self.segments.pop()  # the segment got no frames, so this one replaces it
        if lsn == self.fold.next_lsn:  # else, a leader has returned to the segment before
            self.segments.append(SegmentPlace(lsn, position, self.fold.epoch, self.fold.chain))

    def _doubt(self, stamp: Stamp) -> None:
        """Compare the log with what this node has read, unless that was done lately for entries of this kind."""
        if stamp.chain not in self._compared or stamp.after > self._compared[stamp.chain] + COMPARED_FOR:
            self._compare()
            self._compared[stamp.chain] = self.position

    def _compare(self) -> None:
        """Fold the log anew up to this position. Raise EntriesLost if it is not the log that this node has read."""
        begin = at = self._log.begin()
        fold = Fold()
        while at < self.position:
            found = self._log.read(at, min(READ, self.position - at))
            if not found:
                raise EntriesLost(at, f"this node has read up to {self.position}")
            if found[0].position != at:  # the leader has trimmed the log meanwhile
                begin = at = found[0].position
            for stored in found[: self.position - at]:
                entry = decode(stored.data)
                if at == begin and begin:
                    fold = _begun(entry, at)
                fold.apply(entry, at)
                at += 1
        if begin < self.position and fold.state != self.fold.state:
            raise EntriesLost(self.position, "the entries before it are not those that this node has read")

    def _check_trimmed(self) -> None:
        begin = self._log.begin()
        if begin > self.position:
            raise EntriesTrimmed(begin, self.position)


def _is_segment(stored: StoredEntry, place: SegmentPlace) -> bool:
    entry = decode(stored.data)
    if stored.position != place.position or not isinstance(entry, SegmentStart):
        return False
    lsn = read_file_header("a segment in the replicated log", entry.header).lsn
    return (lsn, entry.stamp.epoch, entry.stamp.chain) == (place.lsn, place.epoch, place.chain)


def _begun(entry: Entry, position: int) -> Fold:
    """Return the fold of a log that begins at `position` with `entry`."""
    if not isinstance(entry, SegmentStart):
        raise EntriesLost(
            position, "it begins in the middle of a segment, since its beginning was deleted from outside"
        )
    return Fold.begun_at(entry)

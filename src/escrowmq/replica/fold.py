"""Which entries of the replicated log count. Every node folds the log by these rules, so all agree.

The log itself accepts the entries of any node at any time: those of a leader that was paused and does not know that it
is deposed, the same entry twice, and late ones. Therefore:

- A claim counts if its epoch is the next one. The node then leads, until the next claim that counts.
- Everything else counts only if its epoch is the current one and its leader has not resigned.
- A segment counts if it begins where the last whole frame ended. A chunk counts if it continues what is there. An entry
  that is there already is a duplicate. An entry that leaves a gap is premature, and its leader appends it again.
- A frame that is incomplete at a claim never counts. The new leader begins a segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from escrowmq.journal.errors import JournalError
from escrowmq.journal.format import TYPE_SEGMENT, read_file_header
from escrowmq.replica.entries import Entry, FrameChunk, Heartbeat, LeaderClaim, Resignation, SegmentStart


class Judgement(Enum):
    """What an entry means to all readers."""

    COUNTS = "counts"
    STALE = "stale"  # of a deposed or resigned leader, or a claim of an epoch that is taken
    DUPLICATE = "duplicate"  # its effect is there already
    PREMATURE = "premature"  # something before it is missing
    FOREIGN = "foreign"  # a segment of another journal, or not what it continues


class ReplicatedFrame(NamedTuple):
    """A whole frame of the journal."""

    epoch: int
    lsn: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Applied:
    """The judgement of an entry, and what it completed, if it did."""

    judgement: Judgement
    segment: SegmentStart | None = None
    frame: ReplicatedFrame | None = None


_COUNTS = Applied(Judgement.COUNTS)
_STALE = Applied(Judgement.STALE)
_DUPLICATE = Applied(Judgement.DUPLICATE)
_PREMATURE = Applied(Judgement.PREMATURE)
_FOREIGN = Applied(Judgement.FOREIGN)


class Fold:
    """The state of the log after the entries so far."""

    def __init__(self) -> None:
        self.epoch = 0
        self.leader: LeaderClaim | None = None
        """The claim of the current epoch; None before the first."""
        self.resigned = False
        self.next_lsn = 0
        """The end of the last whole frame."""
        self.segment = b""
        """The header of the current segment."""
        self.journal_id = b""
        self._parts: list[bytes] = []
        self._received = 0
        self._size = 0

    def leads(self, claim: LeaderClaim) -> bool:
        """Return whether `claim` is the last one that counted, and its node has not resigned."""
        return self.leader == claim and not self.resigned

    def apply(self, entry: Entry) -> Applied:
        """Apply the next entry of the log."""
        if isinstance(entry, LeaderClaim):
            return self._claim(entry)
        if entry.epoch > self.epoch:
            return _PREMATURE
        if entry.epoch < self.epoch or self.resigned:
            return _STALE
        match entry:
            case SegmentStart():
                return self._begin_segment(entry)
            case FrameChunk():
                return self._add_chunk(entry)
            case Heartbeat():
                return _COUNTS
            case Resignation():
                self.resigned = True
                self._drop_partial()
                return _COUNTS

    def _claim(self, claim: LeaderClaim) -> Applied:
        if claim.epoch > self.epoch + 1:
            return _PREMATURE
        if claim.epoch <= self.epoch:
            return _DUPLICATE if claim == self.leader else _STALE
        self.epoch, self.leader, self.resigned = claim.epoch, claim, False
        self._drop_partial()
        return _COUNTS

    def _begin_segment(self, entry: SegmentStart) -> Applied:
        try:
            header = read_file_header("an entry of the replicated log", entry.header)
        except JournalError:
            return _FOREIGN
        if header.type != TYPE_SEGMENT or (self.journal_id and header.journal_id != self.journal_id):
            return _FOREIGN
        if header.lsn < self.next_lsn or entry.header == self.segment:
            return _DUPLICATE
        if header.lsn > self.next_lsn or self._parts:
            return _PREMATURE
        self.segment, self.journal_id = entry.header, header.journal_id
        return Applied(Judgement.COUNTS, segment=entry)

    def _add_chunk(self, chunk: FrameChunk) -> Applied:
        if chunk.lsn < self.next_lsn or (chunk.lsn == self.next_lsn and chunk.offset < self._received):
            return _DUPLICATE
        if not self.segment or chunk.lsn > self.next_lsn or chunk.offset > self._received:
            return _PREMATURE
        if self._parts and chunk.size != self._size:
            return _FOREIGN
        self._parts.append(chunk.data)
        self._received += len(chunk.data)
        self._size = chunk.size
        if self._received < self._size:
            return _COUNTS
        frame = ReplicatedFrame(chunk.epoch, chunk.lsn, b"".join(self._parts))
        self._drop_partial()
        self.next_lsn += len(frame.data)
        return Applied(Judgement.COUNTS, frame=frame)

    def _drop_partial(self) -> None:
        self._parts = []
        self._received = self._size = 0

"""Which entries of the replicated log count. Every node folds the log by these rules, so all agree.

The log itself accepts the entries of any node at any time: those of a leader that was paused and does not know that it
is deposed, the same entry twice, and late ones. It may also lose its newest entries. Therefore:

- A claim counts if its epoch is greater than the current one, and its node has read the same claims before. The node
  then leads, until the next claim that counts. Epochs may be left out, since a node claims a greater one than all that
  it has ever had, also those that the log has lost.
- Everything else counts only if it is of the current claim, which has not resigned. The chain in its stamp says so.
- A segment counts if its leader appended it behind the last whole frame. A leader may return to the last segment that
  has frames, if the current one has none. A chunk counts if it continues what is there.
  An entry that is there already is a duplicate. A chunk that leaves a gap in its own frame is premature, and its leader
  appends it again.
- A leader appends a frame only after the one before it counts. An entry that leaves any other gap, that stands before
  something that its writer had read, or that is of a claim that is not there, is doubtful: the log may have lost some.
- A frame or a snapshot that is incomplete at a claim never counts. The new leader begins a segment.
- A report of a node changes nothing. It may come from any node at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from escrowmq.journal.errors import JournalError
from escrowmq.journal.format import TYPE_SEGMENT, read_file_header
from escrowmq.replica.entries import (
    NO_CHAIN,
    Entry,
    FrameChunk,
    Heartbeat,
    LeaderClaim,
    LiveMap,
    LossNotice,
    NodeReport,
    Resignation,
    SegmentStart,
    SnapshotChunk,
    Stamp,
    TakeOverReason,
)

MOST_NODES: Final = 100
"""How many nodes' reports a reader remembers."""
REMEMBERED: Final = 1000
"""How many epochs a reader remembers. An entry of an older one makes it read the log again."""


class Judgement(Enum):
    """What an entry means to all readers."""

    COUNTS = "counts"
    STALE = "stale"  # of a deposed or resigned leader, or a claim of an epoch that is taken
    DUPLICATE = "duplicate"  # its effect is there already
    PREMATURE = "premature"  # a piece of the same frame or snapshot before it is missing
    FOREIGN = "foreign"  # a segment of another journal, or not what it continues
    DOUBTFUL = "doubtful"  # it does not fit to the entries before it, as if the log had lost some
    REPORT = "report"  # for operators


class ReplicatedFrame(NamedTuple):
    """A whole frame of the journal."""

    epoch: int
    lsn: int
    data: bytes


class SnapshotPiece(NamedTuple):
    """A piece of a snapshot's file. Pieces come in order; one at offset 0 replaces an unfinished snapshot."""

    lsn: int
    size: int
    offset: int
    data: bytes

    @property
    def last(self) -> bool:
        """Whether the snapshot is whole with this piece."""
        return self.offset + len(self.data) == self.size


class CopyEnd(NamedTuple):
    """Where a copy of the journal ends. The greater one has more of what was confirmed.

    A deposed leader may have written a frame that never counted. So the epoch in which the last frame counted comes
    before the LSN.
    """

    epoch: int
    lsn: int


class LeaderAddress(NamedTuple):
    """Who leads."""

    epoch: int
    node: str
    url: str


class SeenReport(NamedTuple):
    """The last report of a node, where the frames ended in the log at its place, and the number of reports of leaders
    up to there.
    """

    report: NodeReport
    end_lsn: int
    leader_reports: int = 0


class SnapshotPlace(NamedTuple):
    """The newest whole snapshot: where it covers the journal up to, and where its first piece is in the log."""

    lsn: int
    position: int


@dataclass(frozen=True, slots=True)
class Applied:
    """The judgement of an entry, and what it completed, if it did."""

    judgement: Judgement
    segment: SegmentStart | None = None
    frame: ReplicatedFrame | None = None
    snapshot: SnapshotPiece | None = None


class FoldState(NamedTuple):
    """What two readers at the same position must agree on."""

    epoch: int
    chain: bytes
    resigned: bool
    next_lsn: int
    segment: bytes
    received: int


_COUNTS = Applied(Judgement.COUNTS)
_STALE = Applied(Judgement.STALE)
_DUPLICATE = Applied(Judgement.DUPLICATE)
_PREMATURE = Applied(Judgement.PREMATURE)
_FOREIGN = Applied(Judgement.FOREIGN)
_REPORT = Applied(Judgement.REPORT)
_DOUBTFUL = Applied(Judgement.DOUBTFUL)


class Fold:
    """The state of the log after the entries so far."""

    def __init__(self) -> None:
        self.epoch = 0
        self.chain = NO_CHAIN
        self.claim_id = b""
        """The id of the current claim; empty if the fold began behind it."""
        self.leader: LeaderAddress | None = None
        """Who made the current claim; None before the first."""
        self.resigned = False
        self.leaving = False
        """Whether the leader has said that it accepts no more connections, and will resign."""
        self.hole = False
        """Whether the log has lost entries of the current leader, as its later ones show."""
        self.notices: dict[str, CopyEnd] = {}
        """The nodes that have found entries of the log lost since the last claim, and where their copies end."""
        self.map = 0
        """The position of the newest map of living segments; 0 if there was none."""
        self.reports: dict[tuple[str, str], SeenReport] = {}
        """The last report of each node, by its name and address."""
        self.leader_reports = 0
        """How many reports of nodes that led there were. It tells the age of other reports without anybody's clock."""
        self.leaders: list[LeaderAddress] = []
        """The last nodes that have led, in order."""
        self.take_overs: dict[int, NodeReport] = {}
        """The reports of take-overs by epoch, newest last."""
        self.next_lsn = 0
        """The end of the last whole frame."""
        self.segment = b""
        """The header of the current segment."""
        self.journal_id = b""
        self._filled = b""
        """The header of the last segment that has frames."""
        self.snapshot: SnapshotPlace | None = None
        self.covered = 0
        """The end of the last part of the journal that the log does not have, before frames that it has."""
        self._ended: dict[bytes, int] = {}
        """The chains of the last epochs, and the position of the claim or the resignation that ended each."""
        self._parts: list[bytes] = []
        self._received = 0
        self._size = 0
        self._unfinished: tuple[int, int, int, int] | None = None
        """A snapshot that is not whole: its LSN, size, received bytes, and the position of its first piece."""

    @classmethod
    def begun_at(cls, entry: SegmentStart) -> Fold:
        """Return the state before a segment that counts, which may be the first entry of a log that was trimmed.

        `apply` must get the same entry next.
        """
        fold = cls()
        fold.epoch, fold.chain = entry.stamp.epoch, entry.stamp.chain
        fold.leader = LeaderAddress(entry.stamp.epoch, entry.node, entry.url)
        fold.leaders = [fold.leader]
        fold.next_lsn = fold.covered = entry.end_lsn
        return fold

    @property
    def state(self) -> FoldState:
        """What all readers agree on."""
        return FoldState(self.epoch, self.chain, self.resigned, self.next_lsn, self.segment, self._received)

    @property
    def lacks_snapshot(self) -> bool:
        """Whether a reader that has nothing but the log cannot use the journal, because no snapshot covers its gaps."""
        return self.covered > (self.snapshot.lsn if self.snapshot is not None else 0)

    def leads(self, claim: LeaderClaim) -> bool:
        """Return whether `claim` is the last one that counted, and its node has not resigned."""
        return self.claim_id == claim.id and not self.resigned

    def apply(self, entry: Entry, position: int) -> Applied:
        """Apply the next entry of the log, which is at `position`."""
        if isinstance(entry, LeaderClaim):
            return self._claim(entry, position)
        if isinstance(entry, NodeReport):
            return self._note_report(entry)
        stamp = entry.stamp
        if stamp.epoch < self.epoch:
            return self._stale(stamp)
        if stamp.epoch > self.epoch or stamp.chain != self.chain:
            return _DOUBTFUL
        if isinstance(entry, LossNotice):
            self.notices[entry.node] = CopyEnd(entry.copy_epoch, entry.lsn)
            return _COUNTS
        if self.resigned:
            return self._stale(stamp)
        if stamp.after > position:
            return self._lost()
        match entry:
            case SegmentStart():
                return self._begin_segment(entry)
            case FrameChunk():
                return self._add_chunk(entry)
            case SnapshotChunk():
                return self._add_piece(entry, position)
            case Heartbeat():
                self.leaving |= entry.leaving
                return _COUNTS
            case LiveMap():
                self.map = position
                return _COUNTS
            case Resignation():
                self.resigned = True
                self._ended[self.chain] = position
                self._drop_partial()
                return _COUNTS

    def _note_report(self, report: NodeReport) -> Applied:
        key = report.node, report.url
        self.reports.pop(key, None)
        self.leader_reports += self.leader is not None and key == (self.leader.node, self.leader.url)
        self.reports[key] = SeenReport(report, self.next_lsn, self.leader_reports)
        if len(self.reports) > MOST_NODES:
            del self.reports[next(iter(self.reports))]
        if report.reason is not TakeOverReason.NONE:
            self.take_overs[report.stamp.epoch] = report
            self.take_overs.pop(report.stamp.epoch - MOST_NODES, None)
        return _REPORT

    def _claim(self, claim: LeaderClaim, position: int) -> Applied:
        stamp = claim.stamp
        if claim.id == self.claim_id:
            return _DUPLICATE
        if stamp.chain != self.chain:
            return self._stale(stamp)
        if stamp.epoch <= self.epoch or stamp.after > position or claim.lsn > self.next_lsn:
            return _DOUBTFUL
        self._ended[self.chain] = position
        if len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]
        self.epoch, self.chain = stamp.epoch, claim.chain_at(self.next_lsn)
        self.claim_id, self.leader = claim.id, LeaderAddress(stamp.epoch, claim.node, claim.url)
        self.leaders = [*self.leaders[-MOST_NODES:], self.leader]
        self.resigned = self.leaving = self.hole = False
        self.notices.clear()
        self._drop_partial()
        return _COUNTS

    def _stale(self, stamp: Stamp) -> Applied:
        """Judge an entry by a node that had read the claims of `stamp.chain`, whose epoch is over. The node cannot have
        read the claim that ended the epoch. If it seems so, that claim is not in the log any more.
        """
        return _STALE if stamp.after <= self._ended.get(stamp.chain, -1) else _DOUBTFUL

    def _lost(self) -> Applied:
        self.hole = True
        return _DOUBTFUL

    def _begin_segment(self, entry: SegmentStart) -> Applied:
        try:
            header = read_file_header("an entry of the replicated log", entry.header)
        except JournalError:
            return _FOREIGN
        if header.type != TYPE_SEGMENT or (self.journal_id and header.journal_id != self.journal_id):
            return _FOREIGN
        if entry.end_lsn < self.next_lsn or entry.header == self.segment:
            return _DUPLICATE
        if entry.end_lsn > self.next_lsn or self._parts:
            return self._lost()
        if entry.header == self._filled:  # the empty segment behind it is given up
            self.segment = entry.header
            return Applied(Judgement.COUNTS, segment=entry)
        if header.lsn < self.next_lsn:
            return _FOREIGN
        if header.lsn > self.next_lsn:
            self.covered = header.lsn
        self.segment, self.journal_id, self.next_lsn = entry.header, header.journal_id, header.lsn
        return Applied(Judgement.COUNTS, segment=entry)

    def _add_chunk(self, chunk: FrameChunk) -> Applied:
        if chunk.lsn < self.next_lsn or (chunk.lsn == self.next_lsn and chunk.offset < self._received):
            return _DUPLICATE
        if not self.segment or chunk.lsn > self.next_lsn:
            return self._lost()
        if chunk.offset > self._received:
            return _PREMATURE
        if self._parts and chunk.size != self._size:
            return _FOREIGN
        self._parts.append(chunk.data)
        self._received += len(chunk.data)
        self._size = chunk.size
        if self._received < self._size:
            return _COUNTS
        frame = ReplicatedFrame(chunk.stamp.epoch, chunk.lsn, b"".join(self._parts))
        self._drop_frame()
        self.next_lsn += len(frame.data)
        self._filled = self.segment
        return Applied(Judgement.COUNTS, frame=frame)

    def _add_piece(self, chunk: SnapshotChunk, position: int) -> Applied:
        if self.snapshot is not None and chunk.lsn <= self.snapshot.lsn:
            return _DUPLICATE
        if chunk.lsn > self.next_lsn:
            return self._lost()
        lsn, size, received, first = self._unfinished or (chunk.lsn, chunk.size, 0, position)
        if chunk.lsn < lsn:
            return _STALE
        if chunk.lsn > lsn and not chunk.offset:  # the leader has given up the one before
            lsn, size, received, first = chunk.lsn, chunk.size, 0, position
        if chunk.lsn > lsn or chunk.offset > received:
            return _PREMATURE
        if chunk.offset < received:
            return _DUPLICATE
        if chunk.size != size:
            return _FOREIGN
        received += len(chunk.data)
        self._unfinished = lsn, size, received, first
        if received == size:
            self.snapshot, self._unfinished = SnapshotPlace(lsn, first), None
        return Applied(Judgement.COUNTS, snapshot=SnapshotPiece(lsn, size, chunk.offset, chunk.data))

    def _drop_partial(self) -> None:
        self._drop_frame()
        self._unfinished = None

    def _drop_frame(self) -> None:
        self._parts = []
        self._received = self._size = 0

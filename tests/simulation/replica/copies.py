"""A node's copy of the journal in memory."""

from __future__ import annotations

from collections.abc import Iterator

from escrowmq.journal.format import FILE_HEADER_SIZE, read_file_header
from escrowmq.replica.fold import ReplicatedFrame, SnapshotPiece
from escrowmq.replica.leader import CopiedFrame, CopiedPiece, CopiedStart
from tests.simulation.ledger import Violation


class Copy:
    """Segments, frames and snapshots. A crash leaves them."""

    def __init__(self) -> None:
        self.segments: dict[int, bytes] = {}
        """Headers, by the LSN where the segment begins."""
        self.frames: dict[int, bytes] = {}
        self.snapshots: dict[int, bytes] = {}
        self.reported: dict[int, list[bytes]] = {}
        """Frames that were set aside because the log has others there."""
        self._begun = 0
        """Where the segment begins that the log has begun last."""
        self._partial: dict[int, bytes] = {}

    @property
    def end(self) -> int:
        """The LSN behind the last frame."""
        if not self.frames:
            return 0
        last = next(reversed(self.frames))
        return last + len(self.frames[last])

    def clear(self) -> None:
        """Start over."""
        self.segments.clear()
        self.frames.clear()
        self.snapshots.clear()
        self._partial.clear()

    def segment(self, header: bytes, messages: int) -> None:
        """Keep a header. A segment behind the end belongs to a log of which the copy has no part that lives."""
        assert len(header) == FILE_HEADER_SIZE
        lsn = read_file_header("a segment", header).lsn
        if lsn > self.end:
            self.clear()
        if self.segments.get(lsn) != header:
            self._cut(lsn)
            self.segments[lsn] = header
        self._begun = lsn

    def frame(self, frame: ReplicatedFrame) -> None:
        """Keep a frame, or find it. A segment that the log has not begun there is one that the log has lost."""
        if frame.lsn != self._begun and frame.lsn in self.segments:
            self._cut(frame.lsn)
            del self.segments[frame.lsn]
        if self.frames.get(frame.lsn) == frame.data:
            return
        self._cut(frame.lsn)
        if self.frames and frame.lsn != self.end and frame.lsn not in self.segments:
            raise Violation(f"a frame at LSN {frame.lsn} does not follow the copy's end {self.end}")
        self.frames[frame.lsn] = frame.data

    def write(self, lsn: int, data: bytes) -> None:
        """Write the leader's own frame before it counts."""
        self.frames[lsn] = data

    def snapshot(self, piece: SnapshotPiece) -> None:
        """Keep a piece of a snapshot."""
        before = self._partial.get(piece.lsn, b"") if piece.offset else b""
        if len(before) != piece.offset:
            self._partial.pop(piece.lsn, None)  # the copy began in the middle of this snapshot
            return
        self._partial[piece.lsn] = before + piece.data
        if piece.last:
            self.snapshots = {piece.lsn: self._partial.pop(piece.lsn)}

    def pieces(self) -> Iterator[CopiedPiece]:
        """Yield headers and frames in order."""
        for lsn, data in list(self.frames.items()):
            if lsn in self.segments:
                yield CopiedStart(self.segments[lsn], 0)
            yield CopiedFrame(lsn, data)

    def _cut(self, lsn: int) -> None:
        """Set everything from `lsn` on aside."""
        for at in [each for each in self.frames if each >= lsn]:
            self.reported.setdefault(at, []).append(self.frames.pop(at))
        for at in [each for each in self.segments if each > lsn]:
            del self.segments[at]

"""A replicated log in memory, whose answers a test can change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from escrowmq.replica.entries import Entry, decode, encode
from escrowmq.replica.errors import AppendUnknown
from escrowmq.replica.fold import ReplicatedFrame, SnapshotPiece
from escrowmq.replica.log import StoredEntry


class Log:
    """The entries. `before` are stored ahead of the next append; the next `silent` appends are stored, not answered;
    the next `lost` ones are neither, and the next `refused` ones are refused.
    """

    def __init__(self, *entries: Entry) -> None:
        self.stored = [encode(entry) for entry in entries]
        self.first = 0
        self.before: list[Entry] = []
        self.silent = 0
        self.lost = 0
        self.refused = 0

    @property
    def entries(self) -> list[Entry]:
        """All entries."""
        return [decode(data) for data in self.stored]

    def append(self, entries: Sequence[bytes]) -> list[int]:
        """Store entries."""
        if self.refused:
            self.refused -= 1
            raise PermissionError("too large")
        if self.lost:
            self.lost -= 1
            raise AppendUnknown("no answer")
        self.stored += [encode(entry) for entry in self.before]
        self.before = []
        positions = list(range(self.end(), self.end() + len(entries)))
        self.stored += entries
        if self.silent:
            self.silent -= 1
            raise AppendUnknown("no answer")
        return positions

    def send(self, entries: Sequence[bytes]) -> Callable[[], list[int]]:
        """Store entries when the answer is asked for."""
        return partial(self.append, entries)

    def read(self, position: int, most: int) -> list[StoredEntry]:
        """Return entries."""
        at = max(0, position - self.first)
        return [StoredEntry(self.first + at + i, data) for i, data in enumerate(self.stored[at : at + most])]

    def glance(self, position: int, most: int) -> list[StoredEntry]:
        """Return entries."""
        return self.read(position, most)

    def begin(self) -> int:
        """Return the position of the oldest entry."""
        return self.first

    def end(self) -> int:
        """Return the position behind the newest entry."""
        return self.first + len(self.stored)

    def trim(self, before: int) -> None:
        """Delete entries."""
        del self.stored[: before - self.first]
        self.first = before


class Copy:
    """What a tail has handed on."""

    def __init__(self) -> None:
        self.segments: list[bytes] = []
        self.frames: list[ReplicatedFrame] = []
        self.snapshots: list[SnapshotPiece] = []

    def segment(self, header: bytes, messages: int) -> None:
        """Keep a header."""
        self.segments.append(header)

    def frame(self, frame: ReplicatedFrame) -> None:
        """Keep a frame."""
        self.frames.append(frame)

    def snapshot(self, piece: SnapshotPiece) -> None:
        """Keep a piece."""
        self.snapshots.append(piece)

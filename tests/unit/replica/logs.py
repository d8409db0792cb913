"""A replicated log in memory, whose answers a test can change."""

from __future__ import annotations

from collections.abc import Sequence

from escrowmq.replica.entries import Entry, decode, encode
from escrowmq.replica.errors import AppendUnknown
from escrowmq.replica.fold import ReplicatedFrame
from escrowmq.replica.log import StoredEntry


class Log:
    """The entries. `before` are stored ahead of the next append; the next `silent` appends are stored, not answered;
    the next `lost` ones are neither.
    """

    def __init__(self, *entries: Entry) -> None:
        self.stored = [encode(entry) for entry in entries]
        self.before: list[Entry] = []
        self.silent = 0
        self.lost = 0

    @property
    def entries(self) -> list[Entry]:
        """All entries."""
        return [decode(data) for data in self.stored]

    def append(self, entries: Sequence[bytes]) -> list[int]:
        """Store entries."""
        if self.lost:
            self.lost -= 1
            raise AppendUnknown("no answer")
        self.stored += [encode(entry) for entry in self.before]
        self.before = []
        positions = list(range(len(self.stored), len(self.stored) + len(entries)))
        self.stored += entries
        if self.silent:
            self.silent -= 1
            raise AppendUnknown("no answer")
        return positions

    def read(self, position: int, most: int) -> list[StoredEntry]:
        """Return entries."""
        return [StoredEntry(position + i, data) for i, data in enumerate(self.stored[position : position + most])]

    def begin(self) -> int:
        """Return 0."""
        return 0

    def end(self) -> int:
        """Return the number of entries."""
        return len(self.stored)


class Copy:
    """What a tail has handed on."""

    def __init__(self) -> None:
        self.segments: list[bytes] = []
        self.frames: list[ReplicatedFrame] = []

    def segment(self, header: bytes, messages: int) -> None:
        """Keep a header."""
        self.segments.append(header)

    def frame(self, frame: ReplicatedFrame) -> None:
        """Keep a frame."""
        self.frames.append(frame)

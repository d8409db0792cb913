"""Reads the replicated log in order, folds it, and hands on what counts."""

from __future__ import annotations

from typing import Final, Protocol

from escrowmq.replica.entries import decode
from escrowmq.replica.errors import EntriesLost
from escrowmq.replica.fold import Applied, Fold, Judgement, ReplicatedFrame
from escrowmq.replica.log import ReplicatedLog, StoredEntry

READ: Final = 64
"""The entries that are asked for at once, each of up to a megabyte."""


class LocalCopy(Protocol):
    """The node's own copy of the journal."""

    def segment(self, header: bytes, messages: int) -> None:
        """Begin a segment. The one before ever held so many messages."""
        ...

    def frame(self, frame: ReplicatedFrame) -> None:
        """Add a frame behind the last one."""
        ...


class LogTail:
    """A node's place in the log, and the state of the log there."""

    def __init__(self, log: ReplicatedLog, copy: LocalCopy, position: int = 0) -> None:
        self._log = log
        self._copy = copy
        self.position = position
        """The position of the next entry to read."""
        self.fold = Fold()
        self.counted = 0
        """The entries so far that counted. It grows while a leader is there."""

    def read_to_end(self) -> None:
        """Read everything that the log has now. Raises EntriesLost, EntryDamaged and OSError."""
        self.read_to(self._log.end())

    def read_to(self, end: int) -> None:
        """Read the entries before the position `end`. Raises EntriesLost, EntryDamaged and OSError."""
        if end < self.position:
            raise EntriesLost(end, f"it ends there, and this node has read up to {self.position}")
        while self.position < end:
            found = self._log.read(self.position, min(READ, end - self.position))
            if not found:
                raise EntriesLost(self.position, f"it is said to end at {end}")
            for stored in found:
                self.take(stored)

    def take(self, stored: StoredEntry) -> Applied:
        """Apply the entry at the next position. Raises EntriesLost if there is a gap before it, and EntryDamaged."""
        if stored.position != self.position:
            raise EntriesLost(self.position, f"the entry after it is at {stored.position}")
        applied = self.fold.apply(decode(stored.data))
        self.position += 1
        if applied.judgement is Judgement.COUNTS:
            self.counted += 1
        if applied.segment is not None:
            self._copy.segment(applied.segment.header, applied.segment.messages)
        if applied.frame is not None:
            self._copy.frame(applied.frame)
        return applied

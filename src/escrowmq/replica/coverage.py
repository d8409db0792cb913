"""Whether the files of a node are a journal that a broker can start with, by the rules of the journal's recovery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from escrowmq.journal.errors import JournalError
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.storage import Storage


class LackingPart(NamedTuple):
    """A part of the journal that is not in the files, although no snapshot covers it."""

    first_lsn: int
    end_lsn: int

    def __str__(self) -> str:
        return f"the journal from LSN {self.first_lsn:#x} to {self.end_lsn:#x}"


class OpenSegment(NamedTuple):
    """A segment that needs no footer, and where its frames end."""

    name: str
    end_lsn: int


def lacking_part(
    storage: Storage, segments: Sequence[tuple[int, str]], open_segment: OpenSegment | None, end: int, snapshot_lsn: int
) -> LackingPart | None:
    """Return the first part that is lacking; None if the files are whole. Raises OSError.

    Args:
        storage: The data directory.
        segments: LSN and name of each segment, in order.
        open_segment: The segment up to which the log was read, which gets a footer if another segment follows.
        end: The end of the journal in the log.
        snapshot_lsn: The LSN of the newest snapshot; 0 if there is none.
    """
    at = 0
    for i, (first, name) in enumerate(segments):
        if first > max(at, snapshot_lsn):
            return LackingPart(at, first)
        if open_segment is not None and name == open_segment.name:
            at = open_segment.end_lsn
            continue
        at = _end(storage, name)
        following = segments[i + 1][0] if i + 1 < len(segments) else None
        if following is not None and at < following and is_torn(storage, name, following):
            return LackingPart(at, following)
    if at < end and end > snapshot_lsn:
        return LackingPart(at, end)
    return LackingPart(at, snapshot_lsn) if at < snapshot_lsn else None


def is_torn(storage: Storage, name: str, following: int) -> bool:
    """Return whether a segment has no footer, and frames that do not reach the segment at `following`.

    The recovery refuses such a segment even if a snapshot covers it. Raises OSError.
    """
    try:
        file = JournalFile(storage, name)
    except JournalError:
        return True
    return file.footer is None and _end(storage, name) < following


def _end(storage: Storage, name: str) -> int:
    try:
        file = JournalFile(storage, name)
    except JournalError:
        return 0
    if file.footer is not None:
        return file.footer.end_lsn
    walk = file.walk()
    for _ in walk:
        pass
    return walk.lsn

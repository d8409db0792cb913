"""Brings the index up to date with the journal, piece by piece."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.history.events import found_in
from escrowmq.history.index import MessageIndex
from escrowmq.journal import format as fmt
from escrowmq.journal.frames import Frame
from escrowmq.journal.reader import JournalReader, RecordFound

PIECE: Final = 4 << 20
"""Bytes of the journal that are added in one transaction."""
_log = logging.getLogger("escrowmq.http")


def bring_up_to_date(folder: Path, index: MessageIndex) -> Iterator[int]:
    """Add what the journal in `folder` has and the index has not. Yield the address that was reached, after each piece.

    The last frame may not be synced, and disappear in a power cut. It is added, but read again the next time.
    Raises JournalDamaged, JournalVersionUnknown, OSError, sqlite3.Error.
    """
    reader = JournalReader.open(folder)
    try:
        starts = reader.segment_starts()
        if not starts:
            return
        oldest, newest = starts[0][0], reader.file(starts[-1][1])
        start = index.begin(newest.header.journal_id)
        if start < oldest:  # the broker has deleted the segments
            start = oldest
            index.prune(oldest)
            _add_names_of_snapshots(reader, index)
        frame: Frame | None = None
        begun = start
        for frame in reader.frames(start):
            _add_frame(index, frame)
            if frame.end_lsn - begun >= PIECE:
                index.commit(frame.lsn, frame.end_lsn)
                yield frame.end_lsn
                begun = index.begin(newest.header.journal_id)
                _add_frame(index, frame)
        index.prune(oldest)
        index.commit(start if frame is None else frame.lsn, start if frame is None else frame.end_lsn)
        yield start if frame is None else frame.end_lsn
    finally:
        reader.close()


def written_at(folder: Path) -> dict[str, int]:
    """Return when each segment was written to, in ns since the epoch."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.log")}


def _add_frame(index: MessageIndex, frame: Frame) -> None:
    for lsn, kind, payload in frame.records():
        if kind == Kind.QUEUE_DECLARED:
            _add_name(index, payload, lsn)
            continue
        try:
            index.add(found_in(kind, lsn, payload), lsn, frame.time_us)
        except (struct.error, ValueError, LookupError, TypeError, OverflowError) as error:
            _log.warning("the record at LSN %#x is not in the index of messages: %s", lsn, error)


def _add_names_of_snapshots(reader: JournalReader, index: MessageIndex) -> None:
    for name in reader.names(fmt.TYPE_SNAPSHOT):
        single = JournalReader(reader.storage, [name])
        for found in single.findings():
            if isinstance(found, RecordFound) and found.kind == Kind.QUEUE_DECLARED:
                _add_name(index, found.payload, found.lsn)


def _add_name(index: MessageIndex, payload: bytes | memoryview, lsn: int) -> None:
    fields = decode_change(payload)
    index.add_queue(fields["id"], fields["vhost"], fields["name"], lsn)

"""How an empty node begins: with the segments that still have living messages, and the newest snapshot.

The log has everything since the oldest living message. Most of it may be dead. The leader appends a map behind each
snapshot, and every report of a node says where the newest one is. The node reads each living segment by itself, and
then the log from the segment on in which the snapshot begins. What it reads there shows whether the map counts.
"""

from __future__ import annotations

from typing import Final

from escrowmq.replica.copy import DiskCopy
from escrowmq.replica.entries import LiveMap, MappedSegment, NodeReport, SegmentStart, decode
from escrowmq.replica.errors import EntriesLost
from escrowmq.replica.fold import Fold
from escrowmq.replica.log import ReplicatedLog, StoredEntry
from escrowmq.replica.tail import READ, LogTail, SegmentPlace

_MOST_SOUGHT: Final = 20_000
"""The newest entries among which a report is sought."""


def begun_by_map(log: ReplicatedLog, copy: DiskCopy) -> LogTail | None:
    """Copy the segments that live, and return a tail that reads what follows; None if the log has no map.

    The copy must be empty. When the tail has read the log to its end, `Fold.map` is not 0 if the map counted. Raises
    EntriesLost if the log is not what the map says, and OSError.
    """
    position = _newest_map(log)
    found = _map_at(log, position) if position else None
    if found is None or not found.segments:
        return None
    *living, begun = found.segments
    for each in living:
        _copy_segment(log, copy, each)
    tail = LogTail(log, copy, begun.position)
    tail.segments = [SegmentPlace(*each[:4]) for each in living]
    return tail


def _newest_map(log: ReplicatedLog) -> int:
    begin, end = log.begin(), log.end()
    least = max(begin, end - _MOST_SOUGHT)
    while end > least:
        first = max(least, end - READ)
        for stored in reversed(_between(log, first, end)):
            entry = decode(stored.data)
            if isinstance(entry, LiveMap):
                return stored.position
            if isinstance(entry, NodeReport) and entry.map:
                return entry.map if entry.map >= begin else 0
        end = first
    return 0


def _between(log: ReplicatedLog, first: int, end: int) -> list[StoredEntry]:
    """Return all entries of a range. An engine that is asked for many large ones returns only the first of them."""
    found: list[StoredEntry] = []
    while first < end and (part := log.read(first, end - first)):
        found += part
        first = part[-1].position + 1
    return found


def _map_at(log: ReplicatedLog, position: int) -> LiveMap | None:
    for stored in log.read(position, 1):
        entry = decode(stored.data)
        if stored.position == position and isinstance(entry, LiveMap):
            return entry
    return None


def _copy_segment(log: ReplicatedLog, copy: DiskCopy, segment: MappedSegment) -> None:
    """Copy a whole segment, which ends where the next one begins."""
    at, end = segment.position, log.end()
    fold, header = Fold(), b""
    while at < end:
        most = segment.end + 1 - at  # what follows may be dead
        found = log.read(at, min(READ, end - at, most if most > 0 else READ))
        if not found or found[0].position != at:
            break
        for stored in found:
            entry = decode(stored.data)
            if not header:
                if not isinstance(entry, SegmentStart) or (entry.stamp.epoch, entry.stamp.chain) != segment[2:4]:
                    raise EntriesLost(at, "it does not have a segment that a map of it names")
                fold, header = Fold.begun_at(entry), entry.header
                copy.segment(header, 0)
            applied = fold.apply(entry, stored.position)
            if applied.segment is not None and applied.segment.header != header:
                copy.close_segment(applied.segment.messages, applied.segment.end_lsn, applied.segment.header)
                return
            if applied.frame is not None:
                copy.frame(applied.frame)
            at = stored.position + 1
    raise EntriesLost(at, "it does not have the whole of a segment that a map of it names")

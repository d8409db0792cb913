"""Reads the journal for the console: records by address, in a thread, bounded in number.

The journal is read as a file, beside the broker, which is not asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from escrowmq.core.records.kinds import Kind
from escrowmq.inspection.describe import Fields, RecordError, describe, kind_of
from escrowmq.journal.reader import DamageFound, FileFound, FrameFound, JournalReader, RecordFound

SHOWN: Final = 100
"""Records on a page."""
SCANNED: Final = 2_000_000
"""The largest number of records that one page looks at, about ten seconds."""

_GROUPED: Final[dict[str, frozenset[Kind]]] = {
    "messages": frozenset(
        (Kind.PUBLISH, Kind.SETTLE, Kind.RETURNED, Kind.DELIVERIES, Kind.PLACED, Kind.MARKED, Kind.DELIVERED)
    ),
    "branches": frozenset(
        (Kind.COMMIT, Kind.PREPARE, Kind.ROLLBACK, Kind.HEURISTIC, Kind.FORGET, Kind.DECIDE, Kind.HELD, Kind.RELEASED)
    ),
    "half messages": frozenset(kind for kind in Kind if kind.name.startswith("HALF_")),
    "links": frozenset(
        (Kind.TERMINUS_SET, Kind.TERMINUS_DELETED, Kind.ARRIVED, Kind.FORGOTTEN, Kind.ACQUIRED, Kind.GIVEN_BACK)
    ),
    "groups": frozenset(kind for kind in Kind if kind.name.startswith("GROUP_")),
    "decisions": frozenset((Kind.HEURISTIC, Kind.FORGET, Kind.DECIDE, Kind.HALF_DECIDED)),
    "names": frozenset(kind for kind in Kind if Kind.VHOST_SET <= kind <= Kind.TOPIC_PERMISSION_DELETED)
    | {Kind.TRANSIENT_BOUND},
    "maintenance": frozenset(
        (Kind.RELOCATE, Kind.READDRESSED, Kind.COUNTERS, Kind.QUEUE_STATE, Kind.PAGE, Kind.DIGEST)
    ),
}
GROUPS: Final = _GROUPED | {"other": frozenset(Kind).difference(*_GROUPED.values())}
"""Filters of the timeline."""


class Line(NamedTuple):
    """One record, for people: `kind` is its name, or its number if this version does not know it."""

    file: str
    lsn: int
    time_us: int
    kind: str
    size: int
    fields: Fields


class LogPage(NamedTuple):
    """Records in the order of the log. `next_lsn` is where the page after it begins, None at the end of the log.
    `complete` is False if the search was given up before it had found as many records as a page has.
    """

    lines: list[Line]
    next_lsn: int | None
    complete: bool


def after(folder: Path, lsn: int, kinds: Collection[int] | None = None, most: int = SHOWN) -> LogPage:
    """Return the first `most` records from `lsn` on."""
    lines: list[Line] = []
    for looked, found in enumerate(_records(folder, lsn)):
        if looked >= SCANNED:
            return LogPage(lines, found.lsn, complete=False)
        if not _wanted(found.kind, kinds):
            continue
        if len(lines) == most:
            return LogPage(lines, found.lsn, complete=True)
        lines.append(_line(found, bytes(found.payload)))
    return LogPage(lines, None, complete=True)


def newest(folder: Path, kinds: Collection[int] | None = None, most: int = SHOWN) -> LogPage:
    """Return the last `most` records of the log, of at most `SCANNED` in as many of its last segments as are needed."""
    reader = JournalReader.open(folder)
    try:
        starts = [start for start, _ in reader.segment_starts()]
    finally:
        reader.close()
    kept: deque[tuple[RecordFound, bytes]] = deque()
    end: int | None = None
    looked = 0
    for start in reversed(starts):
        latest: deque[tuple[RecordFound, bytes]] = deque(maxlen=most - len(kept))
        for found in _records(folder, start):
            if end is not None and found.lsn >= end:
                break
            looked += 1
            if _wanted(found.kind, kinds):
                latest.append((found, bytes(found.payload)))
        kept.extendleft(reversed(latest))
        end = start
        if len(kept) >= most or looked >= SCANNED:
            break
    return LogPage(
        [_line(found, payload) for found, payload in kept], None, complete=len(kept) >= most or looked < SCANNED
    )


def record_at(folder: Path, lsn: int) -> Line | None:
    """Return the record at an address; None if none begins there."""
    found = next(_records(folder, lsn), None)
    return _line(found, bytes(found.payload)) if found is not None and found.lsn == lsn else None


def _wanted(kind: int, kinds: Collection[int] | None) -> bool:
    # Without a filter, the digests that the journal adds to each frame would only be in the way.
    return kind != Kind.DIGEST if kinds is None else kind in kinds


def _records(folder: Path, lsn: int) -> Iterator[RecordFound]:
    reader = JournalReader.open(folder)
    try:
        snapshot = False
        for finding in reader.findings(lsn):
            match finding:
                case FileFound():
                    snapshot = finding.file.endswith(".snapshot")
                case RecordFound() if not snapshot and finding.lsn >= lsn:
                    yield finding
                case FrameFound() | DamageFound():
                    pass
    finally:
        reader.close()


def _line(found: RecordFound, payload: bytes) -> Line:
    try:
        kind = kind_of(found.kind)
        name, fields = kind.name, describe(kind, payload)
    except RecordError as error:
        name, fields = str(found.kind), {"unreadable": str(error)}
    return Line(found.file, found.lsn, found.time_us, name, len(payload), fields)

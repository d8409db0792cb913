"""Reads the journal for operators: records and damage by address, bounded in number.

The journal is read as files, beside the broker, which is not asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from escrowmq.admin.http.listing import BadQuery
from escrowmq.core.records.kinds import Kind
from escrowmq.inspection.describe import Fields, RecordError, describe, kind_of
from escrowmq.journal import format as fmt
from escrowmq.journal.reader import DamageFound, GapFound, JournalReader, RecordFound

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
    | {Kind.TRANSIENT_BOUND}
    | frozenset(kind for kind in Kind if Kind.POLICY_SET <= kind <= Kind.PARAMETER_DELETED),
    "maintenance": frozenset(
        (Kind.RELOCATE, Kind.READDRESSED, Kind.COUNTERS, Kind.QUEUE_STATE, Kind.PAGE, Kind.DIGEST, Kind.REMOVED)
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


class DamagedPart(NamedTuple):
    """A part of the log that cannot be read: `size` bytes from the address `lsn` on."""

    file: str
    lsn: int
    size: int
    why: str


class LogPage(NamedTuple):
    """Records and damaged parts in the order of the log. `next_lsn` is where the page after it begins, None at the end
    of the log. `complete` is False if the search was given up before the page was full.
    """

    lines: list[Line]
    damage: list[DamagedPart]
    next_lsn: int | None
    complete: bool

    @property
    def entries(self) -> list[Line | DamagedPart]:
        """Records and damaged parts together, by address."""
        return sorted([*self.lines, *self.damage], key=lambda entry: entry.lsn)


def lsn_of(text: str) -> int:
    """Return the address that a text gives, decimal or with 0x. Raises BadQuery."""
    try:
        lsn = int(text.strip(), 0)
    except ValueError:
        lsn = -1
    if not 0 <= lsn < 1 << 63:
        raise BadQuery(f"{text!r} is not an LSN; give a number like 4096 or 0x1000")
    return lsn


def kinds_of(text: str) -> frozenset[Kind] | None:
    """Return the kinds that a text names: kinds and groups of kinds, separated by commas; None for all. Raises
    BadQuery.
    """
    if not text:
        return None
    found: frozenset[Kind] = frozenset()
    for name in text.split(","):
        kind = Kind.__members__.get(name.strip().upper())
        named = GROUPS.get(name.strip().lower()) if kind is None else frozenset((kind,))
        if named is None:
            raise BadQuery(f"{name!r} is no kind of record, and none of the groups {', '.join(GROUPS)}")
        found |= named
    return found


def after(
    folder: Path, lsn: int, kinds: Collection[int] | None = None, most: int = SHOWN, end: int | None = None
) -> LogPage:
    """Return the first `most` records and damaged parts from `lsn` on, and before `end`."""
    found: list[Line | DamagedPart] = []
    for looked, each in enumerate(_findings(folder, lsn)):
        if end is not None and each.lsn >= end:
            break
        if looked >= SCANNED:
            return _page(found, max(each.lsn, lsn), complete=False)
        if not _wanted(each, kinds):
            continue
        if len(found) == most:
            return _page(found, max(each.lsn, lsn), complete=True)
        found.append(each if isinstance(each, DamagedPart) else line_of(each))
    return _page(found, None, complete=True)


def newest(folder: Path, kinds: Collection[int] | None = None, most: int = SHOWN) -> LogPage:
    """Return the last `most` records and damaged parts of the log. At most `SCANNED` are looked at, in as many of the
    last segments as are needed.
    """
    reader = JournalReader.open(folder)
    try:
        starts = [start for start, _ in reader.segment_starts()]
    finally:
        reader.close()
    kept: deque[RecordFound | DamagedPart] = deque()
    end: int | None = None
    looked = 0
    for start in reversed(starts):
        latest: deque[RecordFound | DamagedPart] = deque(maxlen=most - len(kept))
        for found in _findings(folder, start):
            if end is not None and found.lsn >= end:
                break
            looked += 1
            if _wanted(found, kinds):
                latest.append(_kept(found))
        kept.extendleft(reversed(latest))
        end = start
        if len(kept) >= most or looked >= SCANNED:
            break
    entries = [each if isinstance(each, DamagedPart) else line_of(each) for each in kept]
    return _page(entries, None, complete=len(kept) >= most or looked < SCANNED)


def record_at(folder: Path, lsn: int) -> Line | DamagedPart | None:
    """Return the record at an address, or the damaged part in which the address is; None if no record begins there."""
    for found in _findings(folder, lsn):
        if isinstance(found, DamagedPart):
            if found.lsn <= lsn:
                return found
            return None
        return line_of(found) if found.lsn == lsn else None
    return None


def _wanted(found: RecordFound | DamagedPart, kinds: Collection[int] | None) -> bool:
    if isinstance(found, DamagedPart):  # what it was nobody knows, so it belongs to every selection
        return True
    # Without a filter, the digests that the journal adds to each frame would only be in the way.
    return found.kind != Kind.DIGEST if kinds is None else found.kind in kinds


def _findings(folder: Path, lsn: int) -> Iterator[RecordFound | DamagedPart]:
    """Yield the records from `lsn` on, and the damaged parts that end after it. A write that has not finished is none:
    a running broker finishes it, and the next start cuts it off.
    """
    reader = JournalReader.open(folder)
    try:
        snapshot = max((fmt.parse_name(name) or (0, 0) for name in reader.names(fmt.TYPE_SNAPSHOT)), default=(0, 0))[1]
        for finding in JournalReader(reader.storage, reader.names(fmt.TYPE_SEGMENT)).findings(lsn):
            match finding:
                case RecordFound() if finding.lsn >= lsn:
                    yield finding
                case DamageFound(tail=False):
                    damage = _damage(finding)
                    if damage.lsn + damage.size > lsn:
                        yield damage
                case GapFound(first, end) if end > max(snapshot, lsn):
                    yield DamagedPart(fmt.segment_name(first), first, end - first, "this part of the log is missing")
                case _:
                    pass
    finally:
        reader.close()


def _damage(found: DamageFound) -> DamagedPart:
    _, origin = fmt.parse_name(found.file) or (0, 0)
    return DamagedPart(found.file, origin + max(found.offset - fmt.FILE_HEADER_SIZE, 0), found.size, found.why)


def _kept(found: RecordFound | DamagedPart) -> RecordFound | DamagedPart:
    """Return a record that does not keep the part of the file in memory in which it is."""
    return found if isinstance(found, DamagedPart) else replace(found, payload=memoryview(bytes(found.payload)))


def _page(entries: Sequence[Line | DamagedPart], next_lsn: int | None, *, complete: bool) -> LogPage:
    return LogPage(
        [each for each in entries if isinstance(each, Line)],
        [each for each in entries if isinstance(each, DamagedPart)],
        next_lsn,
        complete,
    )


def line_of(found: RecordFound) -> Line:
    """Return a record for people."""
    try:
        kind = kind_of(found.kind)
        name, fields = kind.name, describe(kind, found.payload)
    except RecordError as error:
        name, fields = str(found.kind), {"unreadable": str(error)}
    return Line(found.file, found.lsn, found.time_us, name, len(found.payload), fields)

"""The journal as a timeline by address: what was written and synced together, starts of the broker, snapshots,
compactions, and decisions. Like `log`, it reads files beside the broker, which is not asked.

A frame is what one write and one sync have brought to disk.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from escrowmq.core.records.kinds import STARTED, Kind
from escrowmq.evidence.log import GROUPS, SCANNED, line_of
from escrowmq.inspection.describe import Fields, RecordError, kind_of
from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalError
from escrowmq.journal.reader import DamageFound, FileFound, Finding, FrameFound, GapFound, JournalReader, RecordFound

SHOWN: Final = 100
"""Moments on a page."""
FRAME: Final = "frame"
SEGMENT: Final = "segment"
START: Final = "start"
SNAPSHOT: Final = "snapshot"
COMPACTION: Final = "compaction"
DECISION: Final = "decision"
OPERATOR: Final = "operator"
DAMAGE: Final = "damage"
FILTERS: Final = {
    "frames": frozenset((FRAME,)),
    "starts": frozenset((START,)),
    "snapshots": frozenset((SNAPSHOT,)),
    "compactions": frozenset((COMPACTION, SEGMENT)),
    "decisions": frozenset((DECISION, OPERATOR)),
}
"""What can be chosen. Damage is always shown."""
_COMPACTING: Final = frozenset((Kind.RELOCATE, Kind.READDRESSED, Kind.REMOVED))


class TimelineMoment(NamedTuple):
    """Something at an address. `end_lsn` is where a frame ends, else 0. `opens` says whether a record begins there."""

    lsn: int
    time_us: int | None
    what: str
    text: str
    fields: Fields | None = None
    end_lsn: int = 0
    opens: bool = False


class TimelinePage(NamedTuple):
    """Moments in order of addresses. `next_lsn` is where the page after it begins, None at the end of the log.
    `complete` is False if the search was given up before the page was full.
    """

    moments: list[TimelineMoment]
    next_lsn: int | None
    complete: bool


def after(folder: Path, lsn: int, wanted: str = "", most: int = SHOWN) -> TimelinePage:
    """Return the first moments from `lsn` on, all or those of a filter."""
    found: list[TimelineMoment] = []
    for looked, moment in enumerate(_moments(folder, lsn)):
        if len(found) >= most and moment.lsn > found[-1].lsn:
            return TimelinePage(found, moment.lsn, complete=True)
        if looked >= SCANNED:
            return TimelinePage(found, moment.lsn, complete=False)
        if _is_wanted(moment, wanted):
            found.append(moment)
    return TimelinePage(found, None, complete=True)


def newest(folder: Path, wanted: str = "", most: int = SHOWN) -> TimelinePage:
    """Return the last moments, all or those of a filter."""
    reader = JournalReader.open(folder)
    try:
        starts = [start for start, _ in reader.segment_starts()]
    finally:
        reader.close()
    kept: deque[TimelineMoment] = deque()
    end: int | None = None
    looked = 0
    for start in reversed(starts):
        latest: deque[TimelineMoment] = deque(maxlen=most - len(kept))
        for moment in _moments(folder, start):
            if end is not None and moment.lsn >= end:
                break
            looked += 1
            if _is_wanted(moment, wanted):
                latest.append(moment)
        kept.extendleft(reversed(latest))
        end = start
        if len(kept) >= most or looked >= SCANNED:
            break
    return TimelinePage(list(kept), None, complete=len(kept) >= most or looked < SCANNED)


def _is_wanted(moment: TimelineMoment, wanted: str) -> bool:
    return not wanted or moment.what == DAMAGE or moment.what in FILTERS.get(wanted, ())


def _moments(folder: Path, lsn: int) -> Iterator[TimelineMoment]:
    """Yield the moments from `lsn` on, with the snapshots among them."""
    reader = JournalReader.open(folder)
    try:
        snapshots = deque(sorted(moment for moment in _snapshots(reader) if moment.lsn >= lsn))
        for finding in JournalReader(reader.storage, reader.names(fmt.TYPE_SEGMENT)).findings(lsn):
            for moment in _of(finding, lsn):
                while snapshots and snapshots[0].lsn <= moment.lsn:
                    yield snapshots.popleft()
                yield moment
        yield from snapshots
    finally:
        reader.close()


def _snapshots(reader: JournalReader) -> Iterator[TimelineMoment]:
    for name in reader.names(fmt.TYPE_SNAPSHOT):
        try:
            header = reader.file(name).header
        except (JournalError, OSError):  # damaged, which the list of records says, or deleted meanwhile
            continue
        text = f"snapshot of everything before this address ({name})"
        yield TimelineMoment(header.lsn, header.created_us, SNAPSHOT, text)


def _of(finding: Finding, lsn: int) -> Iterator[TimelineMoment]:
    match finding:
        case FileFound(file, _, header, _) if header.lsn >= lsn:
            yield TimelineMoment(header.lsn, header.created_us, SEGMENT, f"segment {file} begins")
        case FrameFound(_, _, frame) if frame.lsn >= lsn:
            yield TimelineMoment(frame.lsn, frame.time_us, FRAME, _contents(bytes(frame.kinds)), end_lsn=frame.end_lsn)
        case RecordFound() if finding.lsn >= lsn:
            moment = _of_record(finding)
            if moment is not None:
                yield moment
        case DamageFound(file, _, size, why, tail=False):
            yield TimelineMoment(_address(finding), None, DAMAGE, f"{size} bytes of {file} cannot be read: {why}")
        case GapFound(first, end) if end > lsn:
            yield TimelineMoment(
                first, None, COMPACTION, f"no segment has the log up to {end:#x}: it was dead, or is lost"
            )
        case _:
            pass


def _of_record(found: RecordFound) -> TimelineMoment | None:
    if found.kind in _COMPACTING:
        what, text = COMPACTION, Kind(found.kind).name
    elif found.kind in GROUPS["decisions"]:
        what, text = DECISION, Kind(found.kind).name
    elif found.kind == Kind.OPERATED:
        what, text = OPERATOR, Kind.OPERATED.name
    else:
        return None
    fields = line_of(found).fields
    if what == OPERATOR and fields.get("operation") == STARTED:
        what, text = START, "the broker started"
    return TimelineMoment(found.lsn, found.time_us, what, text, fields, opens=True)


def _contents(kinds: bytes) -> str:
    """Say what records of these kinds a frame has, without the digest that the journal adds."""
    counts = Counter(kinds)
    counts.pop(Kind.DIGEST, None)
    return ", ".join(f"{count:,} {_name(kind)}" for kind, count in counts.most_common()) or "nothing but a digest"


def _name(number: int) -> str:
    try:
        return kind_of(number).name.lower().replace("_", " ")
    except RecordError:
        return f"of kind {number}"


def _address(found: DamageFound) -> int:
    _, origin = fmt.parse_name(found.file) or (0, 0)
    return origin + max(found.offset - fmt.FILE_HEADER_SIZE, 0)

"""What the journal's reader finds, gathered by file, every record's content checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from escrowmq.core.records.kinds import Kind
from escrowmq.inspection.describe import Fields, RecordError, describe, kind_of, tally
from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged, JournalVersionUnknown
from escrowmq.journal.reader import DamageFound, FileFound, FrameFound, GapFound, JournalReader, RecordFound
from escrowmq.journal.recovery import examine
from escrowmq.journal.storage import Storage


class Fault(NamedTuple):
    """Something that is not whole: where, and what."""

    file: str
    offset: int
    why: str

    def __str__(self) -> str:
        return f"{self.file} at offset {self.offset}: {self.why}"


class Record(NamedTuple):
    """One record: the file it lies in, its address there, when it was written (µs since the epoch), what it says."""

    file: str
    lsn: int
    time_us: int
    kind: Kind
    size: int
    fields: Fields


@dataclass(slots=True)
class FileReport:
    """What one segment or snapshot holds. `end_lsn` is where its last whole frame ends."""

    name: str
    size: int = 0
    lsn: int = 0
    end_lsn: int = 0
    sealed: bool = False
    frames: int = 0
    first_time_us: int = 0
    last_time_us: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    torn: str = ""
    """A tail that a crash left in the middle of a write; no damage, recovery cuts it off."""

    @property
    def snapshot(self) -> bool:
        """Whether it is a snapshot; else it is a segment."""
        return self.name.endswith(".snapshot")

    @property
    def records(self) -> int:
        """How many whole records."""
        return self.kinds.total()


def scan(
    reader: JournalReader, start: int, progress: Callable[[int], object]
) -> Iterator[Record | FileReport | GapFound]:
    """Yield every whole record from LSN `start` on, after the last one of a file its report, and gaps between files.

    `progress` is told how many more bytes were read.
    """
    report: FileReport | None = None
    for finding in reader.findings(start):
        if isinstance(finding, GapFound):
            yield finding
            continue
        if report is None or report.name != finding.file:
            if report is not None:
                yield report
            report = FileReport(finding.file)
        match finding:
            case FileFound():
                report.size, report.lsn, report.sealed = finding.size, finding.header.lsn, finding.footer is not None
                report.end_lsn = finding.header.lsn
            case FrameFound(frame=frame):
                report.frames += 1
                report.first_time_us = report.first_time_us or frame.time_us
                report.last_time_us = frame.time_us
                report.end_lsn = frame.end_lsn
                progress(frame.end_lsn - frame.lsn)
            case DamageFound():
                report.size = max(report.size, finding.offset + finding.size)  # without a file header, all there is
                if finding.tail:
                    report.torn = f"{finding.size} bytes from offset {finding.offset}: {finding.why}"
                else:
                    why = f"{finding.why} ({finding.size} bytes are lost)"
                    report.faults.append(Fault(finding.file, finding.offset, why))
            case RecordFound():
                if finding.lsn >= start:
                    record = _record(finding, report)
                    if record is not None:
                        yield record
    if report is not None:
        yield report


def _record(found: RecordFound, report: FileReport) -> Record | None:
    try:
        kind = kind_of(found.kind)
        fields = describe(kind, found.payload)
    except RecordError as error:
        report.faults.append(Fault(found.file, found.offset, f"record at LSN {found.lsn:#x}: {error}"))
        return None
    report.kinds[kind.name] += 1
    tally(kind, fields, report.messages)
    return Record(found.file, found.lsn, found.time_us, kind, len(found.payload), fields)


def gap_faults(gaps: list[GapFound], reports: list[FileReport]) -> list[Fault]:
    """Missing segments. A gap below the newest whole snapshot is none: dead segments were deleted there."""
    snapshot = max((report.lsn for report in reports if report.snapshot and not report.faults), default=0)
    return [
        Fault(fmt.segment_name(gap.first_lsn), 0, f"the log from LSN {gap.first_lsn:#x} to {gap.end_lsn:#x} is missing")
        for gap in gaps
        if gap.end_lsn > snapshot
    ]


def verdict(storage: Storage) -> str | None:
    """Why a broker would refuse to start on this directory; None if it would start."""
    try:
        examine(storage)
    except (JournalDamaged, JournalVersionUnknown) as error:
        return str(error)
    except FileNotFoundError:  # a broker runs here, and has just deleted a dead segment
        return None
    return None

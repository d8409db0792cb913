"""Collects the findings of the journal's reader by file, and checks the content of every record."""

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
    """A damaged place in a file."""

    file: str
    offset: int
    why: str

    def __str__(self) -> str:
        return f"{self.file} at offset {self.offset}: {self.why}"


class Record(NamedTuple):
    """One record: its file, its address there, when it was written (µs since the epoch), and its fields."""

    file: str
    lsn: int
    time_us: int
    kind: Kind
    size: int
    fields: Fields


@dataclass(slots=True)
class FileReport:
    """A summary of one segment or snapshot. `end_lsn` is where its last intact frame ends."""

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
    """Describes a tail that a crash left during a write. It is not damage: recovery cuts it off."""

    @property
    def snapshot(self) -> bool:
        """Whether it is a snapshot rather than a segment."""
        return self.name.endswith(".snapshot")

    @property
    def records(self) -> int:
        """The number of valid records."""
        return self.kinds.total()


def scan(
    reader: JournalReader, start: int, progress: Callable[[int], object]
) -> Iterator[Record | FileReport | GapFound]:
    """Yield every valid record from LSN `start` on, each file's report after its last record, and gaps between files.

    `progress` is called with the number of bytes that were read since its last call.
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
                report.size = max(
                    report.size, finding.offset + finding.size
                )  # a file without a valid header has no size yet
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
    """Return a fault for each missing segment.

    A gap below the newest intact snapshot is not a fault, because dead segments were deleted there.
    """
    snapshot = max((report.lsn for report in reports if report.snapshot and not report.faults), default=0)
    return [
        Fault(fmt.segment_name(gap.first_lsn), 0, f"the log from LSN {gap.first_lsn:#x} to {gap.end_lsn:#x} is missing")
        for gap in gaps
        if gap.end_lsn > snapshot
    ]


def verdict(storage: Storage) -> str | None:
    """Return why a broker would refuse to start on this directory, or None if it would start."""
    try:
        examine(storage)
    except (JournalDamaged, JournalVersionUnknown) as error:
        return str(error)
    except FileNotFoundError:  # a running broker has just deleted a dead segment
        return None
    return None

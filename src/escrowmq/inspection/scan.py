"""Reading a journal's files frame by frame and record by record, on past what is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from escrowmq.core.records import Kind
from escrowmq.inspection.describe import Fields, RecordError, describe, kind_of, tally
from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged, JournalVersionUnknown
from escrowmq.journal.frames import Frame, JournalFile
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
    snapshot: bool
    size: int
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
    def records(self) -> int:
        """How many whole records."""
        return self.kinds.total()


def names_of(storage: Storage) -> list[str]:
    """The journal files of a directory: snapshots and segments, in the order of their LSNs."""
    return [name for name in storage.names() if fmt.parse_name(name) is not None]


def scan(
    storage: Storage, name: str, *, last: bool, progress: Callable[[int], object], start: int = 0
) -> Iterator[Record | FileReport]:
    """Yield every whole record of a file from LSN `start` on, then its report.

    `last`: nothing follows this file in the log, so what is broken at its end is a torn tail. `progress` is told how
    many more bytes were read. A frame that is not whole is reported, and reading goes on at the next whole one.
    """
    parsed = fmt.parse_name(name)
    report = FileReport(name, parsed is not None and parsed[0] == fmt.TYPE_SNAPSHOT, storage.size(name))
    try:
        file = JournalFile(storage, name)
    except JournalDamaged as error:
        report.faults.append(Fault(error.file, error.offset, error.why))
    except JournalVersionUnknown as error:
        report.faults.append(Fault(name, 8, str(error)))
    else:
        report.snapshot = file.header.type == fmt.TYPE_SNAPSHOT
        report.lsn = file.header.lsn
        report.sealed = file.footer is not None
        yield from _frames(file, report, last=last, progress=progress, start=start)
    yield report


def _frames(
    file: JournalFile, report: FileReport, *, last: bool, progress: Callable[[int], object], start: int
) -> Iterator[Record]:
    end = file.footer.end_lsn if file.footer else None
    lsn = report.end_lsn = file.origin
    while True:
        walk = file.walk(lsn, end)
        for frame in walk:
            _count(frame, report)
            progress(frame.end_lsn - frame.lsn)
            if frame.end_lsn > start:
                yield from _records(file, frame, report, start)
        report.end_lsn = walk.lsn
        if end is not None and walk.lsn >= end:
            return
        tail = file.tail(walk.lsn)
        if tail.later_frame is not None:
            report.faults.append(
                Fault(file.name, tail.offset, f"{walk.why}; reading goes on at offset {tail.later_frame}")
            )
            lsn = tail.later_frame - fmt.FILE_HEADER_SIZE + file.origin
            continue
        if report.sealed or report.snapshot or (tail.size and not last):
            why = walk.why or "the file ends before its last frame"
            report.faults.append(Fault(file.name, tail.offset, f"{why}; no whole frame follows"))
        elif tail.size:
            report.torn = f"{tail.size} bytes from offset {tail.offset}: {walk.why or 'no frame begins here'}"
        return


def _count(frame: Frame, report: FileReport) -> None:
    report.frames += 1
    report.first_time_us = report.first_time_us or frame.time_us
    report.last_time_us = frame.time_us


def _records(file: JournalFile, frame: Frame, report: FileReport, start: int) -> Iterator[Record]:
    for lsn, number, payload in frame.records():
        if lsn < start:
            continue
        try:
            kind = kind_of(number)
            fields = describe(kind, payload)
        except RecordError as error:
            report.faults.append(Fault(file.name, file.offset_of(lsn), f"record at LSN {lsn:#x}: {error}"))
            continue
        report.kinds[kind.name] += 1
        tally(kind, fields, report.messages)
        yield Record(file.name, lsn, frame.time_us, kind, len(payload), fields)


def chain_faults(reports: Iterable[FileReport]) -> list[Fault]:
    """Gaps and overlaps between segments. A gap below the newest snapshot is where dead segments were deleted."""
    reports = list(reports)
    snapshot = max((report.lsn for report in reports if report.snapshot and not report.faults), default=0)
    segments = [report for report in reports if not report.snapshot]
    faults = []
    for before, after in pairwise(segments):
        if after.lsn < before.end_lsn:
            faults.append(Fault(after.name, 32, f"begins at LSN {after.lsn:#x}, before {before.name} ends"))
        elif after.lsn > max(before.end_lsn, snapshot) and not before.faults:
            why = f"the log from LSN {before.end_lsn:#x} to {after.lsn:#x} is missing"
            faults.append(Fault(after.name, 32, why))
    return faults


def verdict(storage: Storage) -> str | None:
    """Why a broker would refuse to start on this directory; None if it would start."""
    try:
        examine(storage)
    except (JournalDamaged, JournalVersionUnknown) as error:
        return str(error)
    return None

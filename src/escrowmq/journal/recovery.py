"""Examines a data directory: the newest intact snapshot, the chain of segments, the end of the log.

`examine` changes nothing. A damaged tail is reported and left to `repair`; any other damage is refused (DUR-3).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field, replace

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.frames import Frame, JournalFile
from escrowmq.journal.segments import Segment
from escrowmq.journal.storage import Readable, Storage
from escrowmq.journal.writer import FooterBuilder, write_footer


@dataclass(slots=True)
class RecoveryReport:
    """The results of recovery, for the broker's log and for `escrowmq inspect`."""

    end_lsn: int = 0
    """The end of the log, where new records are appended."""
    snapshot_lsn: int = 0
    snapshot_file: str | None = None
    segments: int = 0
    cut_file: str | None = None
    """The file whose tail was cut off; None if the log ended cleanly."""
    cut_offset: int = 0
    cut_bytes: int = 0
    """The number of bytes from `cut_offset` to the last one that was not zero."""
    cut_why: str = ""
    notes: list[str] = field(default_factory=list)
    """Damage without consequences, such as a broken footer or an unreadable snapshot that was not needed."""
    snapshot_records: int = 0
    """The number of records replayed from the snapshot."""
    log_frames: int = 0
    log_records: int = 0
    """The number of records replayed from the log."""

    def __str__(self) -> str:
        text = f"journal: {_counted(self.segments, 'segment')}, log ends at LSN {self.end_lsn:#x}"
        if self.snapshot_file is not None:
            text += f", snapshot {self.snapshot_file} with {_counted(self.snapshot_records, 'record')}"
        text += f", {_counted(self.log_records, 'record')} in {_counted(self.log_frames, 'frame')} replayed"
        if self.cut_file is not None:
            cut = f"{_counted(self.cut_bytes, 'byte')} of {self.cut_file} from offset {self.cut_offset}"
            text += f"; cut off {cut}: {self.cut_why}"
        return "; ".join([text, *self.notes])


@dataclass(slots=True)
class Found:
    """The content of a data directory before replay."""

    journal_id: bytes | None
    """None if the directory is empty."""
    snapshot: JournalFile | None
    segments: list[Segment]
    end_lsn: int
    report: RecoveryReport
    files: dict[int, JournalFile] = field(default_factory=dict)
    """The files of the segments, by first LSN."""
    last_file: JournalFile | None = None
    last_footer: fmt.Footer | None = None
    last_frame: Frame | None = None
    """The last frame of an unsealed last segment, which may be only in the page cache. A segment is sealed only after
    its frames were synced, so those of a sealed one are on the disk."""
    leftovers: list[str] = field(default_factory=list)
    """Files to delete: temporary files of interrupted work, and superseded snapshots."""

    @property
    def link(self) -> bytes:
        """The link to the last segment for the header of the next one. An empty segment is replaced by that one."""
        file, footer = self.last_file, self.last_footer
        if file is None or footer is None or not (footer.chain or not footer.frames):
            return bytes(fmt.LINK_SIZE)
        return footer.chain[: fmt.LINK_SIZE] if footer.frames else file.header.link

    @property
    def end_us(self) -> int:
        """The time of the last frame of the last segment, in microseconds since 1970 UTC; 0 if it has none."""
        return 0 if self.last_footer is None else self.last_footer.last_time_us

    @property
    def noting(self) -> bool:
        """Whether the log has a frame of a version that notes which segments it deletes."""
        return any(file.header.version >= fmt.NOTED_VERSION for file in self.files.values())


def examine(storage: Readable, *, chain_contents: bool = False) -> Found:
    """Examine the directory. `chain_contents` is as for FooterBuilder.

    Raises:
        JournalDamaged: There is damage that is not at the tail (DUR-3).
        JournalVersionUnknown: A file has a newer format version.
        OSError: From the storage.
    """
    snapshots: list[str] = []
    segments: list[str] = []
    leftovers: list[str] = []
    for name in storage.names():
        parsed = fmt.parse_name(name)
        if parsed is not None:
            (segments if parsed[0] == fmt.TYPE_SEGMENT else snapshots).append(name)
        elif name.endswith(".tmp"):
            leftovers.append(name)
    report = RecoveryReport()
    snapshot, damages = _newest_snapshot(storage, snapshots)
    found = Found(snapshot.header.journal_id if snapshot else None, snapshot, [], 0, report, leftovers=leftovers)
    leftovers += [name for name in snapshots if snapshot is not None and name != snapshot.name]
    if snapshot is not None:
        report.snapshot_lsn, report.snapshot_file = snapshot.header.lsn, snapshot.name
    try:
        _chain(storage, segments, found, chain_contents=chain_contents)
        if damages and not segments and snapshot is None:
            raise JournalDamaged(fmt.segment_name(0), 0, "there is no log")
    except JournalDamaged as error:
        if not damages:
            raise
        # The missing segments were deleted because the snapshot covered them, so the snapshot is the cause.
        cause = damages[-1]
        log = f"{error.file} at offset {error.offset}: {error.why}"
        why = f"{cause.why}, and the log cannot replace the snapshot: {log}"
        raise JournalDamaged(cause.file, cause.offset, why) from error
    instead = f"snapshot {snapshot.name} and the log after it are" if snapshot else "the log is complete and is"
    report.notes += [f"{damage}; {instead} replayed in full instead" for damage in damages]
    report.end_lsn = found.end_lsn
    report.segments = sum(not segment.missing for segment in found.segments)
    return found


def _newest_snapshot(storage: Readable, names: list[str]) -> tuple[JournalFile | None, list[JournalDamaged]]:
    """Return the newest intact snapshot, and the errors of all newer ones in ascending order."""
    damages: list[JournalDamaged] = []
    for name in reversed(names):
        try:
            file = JournalFile(storage, name)
            check_snapshot(file)
        except JournalDamaged as error:
            damages.insert(0, error)
        else:
            return file, damages
    return None, damages


def check_snapshot(file: JournalFile) -> None:
    """Raise JournalDamaged unless the snapshot is intact."""
    footer = file.footer
    if footer is None:
        raise JournalDamaged(file.name, file.storage.size(file.name), "the snapshot has no intact footer")
    walk = file.walk(end=footer.end_lsn)
    for _ in walk:
        pass
    if walk.lsn != footer.end_lsn:
        raise JournalDamaged(file.name, walk.offset, walk.why)


def _chain(storage: Readable, names: list[str], found: Found, *, chain_contents: bool) -> None:
    snapshot_lsn = found.report.snapshot_lsn
    files = [JournalFile(storage, name) for name in names]
    for file in files:
        if found.journal_id is None:
            found.journal_id = file.header.journal_id
        elif file.header.journal_id != found.journal_id:
            raise JournalDamaged(file.name, 16, "the segment belongs to another journal")
    end = 0
    for i, file in enumerate(files):
        first = file.header.lsn
        if first < end:
            raise JournalDamaged(
                file.name, 32, f"the segment begins at LSN {first:#x}, but the previous one ends at {end:#x}"
            )
        if first > end:
            if first > snapshot_lsn:
                raise JournalDamaged(
                    fmt.segment_name(end),
                    0,
                    f"the log from LSN {end:#x} to {first:#x} is missing (next file: {file.name})",
                )
            found.segments.append(Segment(end, first, missing=True))
        segment = Segment(first, first)
        if i + 1 < len(files):
            segment.end_lsn = _sealed_end(file, segment, files[i + 1].header.lsn, found.report)
        else:
            segment.end_lsn = _last_end(file, segment, found, chain_contents=chain_contents)
        end = segment.end_lsn
        if segment.size:
            found.segments.append(segment)
            found.files[first] = file
            if first < snapshot_lsn and file.footer is not None:  # the replay skips some or all of its frames
                segment.unchecked = file
    if end < snapshot_lsn:
        name, offset = (files[-1].name, files[-1].offset_of(end)) if files else (fmt.segment_name(end), 0)
        raise JournalDamaged(
            name, offset, f"the log ends at LSN {end:#x}, but the snapshot was taken at {snapshot_lsn:#x}"
        )
    found.end_lsn = end


def _sealed_end(file: JournalFile, segment: Segment, next_lsn: int, report: RecoveryReport) -> int:
    footer = file.footer
    if footer is not None:
        segment.known_total = footer.messages
        segment.link = footer.chain[: fmt.LINK_SIZE] or segment.link
        return footer.end_lsn
    walk = file.walk(end=next_lsn)
    for _ in walk:
        pass
    if walk.lsn != next_lsn:
        raise JournalDamaged(file.name, walk.offset, f"{walk.why}, and a later segment follows")
    segment.endless = True
    report.notes.append(f"{file.name}: the footer is missing or damaged; all frames are intact")
    return next_lsn


def _last_end(file: JournalFile, segment: Segment, found: Found, *, chain_contents: bool) -> int:
    found.last_file = file
    footer = file.footer
    if footer is None:
        builder = FooterBuilder(file.header, contents=chain_contents)
        walk = file.walk()
        for frame in walk:
            builder.add_frame(frame)
        found.last_frame = walk.last
        footer = builder.build(0)
        _judge_tail(file, walk.lsn, walk.why, found.report)
    segment.known_total = footer.messages
    found.last_footer = footer
    return footer.end_lsn


def _judge_tail(file: JournalFile, lsn: int, why: str, report: RecoveryReport) -> None:
    tail = file.tail(lsn)
    if tail.later_frame is not None:
        raise JournalDamaged(file.name, tail.offset, f"{why}, and a later frame follows at offset {tail.later_frame}")
    if tail.size:
        report.cut_file, report.cut_offset, report.cut_bytes = file.name, tail.offset, tail.size
        report.cut_why = why or "no frame begins here"


def repair(storage: Storage, found: Found) -> None:
    """Make the recovered state durable before anything builds on it. Raises OSError.

    The last segment is sealed after its last intact frame, so that nothing behind that frame can count again. The frame
    is written once more: after a failed sync it may be in the page cache, marked clean, but not on the disk. It is
    synced before the footer is written. If that sync fails, too, the next start finds no footer and does all of this
    again; a footer, even one that is only in the page cache, therefore proves that all frames are on the disk.
    """
    file, footer = found.last_file, found.last_footer
    if file is not None and footer is not None and footer.frames:
        if found.last_frame is not None:
            _rewrite(storage, file, found.last_frame)
        messages = found.segments[-1].total
        write_footer(storage, file.name, file.header, replace(footer, messages=messages))
    for name in found.leftovers:
        storage.delete(name)


def last_frame(found: Found) -> Frame | None:
    """Return the last frame of the log, or None if there is none, or it cannot be read."""
    if found.last_frame is not None or not found.segments or found.segments[-1].missing:
        return found.last_frame
    segment = found.segments[-1]
    file = found.files[segment.first_lsn]
    walk = file.walk(None if file.footer is None else file.granule(segment.end_lsn - 1)[0], segment.end_lsn)
    try:
        for _ in walk:
            pass
    except OSError:
        return None  # a part that nobody needs now; a read of it reports the failure
    return walk.last if walk.lsn == segment.end_lsn else None


def _rewrite(storage: Storage, file: JournalFile, frame: Frame) -> None:
    """Write the last frame once more, cut off everything behind it, and sync."""
    offset = file.offset_of(frame.lsn)
    data = storage.read(file.name, offset, frame.end_lsn - frame.lsn)
    header = fmt.read_frame_header(data, frame.lsn, file.seed)
    if header is None or not fmt.body_is_whole(header, memoryview(data)[fmt.FRAME_HEADER_SIZE :]):
        # The system has dropped the page from its cache since the replay, and the disk never had it.
        raise OSError(errno.EIO, "the last frame has changed since it was replayed; start again", file.name)
    storage.write(file.name, offset, data)
    storage.truncate(file.name, offset + len(data))
    storage.sync(file.name)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"

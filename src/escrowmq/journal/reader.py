"""Reads a journal without owning it: while the broker runs, when it is damaged, in bulk, or resuming at an LSN.

`findings` reports everything, including damage, for an operator. `frames` is for programs that need the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from escrowmq.journal import format as fmt
from escrowmq.journal.bulk import WINDOW, Damaged, Window, windows
from escrowmq.journal.errors import JournalDamaged, JournalVersionUnknown
from escrowmq.journal.frames import Frame, FrameWalk, JournalFile
from escrowmq.journal.storage import FileStorage, Storage


@dataclass(frozen=True, slots=True)
class FileFound:
    """The start of a segment or snapshot. `footer` is None if the file is not sealed or its footer is damaged."""

    file: str
    size: int
    header: fmt.FileHeader
    footer: fmt.Footer | None


@dataclass(frozen=True, slots=True)
class FrameFound:
    """An intact frame at byte `offset` of the file."""

    file: str
    offset: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class RecordFound:
    """A record of the preceding frame. In a snapshot, `lsn` is an address within that snapshot."""

    file: str
    offset: int
    lsn: int
    kind: int
    payload: memoryview
    time_us: int


@dataclass(frozen=True, slots=True)
class DamageFound:
    """Damaged bytes. `size` is the number of bytes lost, up to the next intact frame or the end of the file.

    `tail` means that nothing intact follows in the log, so this is a write that did not finish, or, if the broker is
    running, has not finished yet.
    """

    file: str
    offset: int
    size: int
    why: str
    tail: bool


@dataclass(frozen=True, slots=True)
class GapFound:
    """Addresses that no segment holds: deleted as dead if a snapshot covers them, otherwise missing."""

    first_lsn: int
    end_lsn: int


Finding = FileFound | FrameFound | RecordFound | DamageFound | GapFound


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of one segment with frame boundaries at both ends, for reading in parallel."""

    file: str
    first_lsn: int
    end_lsn: int | None
    """None in a segment that is not sealed: the piece reaches to the end of the log."""


class JournalReader:
    """A journal directory, or one file of it. The reader takes no lock and changes nothing."""

    def __init__(self, storage: Storage, names: list[str] | None = None) -> None:
        """Read from `storage`, or only the files in `names`."""
        self.storage = storage
        self._names = names

    @classmethod
    def open(cls, path: str | Path) -> JournalReader:
        """Open a data directory, or one segment or snapshot in it. Raises OSError."""
        path = Path(path)
        if path.is_dir():
            return cls(FileStorage(path, read_only=True))
        return cls(FileStorage(path.parent, read_only=True), [path.name])

    def close(self) -> None:
        """Close the files."""
        self.storage.close()

    def names(self, type_: int) -> list[str]:
        """Return the names of the files of this type (`format.TYPE_…`), ascending."""
        names = self.storage.names() if self._names is None else self._names
        found = ((fmt.parse_name(name), name) for name in names)
        return [name for parsed, name in found if parsed is not None and parsed[0] == type_]

    # -- for programs

    def frames(self, lsn: int = 0, *, synced_only: bool = False) -> Iterator[Frame]:
        """Yield the intact frames that end after `lsn`, in order, up to the current end of the log.

        To continue later, pass the last `end_lsn`. A frame that is followed by another one is on disk; the very last
        may not be synced yet, and `synced_only` leaves it out unless its segment is sealed. Segments that the broker
        deleted are skipped.

        Raises:
            JournalDamaged: There is damage that is not at the tail, or `lsn` is not zero and the frames after it are
                gone.
            JournalVersionUnknown: A file has a newer format version.
        """
        wanted = lsn
        names = self.names(fmt.TYPE_SEGMENT)
        starts = [fmt.parse_name(name) for name in names]
        for i, name in enumerate(names):
            after = starts[i + 1] if i + 1 < len(names) else None
            if after is not None and after[1] <= lsn:
                continue
            file = self._open(name)
            if file is None:
                continue
            if wanted and file.origin > wanted:
                raise JournalDamaged(name, 0, f"the log from LSN {wanted:#x} to {file.origin:#x} no longer exists")
            for frame in self._frames_of(file, lsn, after[1] if after else None, synced_only=synced_only):
                wanted = frame.end_lsn
                yield frame
            wanted = 0  # later gaps are dead segments

    def splits(self, target_bytes: int) -> list[Split]:
        """Divide the log into pieces of about `target_bytes`, at least `format.INDEX_STRIDE`, without reading frames.

        Raises:
            JournalDamaged: A file's header is damaged.
            JournalVersionUnknown: A file has a newer format version.
        """
        splits = []
        for name in self.names(fmt.TYPE_SEGMENT):
            file = self._open(name)
            if file is None:
                continue
            footer = file.footer
            if footer is None:
                splits.append(Split(name, file.origin, None))
                continue
            first = footer.first_lsn
            for lsn, _, _ in footer.index:
                if lsn - first >= target_bytes:
                    splits.append(Split(name, first, lsn))
                    first = lsn
            if first < footer.end_lsn:
                splits.append(Split(name, first, footer.end_lsn))
        return splits

    def read_split(self, split: Split) -> Iterator[Frame]:
        """Yield the frames of a split.

        Raises:
            JournalDamaged: The split is damaged. A torn tail is accepted if the split has no end.
        """
        file = JournalFile(self.storage, split.file)
        walk = file.walk(split.first_lsn, split.end_lsn)
        yield from walk
        if split.end_lsn is not None and walk.lsn != split.end_lsn:
            raise JournalDamaged(split.file, walk.offset, walk.why)

    def file(self, name: str) -> JournalFile:
        """Open one file for reading. Raises JournalDamaged, JournalVersionUnknown, FileNotFoundError."""
        return JournalFile(self.storage, name)

    def segment_starts(self) -> list[tuple[int, str]]:
        """Return the first LSN and the name of each segment, ascending."""
        found = ((fmt.parse_name(name), name) for name in self.names(fmt.TYPE_SEGMENT))
        return [(parsed[1], name) for parsed, name in found if parsed is not None]

    def windows(
        self, name: str, first_lsn: int, end_lsn: int, size: int = WINDOW, skipped: list[Damaged] | None = None
    ) -> Iterator[Window]:
        """Yield the frames of a file between two addresses in bulk (see `journal.bulk`).

        Raises what `file` raises, and JournalDamaged unless `skipped` is given to collect damaged ranges.
        """
        return windows(self.file(name), first_lsn, end_lsn, size, skipped)

    def _frames_of(self, file: JournalFile, lsn: int, next_lsn: int | None, *, synced_only: bool) -> Iterator[Frame]:
        footer = file.footer
        start = file.origin
        if lsn > start and file.begins_frame(lsn):
            start = lsn  # without the whole segment before it, when a reader goes on
        elif footer is not None and lsn > start:
            start = file.granule(lsn)[0]
        walk = file.walk(start, footer.end_lsn if footer else next_lsn)
        held: Frame | None = None
        for frame in walk:
            if frame.end_lsn > lsn:
                if held is not None:
                    yield held
                held = frame
        finished = walk.lsn == walk.end or self._sealed_meanwhile(file, walk)
        if held is not None and (finished or not synced_only):
            yield held
        if not finished and walk.why and (walk.end is not None or file.tail(walk.lsn).later_frame is not None):
            raise JournalDamaged(file.name, walk.offset, walk.why)

    def _sealed_meanwhile(self, file: JournalFile, walk: FrameWalk) -> bool:
        # The broker may have sealed the segment meanwhile: the footer is then where the next frame would be.
        footer = JournalFile(self.storage, file.name).footer
        return footer is not None and footer.end_lsn == walk.lsn

    def _open(self, name: str) -> JournalFile | None:
        try:
            return JournalFile(self.storage, name)
        except FileNotFoundError:  # the broker has deleted the file since the directory was listed
            return None

    # -- for an operator

    def findings(self, lsn: int = 0) -> Iterator[Finding]:
        """Yield everything: snapshots, then the log from `lsn` on, checked frame by frame and record by record."""
        for name in self.names(fmt.TYPE_SNAPSHOT):
            yield from self._file_findings(name, 0, None)
        names = self.names(fmt.TYPE_SEGMENT)
        starts = [fmt.parse_name(name) or (0, 0) for name in names]
        end: int | None = None
        for i, name in enumerate(names):
            next_lsn = starts[i + 1][1] if i + 1 < len(names) else None
            if next_lsn is not None and next_lsn <= lsn:
                continue
            if end is not None and starts[i][1] > end:
                yield GapFound(end, starts[i][1])
            end = starts[i][1]
            for finding in self._file_findings(name, lsn, next_lsn):
                if isinstance(finding, FrameFound):
                    end = finding.frame.end_lsn
                elif isinstance(finding, DamageFound) and next_lsn is not None:
                    end = max(end, min(next_lsn, end + finding.size))
                yield finding

    def _file_findings(self, name: str, lsn: int, next_lsn: int | None) -> Iterator[Finding]:
        try:
            file = JournalFile(self.storage, name)
            size = self.storage.size(name)
        except JournalDamaged as error:
            yield DamageFound(name, error.offset, self.storage.size(name) - error.offset, error.why, tail=False)
            return
        except JournalVersionUnknown as error:
            yield DamageFound(name, 8, self.storage.size(name) - 8, str(error), tail=False)
            return
        except FileNotFoundError:
            return
        footer = file.footer
        yield FileFound(name, size, file.header, footer)
        start = file.granule(lsn)[0] if footer is not None and lsn > file.origin else file.origin
        walk = file.walk(start, footer.end_lsn if footer else None)
        while True:
            for frame in walk:
                if frame.end_lsn > lsn:
                    yield from _frame_findings(file, frame)
            if walk.lsn == walk.end or self._sealed_meanwhile(file, walk):
                return
            tail = file.tail(walk.lsn)
            if tail.later_frame is None:
                if tail.size or footer is not None:
                    is_tail = footer is None and next_lsn is None and file.header.type == fmt.TYPE_SEGMENT
                    yield DamageFound(name, tail.offset, tail.size, walk.why or "no frame begins here", is_tail)
                return
            yield DamageFound(name, tail.offset, tail.later_frame - tail.offset, walk.why, tail=False)
            walk = file.walk(file.lsn_of(tail.later_frame), walk.end)


def _frame_findings(file: JournalFile, frame: Frame) -> Iterator[Finding]:
    yield FrameFound(file.name, file.offset_of(frame.lsn), frame)
    for lsn, kind, payload in frame.records():
        yield RecordFound(file.name, file.offset_of(lsn), lsn, kind, payload, frame.time_us)

"""Compares a journal with its copy: what the copy lacks, and whether it is a copy of this journal at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from escrowmq.backup.manifest import BackupError, CopiedFile, Manifest
from escrowmq.journal import format as fmt
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.storage import Readable, Storage

_COMPARED: Final = 4096
"""So many bytes at the end of a segment that grows are compared with those of the journal."""


@dataclass(frozen=True, slots=True)
class MissingPart:
    """What a copy lacks of a file: the bytes from `start` to `stop`, after which the file is sealed, or may grow."""

    name: str
    start: int
    stop: int
    sealed: bool
    before: str = ""
    """The segment before this one; empty if there is none."""
    next_lsn: int | None = None
    """The first LSN of the next segment, at which this one ends if its footer is damaged."""


class Lack:
    """What a copy lacks of a journal that is synced up to an LSN.

    `pieces` are in the order in which they are to be copied. `end_lsn` is the end of the log of the complete copy.
    """

    def __init__(
        self,
        target: Storage,
        manifest: Manifest | None,
        source: Readable,
        synced: int,
        verify: Callable[[CopiedFile], object] | None,
    ) -> None:
        """`verify` is called for each file that the journal and the copy both have; it raises if the copy is damaged.
        Then the beginning and the end of those that are sealed are compared. With None, neither is done.

        Raises:
            BackupError: The copy is of another journal, or has what this journal does not have.
            JournalDamaged: A header is damaged.
            JournalVersionUnknown: The journal is of a newer program.
            OSError: From source or target.
        """
        self._target, self._source, self._synced, self._verify = target, source, synced, verify
        found = [(parsed, name) for name in source.names() if (parsed := fmt.parse_name(name))]
        segments = [(lsn, name) for (type_, lsn), name in found if type_ == fmt.TYPE_SEGMENT]
        if not segments:
            raise BackupError("there is no journal")
        self._manifest = manifest
        self._known = manifest.known if manifest is not None else {}
        self.end_lsn = synced
        self.pieces: list[MissingPart] = []
        for i, (_, name) in enumerate(segments):
            before = segments[i - 1][1] if i else ""
            self._add_segment(name, before, segments[i + 1][0] if i + 1 < len(segments) else None)
        later = [name for name in self._known if name > segments[-1][1] and name.endswith(".log")]
        if later:
            raise _diverged(later[0])
        for name in [name for (type_, _), name in found if type_ == fmt.TYPE_SNAPSHOT][-1:]:
            if name in self._known:
                self._check_copy(self._known[name])
            else:
                self._opened(name)
                self.pieces.append(MissingPart(name, 0, source.size(name), sealed=True))

    @property
    def manifest(self) -> Manifest:
        """The manifest of the copy; a new one if it has none yet."""
        assert self._manifest is not None
        return self._manifest

    def _add_segment(self, name: str, before: str, next_lsn: int | None) -> None:
        entry = self._known.get(name)
        if entry is not None:
            self._check_copy(entry)
        if entry is not None and entry.sealed:
            if self._verify is not None:
                self._compare_sealed(entry)
            if next_lsn is None:
                self._ends_at(JournalFile(self._target, name))
            return
        file = self._opened(name)
        if next_lsn is None:
            self._ends_at(file)
        footer = file.footer
        sealed = next_lsn is not None or (footer is not None and footer.end_lsn <= self._synced)
        stop = self._source.size(name) if sealed else file.offset_of(max(self._synced, file.origin))
        start = 0
        if entry is not None:
            start = entry.size
            end = min(start, _COMPARED)
            if stop < start or not self._same(name, fmt.FILE_HEADER_SIZE) or not self._same(name, end, start - end):
                raise _diverged(name)
        if stop > max(start, fmt.FILE_HEADER_SIZE) or (sealed and entry is not None):
            self.pieces.append(MissingPart(name, start, stop, sealed, before, next_lsn))
        # A segment without frames is left out: the broker writes it anew when it starts.

    def _ends_at(self, file: JournalFile) -> None:
        if file.footer is not None:
            self.end_lsn = min(self._synced, file.footer.end_lsn)

    def _check_copy(self, entry: CopiedFile) -> None:
        if self._verify is not None:
            self._opened(entry.name)  # a backup of another broker is refused before all of it is read
            self._verify(entry)

    def _compare_sealed(self, entry: CopiedFile) -> None:
        size, end = self._source.size(entry.name), fmt.FOOTER_END_SIZE
        if size != entry.size or not self._same(entry.name, end) or not self._same(entry.name, end, size - end):
            raise _diverged(entry.name)

    def _same(self, name: str, length: int, offset: int = 0) -> bool:
        return self._source.read(name, offset, length) == self._target.read(name, offset, length)

    def _opened(self, name: str) -> JournalFile:
        file = JournalFile(self._source, name)
        identity = file.header.journal_id.hex()
        if self._manifest is None:
            self._manifest = Manifest(identity)
        elif self._manifest.journal_id != identity:
            raise BackupError("the directory holds a backup of another broker's journal; use an empty directory")
        return file


def _diverged(name: str) -> BackupError:
    return BackupError(
        f"the backup is not an earlier state of this journal: they differ in {name}. If the data directory was "
        "restored from an older backup, use an empty directory"
    )

"""Brings a copy of a journal up to date: what it lacks is copied, checked and synced, and then listed in its manifest.

A sealed file is copied once. The segment that is being written is copied as far as it is synced, and the copy grows
with it. Bytes that the manifest lists are never changed, so the last whole backup stays whole meanwhile.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from escrowmq.backup import manifest as manifests
from escrowmq.backup.lack import Lack, MissingPart
from escrowmq.backup.manifest import BackupError, CopiedFile, Manifest
from escrowmq.backup.verification import PIECE, check_frames, check_link, check_sealed, digest_of
from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.storage import Readable, Storage
from escrowmq.text import size

if TYPE_CHECKING:
    from hashlib import _Hash

STAGE: Final = 8
"""After so many new files the manifest notes them, so that a backup that was cut off continues there."""
ROOM: Final = 1 << 20
"""Bytes of free space that a backup needs beside its files."""


class Copy:
    """A copy of a journal in `target`, which nothing else may write to meanwhile."""

    def __init__(self, target: Storage, progress: Callable[[int], object] = lambda _: None) -> None:
        """`progress` is called with numbers of bytes that were copied or verified.

        Raises:
            BackupError: The manifest is damaged.
            OSError: From the target.
        """
        self.manifest = manifests.load(target)
        self.copied_bytes = 0
        """The bytes that the last update has copied."""
        self.compared = False
        """Whether the files were verified, and compared with those of the journal."""
        self._target = target
        self._progress = progress
        self._tail: tuple[CopiedFile, _Hash] | None = None
        """The file that grows, with the running digest of its bytes, once these were checked."""

    @property
    def sealed(self) -> frozenset[str]:
        """The files that are copied whole, which need not be read again."""
        known = self.manifest.known.values() if self.manifest is not None and self.compared else ()
        return frozenset(entry.name for entry in known if entry.sealed)

    def update(self, source: Readable, synced: int, as_of_us: int, extras: Mapping[str, bytes]) -> Manifest:
        """Copy what is missing of a journal that is synced up to the LSN `synced`. Returns the whole backup's manifest.

        The first update also verifies what the copy has already, byte by byte.

        `as_of_us` is the time before which everything confirmed lies below `synced`, in microseconds; `extras` are the
        small files beside the journal.

        Raises:
            BackupDamaged: The copy is damaged. It is not changed.
            BackupError: The copy is of another journal, or the journal is damaged, or space is short.
            JournalVersionUnknown: The journal is of a newer program.
            OSError: From source or target.
        """
        try:
            lack = Lack(self._target, self.manifest, source, synced, None if self.compared else self._verify)
        except JournalDamaged as error:
            raise BackupError(f"{error}; examine the journal with `escrowmq inspect`") from error
        manifest = self.manifest = lack.manifest
        self._check_room(sum(piece.stop - piece.start for piece in lack.pieces))
        self.copied_bytes = 0
        if lack.pieces and not manifest.whole:
            manifests.save(self._target, manifest)  # from now on, the directory is that of a backup
        for i, piece in enumerate(lack.pieces, 1):
            manifest.staged[piece.name] = self._copy(source, piece, manifest.known.get(piece.name))
            if i % STAGE == 0:
                manifests.save(self._target, manifest)
        kept = set(source.names())
        whole = Manifest(
            manifest.journal_id,
            whole=True,
            as_of_us=as_of_us,
            end_lsn=lack.end_lsn,
            files={name: entry for name, entry in sorted(manifest.known.items()) if name in kept},
            extras={name: base64.b64encode(data).decode() for name, data in extras.items()},
        )
        manifests.save(self._target, whole)
        self.manifest, self.compared = whole, True
        self._delete_others()
        return whole

    def _check_room(self, need: int) -> None:
        free = self._target.free_bytes()
        if need + ROOM > free:
            raise BackupError(f"the backup needs {size(need + ROOM)} more, but only {size(free)} are free")

    def _copy(self, source: Readable, piece: MissingPart, entry: CopiedFile | None) -> CopiedFile:
        """Copy a piece durably, and check it."""
        target, name = self._target, piece.name
        if entry is None:
            draft, digest = f"{name}.tmp", hashlib.sha256()
            target.create(draft)
        else:
            draft, digest = name, self._running(entry)
            if target.size(name) > entry.size:  # the rest of an update that was cut off
                target.truncate(name, entry.size)
        at = piece.start
        while at < piece.stop:
            data = source.read(name, at, min(PIECE, piece.stop - at))
            if not data:
                raise BackupError(f"the journal is damaged: {name} ends at byte {at} instead of {piece.stop}")
            target.write(draft, at, data)
            digest.update(data)
            at += len(data)
            self.copied_bytes += len(data)
            self._progress(len(data))
        target.sync(draft)
        target.finish(draft)
        self._check(draft, piece)
        if draft != name:
            target.replace(draft, name)
        copied = CopiedFile(name, piece.stop, digest.hexdigest(), piece.sealed)
        self._tail = None if piece.sealed else (copied, digest)
        return copied

    def _verify(self, entry: CopiedFile) -> None:
        digest = digest_of(self._target, entry, self._progress)
        if not entry.sealed:
            self._tail = entry, digest

    def _running(self, entry: CopiedFile) -> _Hash:
        if self._tail is not None and self._tail[0] == entry:
            return self._tail[1]
        return digest_of(self._target, entry, lambda _: None)

    def _check(self, draft: str, piece: MissingPart) -> None:
        """Check a piece of which the copy is on disk. Raises BackupError."""
        try:
            file = JournalFile(self._target, draft)
            if piece.start == 0 and piece.before:
                before = JournalFile(self._target, piece.before).footer
                if before is not None:
                    check_link(file, before.end_lsn, before.chain)
            if piece.sealed:
                check_sealed(file, piece.next_lsn)
            else:
                start = max(piece.start, fmt.FILE_HEADER_SIZE)
                check_frames(file, file.lsn_of(start), file.lsn_of(piece.stop))
        except JournalDamaged as error:
            raise BackupError(
                f"the journal, or its copy, is damaged: {piece.name} at offset {error.offset}: {error.why}; examine "
                "the journal with `escrowmq inspect`"
            ) from error

    def _delete_others(self) -> None:
        """Delete what the backup no longer needs, and the remains of one that was cut off."""
        assert self.manifest is not None
        for name in self._target.names():
            if name not in self.manifest.files and (fmt.parse_name(name) or name.endswith(".tmp")):
                self._target.delete(name)

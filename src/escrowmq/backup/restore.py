"""Restores a data directory from a backup. Everything is checked, and no broker starts on half a restore.

The file `restoring` exists from before the first file until after the last one, and no broker starts where it is.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Final

from escrowmq.backup import manifest as manifests
from escrowmq.backup.manifest import BackupDamaged, BackupError, CopiedFile, Manifest
from escrowmq.backup.verification import PIECE, check_journal, digest_of, unexplained_gaps
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.markers import RESTORING
from escrowmq.journal.storage import Readable, Storage

RESTORED: Final = "restored.json"
"""Says in a restored data directory from which backup it comes."""


class BackupFiles:
    """The files of a backup as far as its manifest lists them, without what an update that was cut off has left."""

    def __init__(self, storage: Readable, manifest: Manifest) -> None:
        self._storage = storage
        self._files = manifest.files

    def names(self) -> list[str]:
        return sorted(self._files)

    def size(self, name: str) -> int:
        return self._entry(name).size

    def read(self, name: str, offset: int, length: int) -> bytes:
        return self._storage.read(name, offset, max(min(length, self._entry(name).size - offset), 0))

    def _entry(self, name: str) -> CopiedFile:
        try:
            return self._files[name]
        except KeyError:
            raise FileNotFoundError(name) from None


def manifest_of(backup: Readable) -> Manifest:
    """Return the manifest of a whole backup. Raises BackupError if there is none."""
    manifest = manifests.load(backup)
    if manifest is None:
        raise BackupError("there is no backup (no file backup.json)")
    if not manifest.whole:
        raise BackupError("the first backup into this directory was cut off before it was complete; run it again")
    return manifest


def check(backup: Readable, manifest: Manifest, progress: Callable[[int], object]) -> None:
    """Check each byte of a backup, each frame, the chain of segments, that the journal itself has deleted what is
    missing between them, and that a broker can start from it.

    Raises:
        BackupDamaged: It is.
    """
    for entry in manifest.files.values():
        digest_of(backup, entry, progress)
    files = BackupFiles(backup, manifest)
    _check_journal(files, manifest)
    for gap in unexplained_gaps(files):
        raise BackupDamaged(f"the backup is not whole: {gap}")


def restore(backup: Readable, manifest: Manifest, target: Storage, progress: Callable[[int], object]) -> list[str]:
    """Copy a backup into an empty data directory, durably, and check the copy as `check` does. Return the gaps that no
    record explains, in words: a broker starts in spite of them.

    Raises:
        BackupDamaged: The backup is damaged. `target` still has the marker, so no broker starts on it.
        OSError: From backup or target.
    """
    origin = {"journal_id": manifest.journal_id, "end_lsn": manifest.end_lsn, "as_of_us": manifest.as_of_us}
    _put(target, RESTORING, json.dumps(origin).encode())
    for name in target.names():  # of a restore that was cut off
        if name != RESTORING:
            target.delete(name)
    for entry in manifest.files.values():
        _copy(backup, entry, target, progress)
    for name, text in manifest.extras.items():
        _put(target, name, base64.b64decode(text))
    _check_journal(target, manifest)
    gaps = unexplained_gaps(target)
    target.replace(RESTORING, RESTORED)
    return gaps


def _copy(backup: Readable, entry: CopiedFile, target: Storage, progress: Callable[[int], object]) -> None:
    draft, digest, at = f"{entry.name}.tmp", hashlib.sha256(), 0
    target.create(draft)
    while at < entry.size and (data := backup.read(entry.name, at, min(PIECE, entry.size - at))):
        target.write(draft, at, data)
        digest.update(data)
        at += len(data)
        progress(len(data))
    if digest.hexdigest() != entry.sha256:
        raise BackupDamaged(f"the backup is damaged: {entry.name} has changed since it was copied")
    target.sync(draft)
    target.finish(draft)
    target.replace(draft, entry.name)


def _put(target: Storage, name: str, data: bytes) -> None:
    draft = f"{name}.tmp"
    target.create(draft)
    target.write(draft, 0, data)
    target.sync(draft)
    target.finish(draft)
    target.replace(draft, name)


def _check_journal(storage: Readable, manifest: Manifest) -> None:
    try:
        end = check_journal(storage)
    except JournalDamaged as error:
        raise BackupDamaged(f"the backup is damaged: {error}") from error
    if end != manifest.end_lsn:
        raise BackupDamaged(f"the backup is damaged: its log ends at LSN {end:#x} instead of {manifest.end_lsn:#x}")

"""Backup, follow and restore on real directories, beside a broker that runs or is stopped."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from escrowmq.admin.socket.client import AdminError, NoBroker, ask
from escrowmq.backup import manifest as manifests
from escrowmq.backup import restore as restoring
from escrowmq.backup.copying import Copy
from escrowmq.backup.manifest import BackupError, Manifest
from escrowmq.backup.source import PinnedFiles
from escrowmq.journal.errors import DataDirLocked, JournalDamaged
from escrowmq.journal.format import parse_name
from escrowmq.journal.markers import BACKUP, REPLICATED, RESTORING, check_markers
from escrowmq.journal.recovery import examine
from escrowmq.journal.storage import LOCK_NAME, FileStorage, check_unlocked

Progress = Callable[[int], object]
PATIENCE_SECONDS: Final = 30.0
"""How long a backup waits for the process that has the data directory to name what is on disk."""
_PAUSE_SECONDS: Final = 0.1
_INVISIBLE: Final = frozenset({LOCK_NAME, f"{BACKUP}.tmp", "lost+found"})
"""Files that an empty directory may have."""


@contextlib.contextmanager
def copy_in(directory: Path, data_dir: Path, progress: Progress) -> Iterator[Copy]:
    """Open the copy in a directory, which is created if necessary, for one user at a time.

    Raises:
        BackupError: The directory cannot be used for this backup, or there is no journal.
        NotADataDir: There is a backup, or half a restore, in place of a journal.
        OSError: It cannot be created or read.
    """
    if not data_dir.is_dir():
        raise BackupError(f"there is no data directory {data_dir}; name that of the broker with --data-dir")
    check_markers(data_dir)
    if not has_journal(data_dir):
        raise BackupError(f"there is no journal in {data_dir}; name the data directory of the broker with --data-dir")
    if directory.resolve().is_relative_to(data_dir.resolve()):
        raise BackupError("the backup would be inside the data directory")
    found = _names(directory)
    if found and BACKUP not in found:
        raise BackupError(f"{directory} is not empty and holds no backup (it has {min(found)}); use an empty directory")
    try:
        target = FileStorage(directory)
    except DataDirLocked as error:
        raise BackupError(f"process {error.pid or 'unknown'} is writing or restoring this backup") from error
    try:
        yield Copy(target, progress)
    finally:
        target.close()


def back_up(copy: Copy, data_dir: Path, waits: Callable[[str], object], patience: float = PATIENCE_SECONDS) -> Manifest:
    """Update a copy once. A stopped broker cannot start meanwhile.

    A broker that starts or stops, or a standby that still reads the replicated log, cannot say yet what is on disk. It
    is asked again for `patience` seconds; `waits` is called once, with the reason.

    Raises:
        BackupError, JournalVersionUnknown, OSError: The copy could not be updated; see `Copy.update`.
    """
    give_up: float | None = None
    while True:
        try:
            check_unlocked(data_dir)
        except DataDirLocked as error:
            try:
                return follow_up(copy, data_dir)
            except AdminError as failure:
                reason = _reason(error.pid, failure)
                if give_up is None:
                    give_up = time.monotonic() + patience
                    waits(reason)
                if time.monotonic() >= give_up:
                    raise BackupError(f"{reason}; try again") from failure
                time.sleep(_PAUSE_SECONDS)
                continue
        return _back_up_stopped(copy, data_dir)


def _reason(pid: str, failure: AdminError) -> str:
    holder = f"process {pid}" if pid else "another process"
    if isinstance(failure, NoBroker):
        return (
            f"{holder} uses the data directory, but no broker answers there: it is starting or stopping, or it is "
            "another backup"
        )
    return f"the broker, {holder}, cannot say what is on its disk: {failure}"


def _back_up_stopped(copy: Copy, data_dir: Path) -> Manifest:
    storage = FileStorage(data_dir)
    try:
        as_of_us = time.time_ns() // 1000
        with PinnedFiles(data_dir, copy.sealed) as files:
            found = examine(files)
            if (data_dir / REPLICATED).exists():  # others may have led since it stopped
                as_of_us = found.end_us
            return copy.update(files, found.end_lsn, as_of_us, files.extras())
    except JournalDamaged as error:
        raise BackupError(f"{error}; examine the journal with `escrowmq inspect`") from error
    finally:
        storage.close()


def follow_up(copy: Copy, data_dir: Path) -> Manifest:
    """Update a copy once from a running broker.

    Raises:
        AdminError: No broker answers.
        BackupError, JournalVersionUnknown, OSError: As for `back_up`.
    """
    as_of_us = time.time_ns() // 1000
    # A standby first copies what was confirmed, perhaps into files that are new. What it names when files are pinned
    # can be later, and is never earlier than the newest snapshot among them.
    ask(data_dir, "journal.synced")
    with PinnedFiles(data_dir, copy.sealed) as files:
        return copy.update(files, ask(data_dir, "journal.synced"), as_of_us, files.extras())


def has_journal(data_dir: Path) -> bool:
    """Return whether a broker has begun a journal in this directory."""
    return any(map(parse_name, _names(data_dir)))


def whole_backup(directory: Path) -> Manifest | None:
    """Return the manifest of the last whole backup in a directory; None if there is none that can be read."""
    with contextlib.suppress(OSError, BackupError):
        manifest = manifests.load(FileStorage(directory, read_only=True))
        return manifest if manifest is not None and manifest.whole else None
    return None


def check(directory: Path, progress: Progress) -> Manifest:
    """Check a backup. Raises BackupError, JournalVersionUnknown, OSError."""
    with _reading(directory) as backup:
        manifest = restoring.manifest_of(backup)
        restoring.check(backup, manifest, progress)
        return manifest


def restore(directory: Path, data_dir: Path, progress: Progress) -> tuple[Manifest, list[str]]:
    """Restore a backup into a data directory, which must be empty, or not exist, or be that of a restore cut off.

    Returns the manifest, and the gaps in the log that no record explains, in words.

    Raises:
        BackupError, JournalVersionUnknown: The backup cannot be used, or the data directory is not empty or in use.
        OSError: From one of the directories.
    """
    if data_dir.resolve().is_relative_to(directory.resolve()):
        raise BackupError("the data directory would be inside the backup")
    with _reading(directory) as backup:
        manifest = restoring.manifest_of(backup)
        _check_vacant(data_dir)
        target = FileStorage(data_dir)
        try:
            free = target.free_bytes()
            if manifest.size > free:
                raise BackupError(f"the backup has {manifest.size:,} bytes, but only {free:,} are free in {data_dir}")
            gaps = restoring.restore(backup, manifest, target, progress)
        finally:
            target.close()
        return manifest, gaps


def _check_vacant(data_dir: Path) -> None:
    """Raise BackupError unless a directory is empty, or does not exist, or is that of a restore cut off."""
    if data_dir.is_dir():
        try:
            check_unlocked(data_dir)
        except DataDirLocked as error:
            holder = f"process {error.pid}" if error.pid else "a process"
            raise BackupError(f"{holder} uses the data directory {data_dir}; restore into an empty one") from error
    found = _names(data_dir)
    if found and RESTORING not in found:
        raise BackupError(
            f"the data directory {data_dir} is not empty (it has {min(found)}); restore into an empty one"
        )


@contextlib.contextmanager
def _reading(directory: Path) -> Iterator[FileStorage]:
    """Open a backup such that no other process changes it meanwhile. The medium may be read-only."""
    if not directory.exists():
        raise BackupError(f"there is no directory {directory}")
    if not (directory / BACKUP).exists() and has_journal(directory):
        raise BackupError(
            f"{directory} is the data directory of a broker and no backup; make a backup of it with `escrowmq backup`"
        )
    storage = FileStorage(directory, read_only=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError("another process is writing this backup; stop it first") from None
        except OSError:
            check_unlocked(directory)  # a file system that cannot lock directories
        yield storage
    finally:
        os.close(descriptor)
        storage.close()


def _names(directory: Path) -> set[str]:
    try:
        return set(os.listdir(directory)) - _INVISIBLE  # noqa: PTH208 - names are enough
    except FileNotFoundError:
        return set()

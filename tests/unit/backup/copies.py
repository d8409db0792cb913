"""Helpers for tests of backups: journals and copies in memory."""

from __future__ import annotations

import random

from escrowmq.backup import restore as restoring
from escrowmq.backup.copying import Copy
from escrowmq.backup.manifest import Manifest
from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import MemoryStorage
from tests.unit.journal.journals import Replayed, memory, reopen


def quiet(_: int) -> None:
    """Show no progress."""


def back_up(source: MemoryStorage, journal: Journal, target: MemoryStorage) -> Copy:
    """Update the copy in `target`, as a new process would."""
    copy = Copy(target)
    copy.update(source, journal.synced_lsn, 1, {"secret-keys": b"secret"})
    return copy


def manifest_in(target: MemoryStorage) -> Manifest:
    return restoring.manifest_of(target)


def checked(target: MemoryStorage) -> Manifest:
    """Check the copy, and return its manifest."""
    manifest = manifest_in(target)
    restoring.check(target, manifest, quiet)
    return manifest


def restored(target: MemoryStorage) -> tuple[MemoryStorage, Replayed]:
    """Restore the copy. Returns the data directory after a crash, and the records that a broker finds there."""
    data = memory()
    restoring.restore(target, manifest_in(target), data, quiet)
    data.crash()
    _, records = reopen(data)
    return data, records


def replayed(source: MemoryStorage) -> Replayed:
    """Return the records of a journal, which is not changed."""
    other = MemoryStorage(random.Random(0))
    for name in source.names():
        other.create(name)
        other.write(name, 0, source.read(name, 0, source.size(name)))
    return reopen(other)[1]

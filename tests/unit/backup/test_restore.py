"""Restores: everything is checked, and no broker starts on half a restore."""

from __future__ import annotations

import random

import pytest

from escrowmq.backup import manifest as manifests
from escrowmq.backup import restore as restoring
from escrowmq.backup.manifest import BackupError, Manifest
from escrowmq.journal.markers import BACKUP, RESTORING
from escrowmq.journal.memory import MemoryStorage
from tests.unit.backup.copies import back_up, checked, manifest_in, quiet, replayed
from tests.unit.journal.journals import fill, memory, reopen, snapshot, start


def backed_up() -> tuple[MemoryStorage, MemoryStorage]:
    """Return a journal and its backup."""
    source, target = memory(), memory()
    journal = start(source)
    fill(journal, 7)
    snapshot(journal, (9, b"state"))
    fill(journal, 2)
    back_up(source, journal, target)
    return source, target


@pytest.mark.parametrize("number", range(6))
def test_a_changed_byte_is_found(number: int) -> None:
    _, target = backed_up()
    names = target.names()
    name = names[number % len(names)]
    manifest = manifest_in(target)
    target.flip(name, random.Random(number).randrange(8 * target.size(name)))
    with pytest.raises(BackupError, match="damaged"):
        checked(target)
    if name != BACKUP:
        data = memory()
        with pytest.raises(BackupError, match="damaged"):
            restoring.restore(target, manifest, data, quiet)
        assert RESTORING in data.names()


def test_a_missing_file_is_found() -> None:
    _, target = backed_up()
    target.delete(target.names()[0])
    with pytest.raises(BackupError, match="missing"):
        checked(target)


def test_files_without_the_end_of_the_log_are_found() -> None:
    """A manifest can be right about each of its files, and still not be that of a whole backup."""
    _, target = backed_up()
    manifest = manifest_in(target)
    del manifest.files[max(name for name in manifest.files if name.endswith(".log"))]
    with pytest.raises(BackupError, match="damaged"):
        restoring.check(target, manifest, quiet)


def test_no_backup_is_told_from_half_a_backup() -> None:
    with pytest.raises(BackupError, match="there is no backup"):
        restoring.manifest_of(memory())
    target = memory()
    manifests.save(target, Manifest("00"))
    with pytest.raises(BackupError, match="cut off"):
        restoring.manifest_of(target)


def test_a_restore_that_was_cut_off_has_its_marker_until_it_is_repeated() -> None:
    source, target = backed_up()
    expected = replayed(source)
    for moment in range(1, 1000):
        data = MemoryStorage(random.Random(moment))
        data.faults.dies_in = moment
        try:
            restoring.restore(target, manifest_in(target), data, quiet)
        except OSError:
            data.crash()
            whole = RESTORING not in data.names() and "restored.json" in data.names()
            assert whole or RESTORING in data.names() or not any(name.endswith(".log") for name in data.names())
            restoring.restore(target, manifest_in(target), data, quiet)
            assert reopen(data)[1] == expected
        else:
            data.faults.dies_in = None
            assert reopen(data)[1] == expected
            return
    raise AssertionError("the restore never ended")

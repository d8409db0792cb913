"""Restores: everything is checked, and no broker starts on half a restore."""

from __future__ import annotations

import random

import pytest

from escrowmq.backup import manifest as manifests
from escrowmq.backup import restore as restoring
from escrowmq.backup.manifest import BackupDamaged, BackupError, Manifest
from escrowmq.journal import format as fmt
from escrowmq.journal.markers import BACKUP, RESTORING
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.removals import REMOVED, encode
from tests.unit.backup.copies import back_up, checked, manifest_in, quiet, replayed
from tests.unit.journal.journals import fill, flush, memory, reopen, snapshot, start
from tests.unit.journal.test_removals import deleted, filled, first_of, notes


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


@pytest.mark.parametrize("noted", ["in the log", "in the snapshot"])
def test_what_the_journal_has_deleted_is_no_fault(noted: str) -> None:
    source, target = memory(), memory()
    journal, lsns = filled(source, 5)
    deleted(journal, lsns[0])
    if noted == "in the snapshot":
        snapshot(journal, (9, b"after the record"))
    back_up(source, journal, target)
    checked(target)
    assert restoring.restore(target, manifest_in(target), memory(), quiet) == []


def test_a_segment_that_somebody_has_removed_is_found() -> None:
    """A broker starts in spite of it, and says the same, so the backup can be restored."""
    source, target = memory(), memory()
    journal, lsns = filled(source, 5)
    deleted(journal, lsns[0])
    snapshot(journal, (9, b"state"))
    first, end = first_of(lsns[2]), first_of(lsns[3])
    source.delete(fmt.segment_name(first))
    back_up(source, journal, target)
    gap = f"the log from LSN {first:#x} to {end:#x} is missing, and no record says that the broker has deleted it"
    with pytest.raises(BackupDamaged, match=f"the backup is not whole: {gap}"):
        checked(target)
    assert restoring.restore(target, manifest_in(target), memory(), quiet) == [gap]


def test_a_segment_that_does_not_continue_the_deleted_one_is_found() -> None:
    source, target = memory(), memory()
    journal, lsns = filled(source, 5)
    deleted(journal, lsns[0])
    (noted,) = notes(source)[-1][1]
    journal.append(REMOVED, encode([noted._replace(link=b"another link")]))
    flush(journal)
    back_up(source, journal, target)
    with pytest.raises(BackupDamaged, match=f"the segment at LSN {noted.end_lsn:#x} does not continue the one"):
        checked(target)

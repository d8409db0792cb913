"""Copies of a journal in memory: complete, incremental, and never half."""

from __future__ import annotations

import errno
import random

import pytest

from escrowmq.backup.copying import Copy
from escrowmq.backup.manifest import BackupDamaged, BackupError
from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import Faults, MemoryStorage
from tests.unit.backup.copies import back_up, checked, manifest_in, replayed, restored
from tests.unit.journal.journals import fill, flush, memory, snapshot, start


def filled(count: int = 10) -> tuple[MemoryStorage, Journal]:
    """A journal of some segments, of which the last one is being written."""
    source = memory()
    journal = start(source)
    fill(journal, count)
    return source, journal


def test_a_copy_has_all_synced_records() -> None:
    source, journal = filled()
    target = memory()
    back_up(source, journal, target)
    assert checked(target).end_lsn == journal.synced_lsn
    assert restored(target)[1] == replayed(source)


def test_records_that_are_not_synced_are_left_out() -> None:
    source, journal = filled()
    target = memory()
    expected = replayed(source)
    copy = Copy(target)
    synced = journal.synced_lsn
    fill(journal, 1, size=10)
    copy.update(source, synced, 1, {})
    assert restored(target)[1] == expected


@pytest.mark.parametrize("more", [1, 2, 3, 12])
def test_an_update_copies_only_what_is_new(more: int) -> None:
    source, journal = filled()
    target = memory()
    back_up(source, journal, target)
    before = manifest_in(target).size
    fill(journal, more)
    copy = back_up(source, journal, target)
    assert copy.copied_bytes == manifest_in(target).size - before
    assert restored(target)[1] == replayed(source)


def test_an_update_without_news_copies_nothing() -> None:
    source, journal = filled()
    target = memory()
    back_up(source, journal, target)
    assert back_up(source, journal, target).copied_bytes == 0


def test_a_process_that_keeps_a_copy_up_copies_only_what_is_new() -> None:
    source, journal = filled(0)
    target = memory()
    copy = Copy(target)
    total = 0
    for _ in range(30):
        fill(journal, 1)
        copy.update(source, journal.synced_lsn, 1, {})
        total += copy.copied_bytes
    assert total == checked(target).size
    assert restored(target)[1] == replayed(source)


def test_deleted_segments_and_old_snapshots_leave_the_copy() -> None:
    source, journal = filled()
    snapshot(journal, (9, b"one"))
    target = memory()
    back_up(source, journal, target)
    lsns = fill(journal, 8)
    snapshot(journal, (9, b"two"))
    for lsn in lsns[:4]:
        journal.release(lsn, 1)
    snapshot(journal, (9, b"three"))
    flush(journal)
    copy = back_up(source, journal, target)
    assert copy.manifest is not None
    assert set(copy.manifest.files) <= set(source.names())
    assert set(target.names()) == {*copy.manifest.files, "backup.json"}
    assert restored(target)[1] == replayed(source)


def test_a_journal_that_was_closed_is_copied_with_its_footer() -> None:
    source, journal = filled()
    target = memory()
    back_up(source, journal, target)
    journal.close()
    back_up(source, journal, target)
    assert all(entry.sealed for entry in checked(target).files.values())


def test_the_segment_of_a_start_without_records_is_not_copied() -> None:
    source, journal = filled()
    journal.close()
    journal = start(source)
    target = memory()
    back_up(source, journal, target)
    fill(journal, 1)
    back_up(source, journal, target)
    assert restored(target)[1] == replayed(source)


def test_small_files_are_restored() -> None:
    source, journal = filled()
    target = memory()
    back_up(source, journal, target)
    data, _ = restored(target)
    assert data.read("secret-keys", 0, 99) == b"secret"


def test_the_backup_of_another_journal_is_refused() -> None:
    source, journal = filled()
    target = memory()
    back_up(source, journal, target)
    other = memory()
    stranger = Journal.open(other, journal_id=b"another journal!")
    assert not list(stranger.replay())
    fill(stranger, 1)
    with pytest.raises(BackupError, match="another broker"):
        back_up(other, stranger, target)
    checked(target)


@pytest.mark.parametrize("common", range(1, 12))
@pytest.mark.parametrize(("ours", "theirs"), [(1, 2), (4, 1), (1, 0), (4, 4)])
def test_a_copy_that_has_another_history_is_refused(common: int, ours: int, theirs: int) -> None:
    """A data directory that was restored from an older backup writes other records than the copy has."""
    source, journal = filled(common)
    old = memory()
    back_up(source, journal, old)
    fill(journal, ours)
    target = memory()
    back_up(source, journal, target)
    data, _ = restored(old)
    again = start(data)
    for _ in range(theirs):
        lsn = again.append(2, b"another" * 43)
        again.retain(lsn, 1)
        flush(again)
    with pytest.raises(BackupError, match="not an earlier state"):
        back_up(data, again, target)
    assert restored(target)[1] == replayed(source)


@pytest.mark.parametrize("number", range(3))
def test_damage_in_the_journal_is_found_and_the_last_backup_stays(number: int) -> None:
    source, journal = filled(4)
    target = memory()
    back_up(source, journal, target)
    before = manifest_in(target)
    fill(journal, 9)
    name = [name for name in source.names() if name not in before.files][number]
    source.flip(name, 8 * 200)
    with pytest.raises(BackupError, match=f"damaged: {name}"):
        back_up(source, journal, target)
    assert checked(target) == before


@pytest.mark.parametrize("more", [0, 1])
def test_a_changed_byte_of_the_growing_copy_is_found(more: int) -> None:
    source = memory()
    journal = start(source, segment_bytes=1 << 20)
    fill(journal, 1, size=9000)
    target = memory()
    back_up(source, journal, target)
    target.flip(source.names()[0], 8 * 200)
    fill(journal, more)
    with pytest.raises(BackupDamaged, match="has changed since it was copied"):
        back_up(source, journal, target)


@pytest.mark.parametrize("place", [0, 200, -100, -1])
def test_a_changed_byte_anywhere_in_the_copy_is_found(place: int) -> None:
    source, journal = filled()
    snapshot(journal, (9, b"state"))
    fill(journal, 3)
    target = memory()
    back_up(source, journal, target)
    before = manifest_in(target)
    for name in before.files:
        bit = 8 * (place % target.size(name))
        target.flip(name, bit)
        with pytest.raises(BackupDamaged, match=f"{name} has changed since it was copied"):
            back_up(source, journal, target)
        target.flip(name, bit)
    assert checked(target) == before


def test_a_file_that_is_missing_in_the_copy_is_found() -> None:
    source, journal = filled()
    target = memory()
    back_up(source, journal, target)
    name = target.names()[0]
    target.delete(name)
    with pytest.raises(BackupDamaged, match=f"{name} is missing"):
        back_up(source, journal, target)


def test_a_file_of_the_copy_that_cannot_be_read_counts_as_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    source, journal = filled()
    target = memory()
    back_up(source, journal, target)
    copy = Copy(target)

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(target, "read", fail)
    with pytest.raises(BackupDamaged, match="cannot be read: Input/output error"):
        copy.update(source, journal.synced_lsn, 1, {})


def test_a_process_that_keeps_a_copy_up_verifies_it_once() -> None:
    source, journal = filled()
    target = memory()
    back_up(source, journal, target)
    verified: list[int] = []
    copy = Copy(target, verified.append)
    for _ in range(2):
        copy.update(source, journal.synced_lsn, 1, {})
        assert sum(verified) == manifest_in(target).size


def test_too_little_space_is_told_before_anything_is_copied() -> None:
    source, journal = filled()
    target = MemoryStorage(random.Random(1), Faults(capacity=1 << 20))
    with pytest.raises(BackupError, match=r"only 1\.0 MiB are free"):
        back_up(source, journal, target)
    assert target.names() == []


@pytest.mark.parametrize("seed", range(12))
def test_a_power_failure_at_any_moment_leaves_a_whole_backup(seed: int) -> None:
    """The target's machine dies at each operation in turn. The backup is then the old or the new one, and continues."""
    rng = random.Random(seed)
    for moment in range(1, 1000):
        source, journal = filled(rng.randrange(1, 5))
        target = MemoryStorage(rng)
        back_up(source, journal, target)
        old = manifest_in(target)
        fill(journal, rng.randrange(1, 8))
        if rng.random() < 0.5:
            snapshot(journal, (9, b"state"))
        target.faults.dies_in = moment
        try:
            back_up(source, journal, target)
        except OSError:
            died = True
        else:
            died = target.faults.dies_in <= 0
        target.crash()
        assert checked(target).end_lsn in {old.end_lsn, journal.synced_lsn}
        back_up(source, journal, target)
        assert restored(target)[1] == replayed(source)
        if not died:
            return
    raise AssertionError("the update never ended")


def test_a_first_backup_that_was_cut_off_continues_where_it_was() -> None:
    source, journal = filled(60)
    target = memory()
    target.faults.dies_in = 90
    with pytest.raises(OSError, match="simulated"):
        back_up(source, journal, target)
    target.crash()
    with pytest.raises(BackupError, match="cut off"):
        manifest_in(target)
    copy = back_up(source, journal, target)
    assert 0 < copy.copied_bytes < checked(target).size

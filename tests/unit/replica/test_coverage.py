"""Files are whole exactly if the journal's recovery accepts them."""

from __future__ import annotations

import pytest

from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.format import snapshot_name
from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import MemoryStorage
from escrowmq.replica.copy import DiskCopy
from escrowmq.replica.coverage import LackingPart
from tests.unit.journal.journals import fill, memory, start
from tests.unit.replica.test_copy import Events


def filled(frames: int = 9) -> tuple[MemoryStorage, Journal]:
    """A disk with some segments, and the journal that has them open."""
    disk = memory()
    journal = start(disk)
    fill(journal, frames)
    return disk, journal


def snapshot(journal: Journal) -> int:
    """Take a snapshot, and return its LSN."""
    found = journal.begin_snapshot([], 7)
    found.write()
    journal.snapshot_done(found)
    work = journal.housekeeping()
    assert work is not None
    work()
    return found.lsn


def lacking(disk: MemoryStorage, end: int) -> LackingPart | None:
    copy = DiskCopy(disk, Events())
    copy.end_lsn = end
    return copy.lacking_part()


def assert_recovery_agrees(disk: MemoryStorage, *, whole: bool) -> None:
    if whole:
        start(disk)
    else:
        with pytest.raises(JournalDamaged):
            start(disk)


def test_all_segments_are_whole() -> None:
    disk, journal = filled()
    assert lacking(disk, journal.end_lsn) is None
    assert_recovery_agrees(disk, whole=True)


def test_an_empty_directory_is_whole_before_the_first_frame_only() -> None:
    assert lacking(memory(), 0) is None
    assert lacking(memory(), 800) == LackingPart(0, 800)


@pytest.mark.parametrize("index", [0, 1])
def test_a_missing_segment_is_lacking_unless_a_snapshot_covers_it(index: int) -> None:
    disk, journal = filled()
    first, second, third, *_ = (lsn for lsn, _ in DiskCopy(disk, Events())._segments())
    disk.delete(disk.names()[index])
    assert lacking(disk, journal.end_lsn) == (LackingPart(first, second), LackingPart(second, third))[index]
    snapshot(journal)
    assert lacking(disk, journal.end_lsn) is None


def test_a_gap_without_a_snapshot_is_refused_by_the_recovery_too() -> None:
    disk, _ = filled()
    disk.delete(disk.names()[1])
    assert_recovery_agrees(disk, whole=False)


def test_a_segment_that_ends_in_the_middle_of_the_log_is_lacking_although_a_snapshot_covers_its_end() -> None:
    disk, journal = filled()
    covered = snapshot(journal)
    torn, following = sorted(name for name in disk.names() if name != snapshot_name(covered))[:2]
    disk.truncate(torn, 500)
    found = lacking(disk, journal.end_lsn)
    assert found is not None
    assert f"{found.end_lsn:016x}.log" == following
    assert_recovery_agrees(disk, whole=False)


def test_a_log_that_ends_before_its_snapshot_is_lacking() -> None:
    disk, journal = filled(2)
    end = snapshot(journal)
    (segment,) = (name for name in disk.names() if name != snapshot_name(end))
    disk.truncate(segment, 500)
    found = lacking(disk, 0)
    assert found is not None
    assert found.end_lsn == end
    assert_recovery_agrees(disk, whole=False)


def test_a_damaged_header_is_lacking() -> None:
    disk, journal = filled()
    disk.write(disk.names()[1], 0, b"damaged")
    assert lacking(disk, journal.end_lsn) is not None
    assert_recovery_agrees(disk, whole=False)


def test_the_text_has_addresses() -> None:
    assert str(LackingPart(16, 32)) == "the journal from LSN 0x10 to 0x20"

"""Recovery of directories that are intact, torn at the tail, damaged elsewhere, or lack files."""

from __future__ import annotations

import random

import pytest

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged, JournalFailed, JournalVersionUnknown
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import MemoryStorage
from tests.unit.journal.journals import (
    FIRST_FRAME,
    FRAME,
    IDENTITY,
    fill,
    flush,
    lsn_of_frame,
    memory,
    reopen,
    snapshot,
    start,
)

FIRST = fmt.segment_name(0)
pytestmark = pytest.mark.rule("DUR-3")


def filled(batches: int = 3, *, segment_bytes: int = 1 << 20, storage: MemoryStorage | None = None) -> MemoryStorage:
    """Return a log with this many frames that was not closed."""
    storage = storage or memory()
    fill(start(storage, segment_bytes=segment_bytes), batches)
    return storage


def offset_of_frame(n: int) -> int:
    return fmt.FILE_HEADER_SIZE + lsn_of_frame(n)


def refused(storage: MemoryStorage, match: str) -> JournalDamaged:
    with pytest.raises(JournalDamaged, match=match) as caught:
        reopen(storage)
    return caught.value


def test_an_empty_directory_is_a_new_journal() -> None:
    storage = memory()
    journal, replayed = reopen(storage)
    assert replayed == []
    assert storage.names() == []
    assert str(journal.recovery) == "journal: 0 segments, log ends at LSN 0x0, 0 records in 0 frames replayed"


def test_a_clean_unsealed_end_is_not_damaged() -> None:
    storage = filled()
    journal, replayed = reopen(storage)
    assert len(replayed) == 3
    assert journal.recovery.cut_file is None
    assert (journal.recovery.log_frames, journal.recovery.end_lsn) == (3, lsn_of_frame(3))


@pytest.mark.parametrize("at", [0, 20, 39, 40, 200, 345, 380])
def test_a_damaged_last_frame_is_cut_off_and_reported(at: int) -> None:
    storage = filled()
    storage.flip(FIRST, 8 * (offset_of_frame(2) + at))
    journal, replayed = reopen(storage)
    report = journal.recovery
    assert [payload for _, _, payload, _ in replayed] == [bytes([i]) * 300 for i in range(2)]
    assert (report.cut_file, report.cut_offset) == (FIRST, offset_of_frame(2))
    assert FRAME - 8 <= report.cut_bytes <= FRAME
    assert f"cut off {report.cut_bytes} bytes of {FIRST} from offset {report.cut_offset}" in str(report)
    assert storage.size(FIRST) == offset_of_frame(2) + fmt.FOOTER_ENTRY_SIZE + fmt.CHAIN_SIZE + fmt.FOOTER_END_SIZE
    again, replayed = reopen(storage)
    assert len(replayed) == 2
    assert again.recovery.cut_file is None


@pytest.mark.parametrize("at", [0, 39, 40, 355])
def test_a_damaged_earlier_frame_is_refused(at: int) -> None:
    storage = filled()
    storage.flip(FIRST, 8 * (offset_of_frame(1) + at))
    before = storage.read(FIRST, 0, 1 << 22)
    error = refused(storage, "a later frame follows")
    assert (error.file, error.offset) == (FIRST, offset_of_frame(1))
    assert storage.read(FIRST, 0, 1 << 22) == before


@pytest.mark.rule("DUR-1", "DUR-2", "DUR-4")
@pytest.mark.parametrize("size", [100, 3000, 20_000])
@pytest.mark.parametrize("failures", [1, 2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_failed_syncs_of_the_repair_leave_no_frame_only_in_the_cache(size: int, failures: int, seed: int) -> None:
    storage = MemoryStorage(random.Random(seed))
    journal = start(storage, segment_bytes=1 << 20)
    fill(journal, 2, size)
    storage.faults.fail_sync_in = 1
    with pytest.raises(JournalFailed):
        fill(journal, 1, size)
    for failure in range(failures):
        storage.faults.fail_sync_in = 1 + failure % 2  # the sync of the frame, or that of the footer
        with pytest.raises(JournalFailed):
            reopen(storage)
    storage.faults.fail_sync_in = None
    journal, replayed = reopen(storage)
    confirmed = [journal.append(1, b"%d" % i) for i in range(20)]
    flush(journal)
    storage.crash()
    _, later = reopen(storage)
    assert [payload for _, _, payload, _ in later[: len(replayed)]] == [payload for _, _, payload, _ in replayed]
    assert [lsn for lsn, *_ in later[len(replayed) :]] == confirmed


def test_a_frame_that_has_left_the_cache_since_the_replay_is_not_written_back() -> None:
    storage = filled()
    replay = Journal.open(storage, journal_id=IDENTITY).replay()
    for _ in range(3):
        next(replay)
    storage.flip(FIRST, 8 * (offset_of_frame(2) + 100))
    with pytest.raises(JournalFailed, match="start again"):
        next(replay)


def test_a_lost_sector_in_the_middle_is_refused() -> None:
    storage = filled(5)
    storage.write(FIRST, offset_of_frame(1), bytes(FRAME))
    refused(storage, "a later frame follows")


def test_garbage_in_the_reserve_is_cut_off() -> None:
    storage = filled(2)
    storage.flip(FIRST, 8 * (offset_of_frame(2) + 1000))
    journal, replayed = reopen(storage)
    assert len(replayed) == 2
    assert journal.recovery.cut_bytes == 1001


def test_the_log_continues_in_a_new_segment() -> None:
    storage = filled(2)
    storage.flip(FIRST, 8 * (offset_of_frame(1) + 50))
    journal, _ = reopen(storage)
    lsn = journal.append(1, b"new")
    assert lsn == FIRST_FRAME + fmt.FRAME_HEADER_SIZE
    flush(journal)
    assert storage.names() == [FIRST, fmt.segment_name(FIRST_FRAME)]
    _, replayed = reopen(storage)
    assert [payload for _, _, payload, _ in replayed] == [bytes(300), b"new"]


def test_a_segment_without_a_whole_frame_is_rewritten() -> None:
    storage = filled(1)
    storage.flip(FIRST, 8 * (offset_of_frame(0) + 50))
    journal, replayed = reopen(storage)
    assert replayed == []
    assert journal.recovery.cut_offset == fmt.FILE_HEADER_SIZE
    fill(journal, 2)
    assert storage.names() == [FIRST]
    _, replayed = reopen(storage)
    assert len(replayed) == 2


def test_damage_in_a_sealed_last_segment_is_refused() -> None:
    storage = memory()
    journal = start(storage)
    fill(journal, 2)
    journal.close()
    storage.flip(FIRST, 8 * (offset_of_frame(1) + 50))
    refused(storage, "the frame's checksum")


def test_damage_before_a_later_segment_is_refused() -> None:
    storage = filled(6, segment_bytes=700)
    assert len(storage.names()) == 3
    storage.flip(FIRST, 8 * (offset_of_frame(1) + 50))
    error = refused(storage, "the frame's checksum")
    assert (error.file, error.offset) == (FIRST, offset_of_frame(1))


def test_a_broken_footer_is_harmless_and_reported() -> None:
    storage = filled(6, segment_bytes=700)
    storage.flip(FIRST, 8 * (storage.size(FIRST) - 1))
    journal, replayed = reopen(storage)
    assert len(replayed) == 6
    assert journal.recovery.notes == [f"{FIRST}: the footer is missing or damaged; all frames are intact"]


def test_the_file_after_one_with_a_broken_footer_stays_until_that_is_deleted() -> None:
    storage = filled(8, segment_bytes=700)
    first, second, third = storage.names()[:3]
    storage.flip(first, 8 * (storage.size(first) - 1))
    journal, replayed = reopen(storage, segment_bytes=700)
    journal.retain(replayed[0][0], 1)
    snapshot(journal)
    assert {first, second} <= set(storage.names())
    assert third not in storage.names()
    journal.close()
    journal, _ = reopen(storage, segment_bytes=700)
    journal.close()


def test_a_broken_footer_and_a_broken_frame_are_refused() -> None:
    storage = filled(6, segment_bytes=700)
    storage.flip(FIRST, 8 * (storage.size(FIRST) - 1))
    storage.flip(FIRST, 8 * (offset_of_frame(1) + 50))
    refused(storage, "a later segment follows")


def test_a_missing_segment_is_refused() -> None:
    storage = filled(6, segment_bytes=700)
    first, second, _ = storage.names()
    storage.delete(second)
    assert refused(storage, "is missing").file == second
    storage.delete(first)
    assert refused(storage, "from LSN 0x0 to").file == first


def test_overlapping_segments_are_refused() -> None:
    storage = filled(2)
    journal, _ = reopen(storage)
    fill(journal, 1)
    second = storage.names()[1]
    storage.create("x")
    storage.write("x", 0, fmt.FileHeader(fmt.TYPE_SEGMENT, IDENTITY, 8, 1).pack())
    storage.replace("x", fmt.segment_name(8))
    assert second > fmt.segment_name(8)
    refused(storage, "but the previous one ends")


def test_a_segment_of_another_journal_is_refused() -> None:
    storage = filled(2)
    storage.create("x")
    storage.write("x", 0, fmt.FileHeader(fmt.TYPE_SEGMENT, b"another journal!", lsn_of_frame(2), 1).pack())
    storage.replace("x", fmt.segment_name(lsn_of_frame(2)))
    refused(storage, "belongs to another journal")


def test_a_damaged_file_header_is_refused() -> None:
    storage = filled(1)
    storage.flip(FIRST, 8 * 40)
    assert refused(storage, "the file header's checksum").offset == 60


def test_a_newer_version_is_refused() -> None:
    storage = filled(1)
    storage.flip(FIRST, 8 * 8 + 3)
    with pytest.raises(JournalVersionUnknown, match=f"version {fmt.VERSION ^ 8}"):
        reopen(storage)


def with_snapshot() -> MemoryStorage:
    """Return six messages in three segments: two deleted as dead, the snapshot at their end, one frame after it."""
    storage = memory()
    journal = start(storage, segment_bytes=700)
    lsns = fill(journal, 6)
    for lsn in lsns[:4]:
        journal.release(lsn, 1)
    snapshot(journal, (9, b"state"))
    fill(journal, 1)
    journal.close()
    return storage


def test_a_damaged_snapshot_without_its_log_is_refused() -> None:
    storage = with_snapshot()
    name = next(name for name in storage.names() if name.endswith(".snapshot"))
    storage.flip(name, 8 * 110)
    damage = refused(storage, "the log cannot replace the snapshot: .*from LSN 0x0")
    assert damage.file == name
    assert damage.offset == 64, "the start of the damaged frame"
    for segment in [name for name in storage.names() if name.endswith(".log")]:
        storage.delete(segment)
    assert refused(storage, "there is no log").file == name, "it is not a new journal"


def test_a_damaged_snapshot_is_replaced_by_its_log() -> None:
    storage = memory()
    journal = start(storage)
    fill(journal, 2)
    snapshot(journal, (9, b"state"))
    journal.close()
    name = next(name for name in storage.names() if name.endswith(".snapshot"))
    for bit in (8 * 110, 0):
        storage.flip(name, bit)
        journal, replayed = reopen(storage)
        assert [kind for _, kind, _, _ in replayed] == [1, 1]
        assert journal.recovery.notes[0].endswith("; the log is complete and is replayed in full instead")


def test_a_log_that_does_not_reach_the_snapshot_is_refused() -> None:
    storage = with_snapshot()
    *_, before, last = [name for name in storage.names() if name.endswith(".log")]
    storage.delete(last)
    storage.shorten(before, fmt.FILE_HEADER_SIZE + FRAME)
    assert refused(storage, "but the snapshot was taken at").offset == fmt.FILE_HEADER_SIZE + FRAME
    storage.delete(before)
    refused(storage, "the log ends at LSN 0x0")


def test_living_messages_in_a_deleted_segment_are_refused() -> None:
    storage = with_snapshot()
    journal = Journal.open(storage)
    records = journal.replay()
    next(records)
    journal.retain(40, 1)
    with pytest.raises(JournalDamaged, match="1 live message in it"):
        list(records)


def test_frames_below_the_snapshot_are_checked_when_they_are_read() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=700)
    lsns = fill(journal, 6)
    snapshot(journal, (9, b"state"))
    journal.close()
    storage.flip(FIRST, 8 * (offset_of_frame(1) + 50))
    journal, _ = reopen(storage)
    assert journal.read(lsns[2], 300) == bytes([2]) * 300
    for lsn in lsns[:2]:  # both lie between two indexed frames
        with pytest.raises(JournalDamaged, match="the frame's checksum"):
            journal.read(lsn, 300)


def test_leftovers_of_interrupted_work_are_deleted() -> None:
    storage = filled(1)
    for name in ("x.tmp", fmt.snapshot_name(5) + ".tmp"):
        storage.create(name)
    reopen(storage)
    assert storage.names() == [FIRST]


@pytest.mark.rule("DUR-2")
def test_after_a_failed_sync_a_restart_does_not_trust_the_cache() -> None:
    for seed in range(30):
        storage = filled(2, storage=MemoryStorage(random.Random(seed)))
        journal, _ = reopen(storage)
        fill(journal, 1)
        journal.append(1, b"z" * 2000)
        batch = journal.take_batch(1)
        assert batch is not None
        storage.faults.fail_sync_in = 1
        with pytest.raises(JournalFailed):
            batch.write()
        _, replayed = reopen(storage)  # the process restarts without the machine, so the page cache is intact
        assert len(replayed) == 4
        storage.crash()
        assert len(reopen(storage)[1]) == 4


def test_totals_for_compaction_survive_a_restart() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=700)
    lsns = fill(journal, 4)
    journal.release(lsns[0], 1)
    snapshot(journal, (9, b"state"))
    journal.close()
    journal = Journal.open(storage, segment_bytes=700)
    records = journal.replay()
    next(records)
    for lsn in lsns[1:]:
        journal.retain(lsn, 1)
    assert list(records) == []
    assert journal.sparse_segments(0.6) == [(0, lsn_of_frame(2), 1, 2)]
    assert JournalFile(storage, FIRST).footer is not None

"""Snapshots are written in parallel, installed at once, and make segments dispensable."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from escrowmq.journal import format as fmt
from escrowmq.journal import snapshot as module
from escrowmq.journal.errors import SnapshotFailed
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.journal import SNAPSHOT_LSN
from escrowmq.journal.recovery import check_snapshot
from escrowmq.journal.snapshot import Snapshot, read_snapshot
from tests.unit.journal.journals import IDENTITY, fill, flush, memory, reopen, snapshot, start, tidy


def test_records_of_many_frames_are_read_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRAME_BYTES", 100)
    storage = memory()
    records = [(i, bytes([i]) * (i * 7 % 150)) for i in range(60)]
    taken = Snapshot(storage, IDENTITY, 4096, 5, iter(records))
    taken.write()
    taken.install()
    assert taken.record_count == 60
    file = JournalFile(storage, taken.name)
    check_snapshot(file)
    assert file.footer is not None
    assert file.footer.frames > 10
    assert [(kind, bytes(payload), time) for kind, payload, time in read_snapshot(file)] == [
        (kind, payload, 5) for kind, payload in records
    ]


def test_a_snapshot_may_be_empty() -> None:
    storage = memory()
    taken = Snapshot(storage, IDENTITY, 0, 5, [])
    taken.write()
    taken.install()
    assert list(read_snapshot(JournalFile(storage, taken.name))) == []


def test_recovery_starts_from_the_snapshot() -> None:
    storage = memory()
    journal = start(storage)
    journal.append(1, b"before")
    flush(journal)
    journal.append(2, b"pending counts as before")
    taken = journal.begin_snapshot([(9, b"state")], 11)
    lsn = journal.append(3, b"after")
    taken.write()
    journal.snapshot_done(taken)
    flush(journal)
    tidy(journal)
    assert journal.snapshot_lsn == taken.lsn
    assert journal.stats.snapshots == 1
    journal.close()
    journal, replayed = reopen(storage)
    assert replayed == [(SNAPSHOT_LSN, 9, b"state", 11), (lsn, 3, b"after", 7)]
    assert journal.recovery.snapshot_records == 1
    assert journal.recovery.log_records == 1


def test_a_snapshot_takes_effect_once_the_log_has_reached_it() -> None:
    storage = memory()
    journal = start(storage)
    journal.append(1, b"not yet on disk")
    taken = journal.begin_snapshot([], 1)
    taken.write()
    journal.snapshot_done(taken)
    assert journal.housekeeping() is None
    flush(journal)
    tidy(journal)
    assert taken.name in storage.names()


def test_older_snapshots_and_dead_segments_are_deleted() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=500)
    lsns = fill(journal, 6)
    for lsn in lsns[:3]:
        journal.release(lsn, 1)
    snapshot(journal, (9, b"first"))
    for lsn in lsns[3:]:
        journal.release(lsn, 1)
    fill(journal, 1)
    before = len(storage.names())
    snapshot(journal, (9, b"second"))
    names = storage.names()
    assert len(names) < before
    assert [name for name in names if name.endswith(".snapshot")] == [fmt.snapshot_name(journal.snapshot_lsn)]
    assert journal.stats.segments == len(names) - 1
    assert journal.stats.segments_deleted >= 3
    segments = [name for name in names if name.endswith(".log")]
    assert journal.stats.disk_bytes == sum(map(storage.size, segments)) - overhead(segments, journal.end_lsn)


def overhead(names: list[str], end_lsn: int) -> int:
    """Return the bytes besides frames: each segment but the last has a footer with one entry, the last its reserve."""
    footers = (len(names) - 1) * (fmt.FOOTER_ENTRY_SIZE + fmt.CHAIN_SIZE + fmt.FOOTER_END_SIZE)
    return len(names) * fmt.FILE_HEADER_SIZE + footers + 500 - (end_lsn - int(names[-1][:16], 16))


def test_only_one_snapshot_is_written_at_a_time() -> None:
    journal = start(memory())
    taken = journal.begin_snapshot([], 1)
    with pytest.raises(RuntimeError, match="in progress"):
        journal.begin_snapshot([], 1)
    taken.write()
    with pytest.raises(SnapshotFailed, match="once"):
        taken.write()
    journal.snapshot_done(taken)
    tidy(journal)
    with pytest.raises(RuntimeError, match="not the snapshot"):
        journal.snapshot_done(taken)


def test_a_failed_snapshot_affects_nothing_else() -> None:
    storage = memory()
    journal = start(storage)
    fill(journal, 1)
    names = storage.names()
    taken = journal.begin_snapshot([(1, bytes(10_000))], 1)
    storage.faults.capacity = 0
    with pytest.raises(SnapshotFailed, match="simulated disk is full"):
        taken.write()
    journal.snapshot_done(taken)
    storage.faults.capacity = None
    assert journal.housekeeping() is None
    assert storage.names() == names
    fill(journal, 1)
    snapshot(journal, (1, b"better"))
    assert journal.snapshot_lsn > 0


def test_errors_of_the_state_pass_through() -> None:
    def broken() -> Iterator[tuple[int, bytes]]:
        yield 1, b"x"
        raise KeyError("lost")

    storage = memory()
    journal = start(storage)
    taken = journal.begin_snapshot(broken(), 1)
    with pytest.raises(KeyError):
        taken.write()
    journal.snapshot_done(taken)
    assert storage.names() == []


def test_failed_housekeeping_affects_nothing_else() -> None:
    storage = memory()
    journal = start(storage)
    fill(journal, 1)
    taken = journal.begin_snapshot([], 1)
    taken.write()
    journal.snapshot_done(taken)
    work = journal.housekeeping()
    assert work is not None
    assert journal.housekeeping() is None  # not while the snapshot is being written
    storage.faults.dies_in = 1
    with contextlib.suppress(OSError):
        work()
    storage.faults.dies_in = None
    assert journal.housekeeping() is None
    assert journal.snapshot_lsn == 0
    snapshot(journal, (1, b"again"))
    assert journal.snapshot_lsn == taken.lsn

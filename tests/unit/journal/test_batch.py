"""One group commit: the bytes it writes, the effect of a failure, and reading before it is written."""

from __future__ import annotations

import errno

import pytest

from escrowmq.journal.batch import LARGE, Health, PendingRecords, joined
from escrowmq.journal.errors import JournalFailed, JournalFull
from tests.unit.journal.journals import fill, flush, memory, start


def pending(*records: bytes) -> PendingRecords:
    made = PendingRecords()
    for record in records:
        made.parts.append(record)
        made.offsets.append(made.offsets[-1] + len(record))
        made.kinds.append(1)
    return made


def test_pending_records_are_read_and_appended_in_turn() -> None:
    records = pending(b"one", b"two")
    assert records.read(0, 3) == b"one"
    records.parts.append(b"three")
    records.offsets.append(11)
    assert records.read(3, 3) == b"two"
    assert records.read(6, 5) == b"three"
    assert records.read(7, 2) == b"hr"
    assert records.payload() == [b"onetwo", b"three"]
    assert len(records.chunks) == 2


def test_health_keeps_the_first_failure() -> None:
    health = Health()
    health.check()
    told: list[bool] = []
    health.on_failure = lambda: told.append(True)
    first = health.fail(OSError(errno.EIO, "broken"))
    assert health.fail(OSError(errno.ENOSPC, "full")) is first
    assert told == [True]
    with pytest.raises(JournalFailed, match="broken"):
        health.check()


def test_a_full_disk_has_its_own_error() -> None:
    assert isinstance(Health().fail(OSError(errno.ENOSPC, "full")), JournalFull)
    assert not isinstance(Health().fail(OSError(errno.EIO, "broken")), JournalFull)


def test_a_batch_is_one_write_and_one_sync() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=1 << 20)
    fill(journal, 1)
    for i in range(100):
        journal.append(i, b"head", b"body")
    before = storage.writes, storage.syncs
    flush(journal)
    assert (storage.writes - before[0], storage.syncs - before[1]) == (1, 1)


def test_payload_is_joined_once() -> None:
    journal = start(memory())
    journal.append(1, b"a", b"b")
    journal.append(2, b"c")
    batch = journal.take_batch(1)
    assert batch is not None
    assert batch.chunks() == [b"abc"]
    assert batch.chunks() is batch.chunks()
    assert batch.read(batch.first_lsn + 41, 2) == b"bc"


def test_large_parts_are_written_without_a_copy_and_read_across() -> None:
    storage = memory()
    journal = start(storage)
    large = bytes(i % 251 for i in range(LARGE))
    lsn = journal.append(1, b"head", large, b"tail")
    last = journal.append(2, b"x")
    batch = journal.take_batch(1)
    assert batch is not None
    head, body, rest = batch.chunks()
    assert body is large
    assert (head, rest) == (b"head", b"tailx")
    for offset, length in ((0, 4), (0, 5), (2, LARGE), (4, LARGE), (0, LARGE + 8), (LARGE + 3, 5)):
        assert batch.read(lsn + offset, length) == (b"head" + large + b"tail")[offset : offset + length]
    assert batch.read(last, 1) == b"x"
    batch.write()
    journal.batch_done(batch)
    assert journal.read(lsn, LARGE + 8) == b"head" + large + b"tail"


def test_there_are_never_more_chunks_than_the_system_writes_at_once() -> None:
    parts = [b"x", bytes(LARGE)] * 600
    assert joined(parts, sum(map(len, parts))) == [b"".join(parts)]


@pytest.mark.rule("DUR-2")
def test_a_failed_write_is_never_tried_again() -> None:
    storage = memory()
    journal = start(storage)
    fill(journal, 1)
    journal.append(1, b"x")
    batch = journal.take_batch(1)
    assert batch is not None
    storage.faults.fail_sync_in = 1
    with pytest.raises(JournalFailed, match="simulated sync error"):
        batch.write()
    writes = storage.writes
    with pytest.raises(JournalFailed):
        batch.write()
    assert storage.writes == writes
    assert not batch.written


@pytest.mark.rule("DUR-2")
def test_errors_other_than_the_disks_poison_too(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = memory()
    journal = start(storage)
    journal.append(1, b"x")
    batch = journal.take_batch(1)
    assert batch is not None

    def out_of_memory(name: str, offset: int, *parts: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(storage, "write", out_of_memory)
    with pytest.raises(JournalFailed):
        batch.write()
    with pytest.raises(JournalFailed):
        journal.append(1, b"y")

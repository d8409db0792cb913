"""The journal as the loop sees it: appending, batches, reading, segments, failure; and kill -9 of a writer."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalDamaged, JournalFailed, JournalFull, JournalUnreadable
from escrowmq.journal.journal import READ_ATTEMPTS, SNAPSHOT_LSN, Journal
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.storage import FileStorage
from tests.unit.journal.journals import fill, flush, lsn_of_frame, memory, on_disk, reopen, snapshot, start, tidy


def test_lsns_are_addresses_of_payloads() -> None:
    journal = start(memory())
    assert journal.append(1, b"abc", b"de") == 40
    assert journal.append(2) == 45
    assert journal.append(3, b"f") == 45
    flush(journal)
    assert journal.end_lsn == 40 + 8 + 24
    assert journal.append(4, b"g") == journal.synced_lsn + 40
    flush(journal)
    journal.close()


@pytest.mark.rule("DUR-1")
def test_an_answer_waits_for_the_end_lsn() -> None:
    journal = start(memory())
    assert journal.end_lsn == journal.synced_lsn == 0
    journal.append(1)
    first = journal.end_lsn
    assert first > journal.synced_lsn
    batch = journal.take_batch(1)
    assert batch is not None
    assert journal.end_lsn >= first  # nothing new, but the batch is not on disk yet
    journal.append(1, b"x")
    second = journal.end_lsn
    batch.write()
    assert journal.synced_lsn < first
    journal.batch_done(batch)
    assert first <= journal.synced_lsn < second
    flush(journal)
    assert journal.synced_lsn >= second
    assert journal.pending_bytes == 0


def test_one_batch_is_in_flight() -> None:
    journal = start(memory())
    assert journal.take_batch(1) is None
    journal.append(1, b"x")
    batch = journal.take_batch(1)
    assert batch is not None
    journal.append(1, b"y")
    assert journal.take_batch(1) is None
    with pytest.raises(RuntimeError, match="not the batch"):
        journal.batch_done(batch)
    batch.write()
    journal.batch_done(batch)
    assert journal.take_batch(2) is not None


def test_large_batches_are_divided() -> None:
    storage = memory()
    journal = start(storage, batch_bytes=1000)
    sizes = [400, 400, 400, 5000, 10, 999]
    lsns = [journal.append(1, bytes([i]) * size) for i, size in enumerate(sizes)]
    for i, lsn in enumerate(lsns):
        assert journal.read(lsn, sizes[i]) == bytes([i]) * sizes[i]
    flush(journal)
    assert journal.stats.batches == 5
    _, replayed = reopen(storage)
    assert [(lsn, len(payload)) for lsn, _, payload, _ in replayed] == list(zip(lsns, sizes, strict=True))


def test_replay_returns_the_appended_records() -> None:
    storage = memory()
    journal = start(storage)
    lsns = []
    for now in range(10):
        lsns += [journal.append(kind, b"p" * kind, b"q") for kind in range(20)]
        flush(journal, now)
    _, replayed = reopen(storage)
    assert replayed == [(lsn, i % 20, b"p" * (i % 20) + b"q", i // 20) for i, lsn in enumerate(lsns)]


def test_replay_is_allowed_once_before_appending() -> None:
    storage = memory()
    fill(start(storage), 1)
    journal = Journal.open(storage)
    journal.append(1, b"x")
    with pytest.raises(RuntimeError, match="replay the journal first"):
        journal.take_batch(1)
    journal = start(storage)
    with pytest.raises(RuntimeError, match="already been replayed"):
        list(journal.replay())


def test_pending_in_flight_and_written_records_can_be_read() -> None:
    journal = start(memory(), segment_bytes=200)
    lsns = [journal.append(1, b"%03d" % i * 10) for i in range(5)]

    def check() -> None:
        for i, lsn in enumerate(lsns):
            assert journal.read(lsn, 30) == b"%03d" % i * 10
            assert journal.read(lsn + 3, 3) == b"%03d" % i

    check()
    batch = journal.take_batch(1)
    assert batch is not None
    check()
    lsns += [journal.append(1, b"%03d" % i * 10) for i in range(5, 9)]
    check()
    batch.write()
    check()
    journal.batch_done(batch)
    check()
    flush(journal)
    check()


@pytest.mark.rule("DUR-4")
def test_a_read_that_fails_is_tried_again() -> None:
    storage = memory()
    journal = start(storage)
    (lsn,) = fill(journal, 1)
    storage.faults.fail_reads = READ_ATTEMPTS - 1
    assert journal.read(lsn, 300) == bytes(300)
    storage.faults.fail_reads = READ_ATTEMPTS
    with pytest.raises(JournalUnreadable, match=f"LSN {lsn:#x}"):
        journal.read(lsn, 300)
    assert journal.read(lsn, 300) == bytes(300)


@pytest.mark.rule("DUR-4")
def test_damage_after_the_needed_bytes_only_shortens_the_read_ahead() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=1 << 20)
    lsns = fill(journal, 40)
    name = storage.names()[0]
    storage.faults.unreadable = {name: {lsns[30] // 512}}
    assert journal.read_ahead(lsns[0], 1 << 20)[:300] == bytes(300)
    with pytest.raises(JournalUnreadable):
        journal.read_ahead(lsns[30] // 512 * 512, 1 << 20)


def test_reading_beyond_the_log_is_refused() -> None:
    journal = start(memory())
    lsn = journal.append(1, b"abc")
    with pytest.raises(ValueError, match="no record holds"):
        journal.read(lsn, 4)
    with pytest.raises(ValueError, match="no record holds"):
        journal.read(lsn + 100, 1)
    batch = journal.take_batch(1)
    assert batch is not None
    with pytest.raises(ValueError, match="no record holds"):
        journal.read(lsn, 4)
    batch.write()
    journal.batch_done(batch)
    with pytest.raises(JournalDamaged, match="no segment holds"):
        journal.read(lsn, 1000)


@pytest.mark.parametrize("kind", [-1, 256])
def test_bad_kinds_are_refused_and_leave_nothing(kind: int) -> None:
    storage = memory()
    journal = start(storage)
    with pytest.raises(ValueError, match="byte must be in range"):
        journal.append(kind, b"x")
    journal.append(5, b"y")
    flush(journal)
    assert [(kind, payload) for _, kind, payload, _ in reopen(storage)[1]] == [(5, b"y")]


def test_too_large_records_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmt, "MAX_RECORD", 100)
    journal = start(memory(), batch_bytes=50)
    journal.append(1, bytes(100))
    with pytest.raises(ValueError, match="a record of 101 bytes exceeds the limit of 100"):
        journal.append(1, bytes(101))


def test_a_new_segment_begins_when_the_previous_one_is_full() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=1000)
    lsns = fill(journal, 7)
    names = [fmt.segment_name(lsns[i] - 40) for i in (0, 3, 6)]
    assert storage.names() == names
    assert journal.stats.segments == 3
    journal.close()
    _, replayed = reopen(storage)
    assert [lsn for lsn, _, _, _ in replayed] == lsns


@pytest.mark.rule("DUR-2")
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_failed_sync_poisons_the_journal(after: int) -> None:
    storage = memory()
    journal = start(storage, segment_bytes=100)
    fill(journal, 1)
    journal.append(1, b"x")
    batch = journal.take_batch(1)
    assert batch is not None
    storage.faults.fail_sync_in = after  # syncs: sealing, the new segment's header, (its name), the batch
    with pytest.raises(JournalFailed, match="cannot be written"):
        batch.write()
    for call in (
        lambda: journal.append(1, b"y"),
        lambda: journal.take_batch(2),
        lambda: journal.batch_done(batch),
        lambda: journal.begin_snapshot([], 1),
        journal.housekeeping,
    ):
        with pytest.raises(JournalFailed, match="simulated sync error"):
            call()
    syncs = storage.syncs
    journal.close()
    assert storage.syncs == syncs


def test_files_of_which_few_messages_live_leave_the_memory_of_the_system() -> None:
    gone: list[str] = []

    class Cached(MemoryStorage):
        def uncache(self, name: str) -> None:
            gone.append(name)
            raise FileNotFoundError(name)  # deleted meanwhile

    journal = start(Cached(random.Random(1)))
    lsns = fill(journal, 4)
    assert gone == []
    for lsn in lsns:
        journal.release(lsn, 1)
    fill(journal, 8)
    assert gone == [fmt.segment_name(lsns[0] - fmt.FRAME_HEADER_SIZE)]


def test_a_full_disk_is_a_clean_error() -> None:
    storage = memory()
    journal = start(storage)
    fill(journal, 1)
    storage.faults.capacity = storage.size(fmt.segment_name(0))
    journal.append(1, bytes(3 << 20))
    batch = journal.take_batch(1)
    assert batch is not None
    with pytest.raises(JournalFull, match="simulated disk is full"):
        batch.write()
    storage.faults.capacity = None
    journal, replayed = reopen(storage)
    assert len(replayed) == 1
    assert journal.recovery.cut_file is None


def test_many_live_messages_are_counted_together() -> None:
    one, several = start(memory(), segment_bytes=700), start(memory(), segment_bytes=700)
    lsns = fill(one, 8)
    assert fill(several, 8) == lsns
    order = [lsns[n] for n in (0, 0, 1, 3, 2, 7, 5, 6, 6)]
    counts = list(range(1, 10))
    for lsn, count in zip(order, counts, strict=True):
        one.retain(lsn, count)
    several.retain_each(order, counts)
    expected = [(segment.live, segment.total) for segment in one._table]
    assert len(expected) > 2
    assert [(segment.live, segment.total) for segment in several._table] == expected
    several.retain_each([], [])


def test_many_live_messages_are_released_together() -> None:
    journal = start(memory(), segment_bytes=700)
    lsns = fill(journal, 8)
    for lsn in lsns:
        journal.retain(lsn, 3)
    order = [lsns[n] for n in (0, 1, 3, 2, 7, 5, 6)]
    journal.release_each(order, [1, 2, 3, 3, 2, 1, 3])
    assert sum(segment.live for segment in journal._table) == 4 * 8 - 15  # `fill` retains one each
    with pytest.raises(ValueError, match="fewer live messages"):
        journal.release_each([lsns[0], lsns[1]], [99, 99])
    journal.release_each([], [])


def test_living_messages_are_counted() -> None:
    journal = start(memory(), segment_bytes=700)
    lsns = fill(journal, 8)
    journal.retain(lsns[0], 9)
    journal.release(lsns[0], 8)
    journal.release(lsns[1], 1)
    assert journal.sparse_segments(1.0) == []
    assert journal.awaits_snapshot(0.5)
    assert not journal.awaits_snapshot(0.1)
    snapshot(journal)
    assert not journal.awaits_snapshot(0.5)
    assert journal.sparse_segments(0.5) == [(0, lsn_of_frame(2), 2, 11)]
    assert journal.sparse_segments(0.1) == []
    with pytest.raises(ValueError, match="cannot release 3 messages"):
        journal.release(lsns[0], 3)
    journal.release(lsns[0], 2)
    tidy(journal)
    with pytest.raises(JournalDamaged, match="no segment holds"):
        journal.retain(lsns[0], 1)
    with pytest.raises(ValueError, match="fewer live messages"):
        journal.release(lsns[0], 1)


def test_the_oldest_living_segment_pins_the_log_when_it_is_long() -> None:
    journal = start(memory(), segment_bytes=700)
    lsns = fill(journal, 9)
    for lsn in lsns[2:]:
        journal.release(lsn, 1)
    first_end = lsn_of_frame(2)
    assert journal.pinning_segment(4, 0) is None, "no snapshot covers it"
    snapshot(journal)
    assert journal.pinning_segment(4, 0) == (0, first_end, 2, 2), "all of it lives"
    assert journal.pinning_segment(5, 0) is None
    assert journal.pinning_segment(4, journal.end_lsn) is None
    assert journal.pinning_segment(4, journal.end_lsn - 1) is not None
    for lsn in lsns[:2]:
        journal.release(lsn, 1)
    assert journal.pinning_segment(1, 0) is None, "nothing lives"


@pytest.mark.rule("ORD-5")
def test_compaction_keeps_the_order_of_the_log() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=700)
    lsns = fill(journal, 6)
    journal.release(lsns[0], 1)
    snapshot(journal, (9, b"state"))
    (sparse,) = journal.sparse_segments(0.9)
    moved = journal.append(2, journal.read(lsns[1], 300))
    journal.retain(moved, 1)
    journal.release(lsns[1], 1)
    assert journal.housekeeping() is None  # the copy is not on disk yet
    flush(journal)
    tidy(journal)
    assert fmt.segment_name(sparse.first_lsn) not in storage.names()
    journal.close()
    journal, replayed = reopen(storage)
    assert [(lsn, kind) for lsn, kind, _, _ in replayed] == [(SNAPSHOT_LSN, 9), (moved, 2)]
    assert journal.read(moved, 300) == bytes([1]) * 300


def test_dead_segments_can_be_kept_for_audit() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=300, keep_dead_bytes=800)
    lsns = fill(journal, 6)
    for lsn in lsns:
        journal.release(lsn, 1)
    snapshot(journal)
    assert sum(name.endswith(".log") for name in storage.names()) == 3


def test_before_the_first_batch_only_the_lock_file_exists(tmp_path: Path) -> None:
    journal = start(on_disk(tmp_path))
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["lock"]
    journal.append(1, b"x")
    flush(journal)
    assert sum(path.stat().st_size for path in (tmp_path / "data").iterdir()) < 2 << 20
    journal.close()


def test_on_a_real_directory_with_a_writer_thread(tmp_path: Path) -> None:
    journal = start(on_disk(tmp_path), segment_bytes=20_000, batch_bytes=5000)
    expected = []
    for i in range(200):
        for k in range(10):
            payload = b"%d/%d" % (i, k) * 10
            expected.append((journal.append(k, payload[:5], payload[5:]), k, payload, i))
        while (batch := journal.take_batch(i)) is not None:
            thread = threading.Thread(target=batch.write)
            thread.start()
            lsn, _, payload, _ = expected[-1]
            assert journal.read(lsn, len(payload)) == payload
            thread.join()
            journal.batch_done(batch)
    for lsn, _, payload, _ in expected:
        assert journal.read(lsn, len(payload)) == payload
    journal.close()
    journal, replayed = reopen(on_disk(tmp_path))
    assert replayed == expected
    assert journal.stats.segments > 3
    journal.close()


WRITER = """
import sys
from escrowmq.journal.journal import Journal
from escrowmq.journal.storage import FileStorage
journal = Journal.open(FileStorage(sys.argv[1]), segment_bytes=20_000)
number = sum(1 for _ in journal.replay())
while True:
    for _ in range(7):
        journal.append(1, b"%d" % number * 50)
        number += 1
    batch = journal.take_batch(number)
    batch.write()
    journal.batch_done(batch)
    sys.stdout.write("%d\\n" % number)
    sys.stdout.flush()
"""


@pytest.mark.rule("DUR-1")
@pytest.mark.rule("DUR-3")
def test_killed_writers_lose_no_reported_batch(tmp_path: Path) -> None:
    reported = 0
    for lines in (1, 40, 7, 90, 3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(lines):
                reported = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
            for line in writer.stdout.read().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    reported = int(line)
        journal, replayed = reopen(FileStorage(tmp_path))
        assert [payload for _, _, payload, _ in replayed] == [b"%d" % i * 50 for i in range(len(replayed))]
        assert len(replayed) >= reported
        journal.close()


@pytest.mark.rule("DUR-3")
@pytest.mark.parametrize("sealed", [True, False])
def test_a_flipped_bit_below_the_snapshot_is_detected_by_any_read(sealed: bool) -> None:
    """Covers reads that begin in an intact frame, and the part of a segment that the replay skips."""
    storage = memory()
    journal = start(storage, segment_bytes=300_000 if sealed else 10_000_000)
    lsns = fill(journal, 8, size=60_000)
    snapshot(journal)
    fill(journal, 1)
    journal.close()
    storage.flip(fmt.segment_name(0), 8 * (fmt.FILE_HEADER_SIZE + lsns[3] + 100))
    journal, _ = reopen(storage, segment_bytes=300_000)
    ahead = journal.read_ahead(lsns[0], 256 * 1024)
    assert lsns[0] + 60_000 <= lsns[0] + len(ahead) <= lsns[3]
    assert journal.read(lsns[0], 60_000) == ahead[:60_000]
    for read in (journal.read, journal.read_ahead):
        with pytest.raises(JournalDamaged, match="checksum"):
            read(lsns[3], 60_000)
    assert journal.read(lsns[7], 10) == bytes([7]) * 10


class RecordedSink:
    """Keeps what it gets. Nothing is waited for."""

    synced = True

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def begin(self, header: bytes, messages: int) -> None:
        """Note the number of messages."""
        self.told.append(("begin", messages))

    def send(self, lsn: int, parts: Sequence[bytes]) -> None:
        """Note the LSN."""
        self.told.append(("send", lsn))

    def wait(self) -> None:
        """Note it."""
        self.told.append(("wait", 0))


def with_sink(storage: MemoryStorage) -> tuple[Journal, RecordedSink]:
    sink = RecordedSink()
    journal = Journal.open(storage, segment_bytes=1000, journal_id=bytes(16), sink=sink)
    for lsn, kind, _, _ in journal.replay():
        if kind == 1:
            journal.retain(lsn, 1)
    return journal, sink


def test_a_sink_gets_headers_and_frames_and_each_frame_is_waited_for() -> None:
    journal, sink = with_sink(memory())
    fill(journal, 4)
    starts = [lsn for what, lsn in sink.told if what == "send"]
    assert len(starts) == 4
    assert [what for what, _ in sink.told] == ["begin", *["send", "wait"] * 3, "begin", "send", "wait"]
    assert sink.told[7] == ("begin", 3)


def test_a_sink_is_told_the_number_of_messages_that_the_repair_wrote() -> None:
    storage = memory()
    fill(with_sink(storage)[0], 2)
    journal, sink = with_sink(storage)
    journal.retain(journal.append(1), 1)
    flush(journal)
    assert sink.told[0] == ("begin", 2)


def test_alone_an_answer_needs_no_proof() -> None:
    journal = start(memory())
    assert [journal.proof_lsn(0), journal.proof_lsn(48)] == [0, 48]
    assert journal.end_lsn == 0


@pytest.mark.rule("REPL-3")
def test_a_proof_is_a_frame_that_is_sent_after_the_question() -> None:
    journal, sink = with_sink(memory())
    proof = journal.proof_lsn(0)
    assert proof == journal.end_lsn > journal.synced_lsn
    assert journal.proof_lsn(0) == proof, "all answers of a turn share it"
    flush(journal)
    assert journal.synced_lsn >= proof
    assert ("send", 0) in sink.told
    later = journal.proof_lsn(proof)
    assert later > proof


@pytest.mark.rule("REPL-3")
def test_a_frame_that_is_being_sent_proves_nothing() -> None:
    journal, _ = with_sink(memory())
    journal.append(1)
    batch = journal.take_batch(7)
    assert batch is not None
    assert journal.proof_lsn(batch.end_lsn) > batch.end_lsn
    journal.append(1)
    own = journal.end_lsn
    assert journal.proof_lsn(own) == own
    batch.write()
    journal.batch_done(batch)
    flush(journal)
    journal.close()


def test_proofs_change_nothing_after_a_restart() -> None:
    storage = memory()
    journal, _ = with_sink(storage)
    fill(journal, 5)
    for _ in range(3):
        journal.proof_lsn(0)
        flush(journal)
    journal.close()
    again, records = reopen(storage)
    assert [kind for _, kind, _, _ in records] == [1] * 5
    assert again.recovery.notes == []

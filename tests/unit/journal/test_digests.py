"""Each frame repeats the digest of the frame before it, by which changes are found and located."""

from __future__ import annotations

import hashlib
import zlib
from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.records.kinds import Kind
from escrowmq.journal import digests
from escrowmq.journal import format as fmt
from escrowmq.journal.digests import FrameDigest
from escrowmq.journal.frames import Frame, JournalFile
from escrowmq.journal.journal import Journal
from escrowmq.journal.memory import MemoryStorage
from tests.unit.journal.journals import fill, flush, memory, snapshot, start, tidy


def frames(storage: MemoryStorage) -> list[Frame]:
    found = []
    for name in storage.names():
        if name.endswith(".log"):
            file = JournalFile(storage, name)
            found += list(file.walk(end=file.footer.end_lsn if file.footer else None))
    return found


def check(storage: MemoryStorage, *, strong: bool = False) -> None:
    """Check that each frame has the digest of the one before it."""
    found = frames(storage)
    assert len(found) > 2
    for past, frame in pairwise(found):
        said = digests.last_of(frame)
        assert said == digests.of_frame(past, strong=strong)
        assert said is not None
        assert said.changes(past) is None


def altered(frame: Frame, at: int) -> Frame:
    """Return the frame with another byte in its payload, and right checksums."""
    payload = bytearray(frame.payload)
    payload[at] ^= 1
    offsets = array("I", frame.offsets)
    head, *body = fmt.pack_frame(frame.lsn, frame.time_us, [bytes(payload)], offsets, bytes(frame.kinds), 0)
    whole = memoryview(b"".join(body))
    table = len(whole) - len(frame.body) + len(frame.payload)
    return Frame(
        frame.lsn,
        frame.end_lsn,
        frame.time_us,
        whole[:table],
        frame.offsets,
        frame.kinds,
        memoryview(head),
        whole,
    )


@pytest.mark.parametrize("segment_bytes", [300, 1 << 20])
def test_each_frame_has_the_digest_of_the_one_before(segment_bytes: int) -> None:
    storage = memory()
    journal = start(storage, segment_bytes=segment_bytes)
    fill(journal, 5)
    fill(journal, 3, size=50_000)
    check(storage)
    assert digests.last_of(frames(storage)[0]) is None


def test_the_digest_of_large_and_of_split_parts_is_that_of_the_whole() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=1 << 24)
    for sizes in ((1, 40_000, 5), (4096,), (4095, 2), (100_000, 33_000, 7000, 1)):
        journal.append(1, *(bytes([size % 251]) * size for size in sizes))
        flush(journal)
    fill(journal, 1)
    check(storage)


def test_it_continues_after_a_crash_and_after_a_clean_stop() -> None:
    storage = memory()
    fill(start(storage), 2)
    storage.crash()
    journal = start(storage)
    fill(journal, 2)
    journal.close()
    journal = start(storage)
    fill(journal, 2)
    journal.close()
    check(storage)


def test_it_continues_below_a_snapshot_and_behind_deleted_segments() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=300)
    for lsn in fill(journal, 4):
        journal.release(lsn, 1)
    snapshot(journal, (9, b"state"))
    tidy(journal)
    journal.close()
    journal = start(storage)
    fill(journal, 3)
    first, *_ = frames(storage)
    assert first.lsn > 0
    assert digests.last_of(first) is not None
    check(storage)


def test_batches_that_wait_for_the_disk_have_digests_in_turn() -> None:
    storage = memory()
    journal = start(storage, batch_bytes=500)
    for number in range(10):
        journal.append(1, bytes([number]) * 300)
    flush(journal)
    check(storage)


def test_a_frame_that_cannot_be_read_has_no_digest() -> None:
    storage = memory()
    journal = start(storage, segment_bytes=300)
    fill(journal, 2)
    snapshot(journal, (9, b"state"))
    journal.close()
    last = [name for name in storage.names() if name.endswith(".log")][-1]
    storage.flip(last, 8 * (fmt.FILE_HEADER_SIZE + 50))
    journal = start(storage)
    fill(journal, 2)
    *_, fresh, second = frames(storage)
    assert digests.last_of(fresh) is None
    assert digests.last_of(second) is not None


def test_replay_and_counters_pass_digests_over() -> None:
    storage = memory()
    fill(start(storage), 3)
    journal = Journal.open(storage)
    assert [kind for _, kind, _, _ in journal.replay()] == [1, 1, 1]
    assert journal.recovery.log_records == 3
    fill(journal, 2)
    assert journal.stats.records == 2


def test_the_stronger_digest_is_made_of_the_whole_body() -> None:
    storage = memory()
    journal = Journal.open(storage, chain_contents=True)
    assert list(journal.replay()) == []
    fill(journal, 4)
    check(storage, strong=True)
    past, frame, *_ = frames(storage)
    said = digests.last_of(frame)
    assert said is not None
    assert said.strong == hashlib.sha256(past.body).digest()[: digests.STRONG_SIZE]
    kept = FrameDigest(past.lsn, past.time_us, said.body_crc, bytes(digests.STRONG_SIZE), said.marks)
    assert kept.changes(past) == []


@given(st.integers(0, 20_299))
def test_a_change_is_located(at: int) -> None:
    storage = memory()
    journal = start(storage)
    journal.append(1, bytes(300))
    flush(journal)
    journal.append(1, bytes(20_000), bytes(300))
    flush(journal)
    fill(journal, 1)
    _, past, frame = frames(storage)
    said = digests.last_of(frame)
    assert said is not None
    assert said.changes(past) is None
    ((begin, end),) = said.changes(altered(past, at)) or []
    assert begin <= at < end <= begin + fmt.MARK


def test_two_changes_are_located_apart() -> None:
    storage = memory()
    journal = start(storage)
    journal.append(1, bytes(20_000))
    flush(journal)
    fill(journal, 1)
    past, frame = frames(storage)
    said = digests.last_of(frame)
    assert said is not None
    assert said.changes(altered(altered(past, 5000), 19_000)) == [(4096, 8192), (16_384, 20_000)]


def test_another_time_is_a_change_that_is_in_no_record() -> None:
    storage = memory()
    fill(start(storage), 2)
    past, frame = frames(storage)
    said = digests.last_of(frame)
    assert said is not None
    assert FrameDigest(said.lsn, said.time_us + 1, said.body_crc, b"", said.marks).changes(past) == []


def test_it_is_decoded_as_it_was_encoded_and_nothing_else_is() -> None:
    made = FrameDigest(4096, 7, zlib.crc32(b"x"), bytes(range(16)), array("I", (1, 2, 3)))
    data = made.pack()
    assert digests.decode(data) == made
    assert len(data) == digests.size_of(3 * fmt.MARK + 5, strong=True)
    for wrong in (data[:-1], data + b"\0", data[:10], b""):
        with pytest.raises(ValueError, match="a digest of"):
            digests.decode(wrong)


def test_the_kind_is_that_of_the_records() -> None:
    assert digests.DIGEST == Kind.DIGEST

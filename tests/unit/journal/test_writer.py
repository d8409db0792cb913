"""Writing files: preallocation, publishing, sealing."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace

import pytest

from escrowmq.journal import format as fmt
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.writer import FIRST_RESERVE, FileWriter, FooterBuilder
from tests.unit.journal.journals import IDENTITY, memory

HEADER = fmt.FileHeader(fmt.TYPE_SEGMENT, IDENTITY, 0, 1)
NAME = fmt.segment_name(0)


def record(file: FileWriter, size: int) -> int:
    return file.append(1, [bytes(size)], array("I", (0, size)), b"\1")


def test_reserve_doubles_up_to_the_limit() -> None:
    storage = memory()
    file = FileWriter(storage, NAME, HEADER, reserve_limit=5 * FIRST_RESERVE)
    file.create()
    sizes = [storage.size(NAME)]
    for _ in range(6):
        record(file, FIRST_RESERVE)
        sizes.append(storage.size(NAME))
    assert [round(size / FIRST_RESERVE) for size in sizes] == [1, 2, 4, 4, 5, 5, 6]


def test_without_a_limit_nothing_is_reserved() -> None:
    storage = memory()
    file = FileWriter(storage, NAME, HEADER)
    file.create()
    assert storage.size(NAME) == fmt.FILE_HEADER_SIZE
    assert record(file, 10) == storage.size(NAME) - fmt.FILE_HEADER_SIZE


def test_a_published_file_is_complete_after_a_crash() -> None:
    for seed in range(30):
        storage = MemoryStorage(random.Random(seed))
        file = FileWriter(storage, NAME + ".tmp", HEADER, reserve_limit=4096)
        file.create()
        file.publish(NAME)
        record(file, 5000)
        storage.crash()
        assert JournalFile(storage, NAME).header == HEADER


def test_a_sealed_file_survives_a_crash_and_has_no_reserve() -> None:
    storage = memory()
    file = FileWriter(storage, NAME + ".tmp", HEADER, reserve_limit=1 << 20)
    file.create()
    file.publish(NAME)
    size = record(file, 5000)
    assert file.end_lsn == size
    total = file.seal(9)
    storage.crash()
    footer = JournalFile(storage, NAME).footer
    assert footer is not None
    assert (footer.end_lsn, footer.messages, footer.frames) == (size, 9, 1)
    assert storage.size(NAME) == total == fmt.FILE_HEADER_SIZE + size + len(footer.pack(0))


def test_a_frame_can_be_made_durable_immediately() -> None:
    for seed in range(30):
        storage = MemoryStorage(random.Random(seed))
        file = FileWriter(storage, NAME + ".tmp", HEADER)
        file.create()
        file.publish(NAME)
        file.append_durably(1, [bytes(5000)], array("I", (0, 5000)), b"\1")
        storage.crash()
        assert len(list(JournalFile(storage, NAME).walk())) == 1


def test_footers_contain_times_and_counts() -> None:
    builder = FooterBuilder(replace(HEADER, lsn=100, version=3))
    assert builder.build(0) == fmt.Footer((), 100, 100, 0, 0, 0, 0, 0)
    builder.add(100, 200, 7, 3, [b""])
    builder.add(200, 100_000, 8, 1, [b""])
    builder.add(100_000, 100_100, 9, 2, [b""])
    assert builder.build(4) == fmt.Footer(((100, 7, 0), (100_000, 9, 4)), 100, 100_100, 3, 6, 7, 9, 4)


def test_a_full_disk_is_detected_before_writing() -> None:
    storage = memory()
    storage.faults.capacity = 2 * FIRST_RESERVE
    file = FileWriter(storage, NAME, HEADER, reserve_limit=8 * FIRST_RESERVE)
    file.create()
    record(file, FIRST_RESERVE // 2)
    writes = storage.writes
    with pytest.raises(OSError, match="full"):
        record(file, 3 * FIRST_RESERVE)
    assert storage.writes == writes


def test_the_last_space_on_the_disk_can_be_used() -> None:
    """One preallocation takes more space than a settlement needs, and settlements may free space."""
    storage = memory()
    storage.faults.capacity = FIRST_RESERVE // 2
    file = FileWriter(storage, NAME, HEADER, reserve_limit=8 * FIRST_RESERVE)
    file.create()
    while storage.size(NAME) < FIRST_RESERVE // 2 - 20_000:
        record(file, 10_000)
    with pytest.raises(OSError, match="full"):
        record(file, 30_000)

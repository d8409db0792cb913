"""A journal is recovered from files that another process writes, without a change of these files."""

from __future__ import annotations

import random

import pytest

from escrowmq.journal.format import snapshot_name
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.overlay import Overlay, visible_bytes
from tests.unit.journal.journals import fill, memory, reopen, start


class ReadOnly:
    """The files of a storage, of which only those methods can be called that read."""

    def __init__(self, storage: MemoryStorage) -> None:
        self.names = storage.names
        self.size = storage.size
        self.read = storage.read


def overlay(**files: bytes) -> tuple[MemoryStorage, Overlay]:
    base = MemoryStorage(random.Random(1))
    for name, data in files.items():
        base.create(name)
        base.write(name, 0, data)
    return base, Overlay(ReadOnly(base), {name: len(data) for name, data in files.items()})


def whole(storage: Overlay | MemoryStorage, name: str) -> bytes:
    return storage.read(name, 0, storage.size(name) + 10)


def contents(storage: MemoryStorage) -> dict[str, bytes]:
    return {name: whole(storage, name) for name in storage.names()}


def test_the_files_of_the_base_are_read() -> None:
    _, found = overlay(a=b"abcdef", b=b"")
    assert found.names() == ["a", "b"]
    assert (found.size("a"), found.size("b")) == (6, 0)
    assert found.read("a", 2, 3) == b"cde"
    assert found.read("a", 4, 10) == b"ef"
    assert found.read("a", 6, 1) == b""


def test_what_lies_behind_the_visible_bytes_is_hidden() -> None:
    base, _ = overlay(a=b"abcdef", b=b"hidden")
    found = Overlay(ReadOnly(base), {"a": 4})
    assert found.names() == ["a"]
    assert whole(found, "a") == b"abcd"
    with pytest.raises(FileNotFoundError):
        found.read("b", 0, 1)


@pytest.mark.parametrize("offset", range(9))
@pytest.mark.parametrize("data", [b"", b"X", b"XYZ"])
def test_a_write_at_any_offset_changes_the_overlay_and_not_the_base(offset: int, data: bytes) -> None:
    base, found = overlay(a=b"abcdef")
    expected = bytearray(b"abcdef")
    expected.extend(bytes(max(offset - len(expected), 0)))
    expected[offset : offset + len(data)] = data
    found.write("a", offset, data[:1], data[1:])
    assert whole(found, "a") == bytes(expected)
    assert found.size("a") == len(expected)
    assert whole(base, "a") == b"abcdef"


@pytest.mark.parametrize("size", range(10))
def test_a_file_is_cut_or_filled_with_zeros(size: int) -> None:
    base, found = overlay(a=b"abcdef")
    found.write("a", 6, b"gh")
    found.truncate("a", size)
    assert whole(found, "a") == b"abcdefgh".ljust(size, b"\0")[:size]
    assert whole(base, "a") == b"abcdef"


def test_reads_cross_from_the_base_into_memory() -> None:
    _, found = overlay(a=b"abcdef")
    found.write_through("a", 4, b"XYZ")
    assert [found.read("a", start, 3) for start in range(8)] == [
        *(b"abc", b"bcd", b"cdX", b"dXY", b"XYZ", b"YZ", b"Z", b""),
    ]


def test_files_are_created_renamed_and_deleted_in_memory_only() -> None:
    base, found = overlay(a=b"abc", b=b"def")
    found.create("new.tmp")
    found.reserve("new.tmp", 100)
    found.write("new.tmp", 0, b"new")
    found.sync("new.tmp")
    found.finish("new.tmp")
    found.replace("new.tmp", "a")
    assert whole(found, "a") == b"new"
    found.replace("b", "c")
    assert whole(found, "c") == b"def"
    found.create("c")
    assert whole(found, "c") == b""
    found.delete("c")
    found.uncache("a")
    assert found.names() == ["a"]
    assert found.free_bytes() > 0
    found.close()
    assert contents(base) == {"a": b"abc", "b": b"def"}
    with pytest.raises(FileNotFoundError):
        found.delete("c")


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_broker_recovers_and_writes_on_without_a_change_of_the_files(count: int) -> None:
    base = memory()
    owner = start(base)
    lsns = fill(owner, count)
    before = contents(base)
    found = Overlay(ReadOnly(base), visible_bytes(ReadOnly(base), owner.synced_lsn))
    journal, records = reopen(found)
    assert [lsn for lsn, *_ in records] == lsns
    assert journal.recovery.end_lsn == owner.synced_lsn
    fill(journal, 5)
    assert contents(base) == before
    fill(owner, 5)
    assert [lsn for lsn, *_ in reopen(Overlay(ReadOnly(base), visible_bytes(base, owner.synced_lsn)))[1]] != lsns


@pytest.mark.parametrize("seen", range(8))
def test_nothing_behind_what_is_synced_is_recovered(seen: int) -> None:
    """A standby has frames behind it, and whole segments, that were never confirmed if it has led before."""
    base = memory()
    owner = start(base)
    ends = [0]
    lsns = []
    for _ in range(8):
        lsns += fill(owner, 1)
        ends.append(owner.synced_lsn)
    journal, records = reopen(Overlay(ReadOnly(base), visible_bytes(base, ends[seen])))
    assert [lsn for lsn, *_ in records] == lsns[:seen]
    assert journal.recovery.end_lsn == ends[seen]
    assert journal.recovery.cut_file is None


@pytest.mark.parametrize(("synced", "expected"), [(4, []), (5, [5]), (9, [5, 9])])
def test_snapshots_and_segments_behind_what_is_synced_are_left_out(synced: int, expected: list[int]) -> None:
    base, _ = overlay(**{snapshot_name(lsn): b"s" for lsn in (5, 9)}, other=b"")
    assert list(visible_bytes(base, synced)) == [snapshot_name(lsn) for lsn in expected]

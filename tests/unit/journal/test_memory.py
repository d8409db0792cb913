"""The simulated disk loses, tears, fails and fills up as configured."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from escrowmq.journal.memory import SECTOR, Faults, MemoryStorage


def disk(seed: int = 1, **faults: Any) -> MemoryStorage:
    storage = MemoryStorage(random.Random(seed), Faults(**faults))
    storage.create("t")
    storage.replace("t", "f")
    return storage


def outcomes(size: int = 4 * SECTOR) -> set[bytes]:
    found = set()
    for seed in range(200):
        storage = disk(seed)
        storage.write("f", 0, bytes(size))
        storage.sync("f")
        storage.write("f", 0, b"x" * size)
        storage.crash()
        found.add(storage.read("f", 0, size))
    return found


def test_a_crash_keeps_any_unsynced_sectors() -> None:
    found = outcomes()
    assert len(found) == 16
    assert all(data[i : i + SECTOR] in (bytes(SECTOR), b"x" * SECTOR) for data in found for i in range(0, 2048, SECTOR))


def test_a_crash_keeps_synced_data() -> None:
    for seed in range(50):
        storage = disk(seed)
        storage.write("f", 100, b"a" * 1000)
        storage.sync("f")
        storage.crash()
        assert storage.read("f", 100, 5000) == b"a" * 1000


def test_a_file_that_grew_may_have_either_size() -> None:
    sizes = set()
    for seed in range(50):
        storage = disk(seed)
        storage.write("f", 0, b"a" * 100)
        storage.sync("f")
        storage.write("f", 100, b"b" * 5000)
        storage.truncate("f", 3000)
        storage.crash()
        sizes.add(storage.size("f"))
    assert sizes == {100, 5100, 3000}


def test_after_a_failed_sync_a_second_one_succeeds_without_the_data() -> None:
    lost = 0
    for seed in range(50):
        storage = disk(seed, fail_sync_in=1)
        storage.write("f", 0, b"a" * 10)
        with pytest.raises(OSError, match="simulated sync error"):
            storage.sync("f")
        storage.sync("f")
        assert storage.read("f", 0, 10) == b"a" * 10  # the data is still in the cache
        storage.crash()
        lost += storage.read("f", 0, 10) != b"a" * 10
    assert lost > 0


def test_a_full_disk_accepts_the_part_that_fits() -> None:
    storage = disk(capacity=100)
    storage.write("f", 0, b"a" * 60)
    assert storage.free_bytes() == 40
    with pytest.raises(OSError, match="full") as caught:
        storage.write("f", 60, b"b" * 60)
    assert caught.value.errno == errno.ENOSPC
    assert storage.read("f", 0, 200) == b"a" * 60 + b"b" * 40
    with pytest.raises(OSError, match="full"):
        storage.reserve("f", 101)


def test_dead_machines_do_nothing_until_power_returns() -> None:
    storage = disk()
    storage.faults.dies_in = 2
    storage.write("f", 0, b"a")
    with pytest.raises(OSError, match="simulated write error"):
        storage.write("f", 1, b"b")
    with pytest.raises(OSError, match="power loss"):
        storage.sync("f")
    storage.crash()
    storage.sync("f")


def test_names_are_durable_only_after_replace() -> None:
    seen = set()
    for seed in range(50):
        storage = disk(seed)
        storage.create("new")
        storage.delete("f")
        storage.crash()
        seen.add(tuple(storage.names()))
    assert seen == {(), ("f",), ("new",), ("f", "new")}


def test_replace_makes_earlier_deletions_durable() -> None:
    for seed in range(20):
        storage = disk(seed)
        storage.create("g.tmp")
        storage.delete("f")
        storage.replace("g.tmp", "g")
        storage.crash()
        assert storage.names() == ["g"]


def test_write_errors_occur_at_random() -> None:
    storage = MemoryStorage(random.Random(3), Faults(write_fails=0.5))
    storage.create("f")
    failed = 0
    for _ in range(100):
        try:
            storage.write("f", 0, b"abc")
        except OSError:
            failed += 1
    assert 25 < failed < 75


def test_sync_errors_occur_at_random() -> None:
    storage = MemoryStorage(random.Random(3), Faults(sync_fails=1.0))
    storage.create("f")
    with pytest.raises(OSError, match="sync error"):
        storage.sync("f")


def test_damage_reaches_medium_and_cache() -> None:
    storage = disk()
    storage.write("f", 0, b"\x00" * 10)
    storage.sync("f")
    storage.flip("f", 11)
    storage.shorten("f", 5)
    assert storage.read("f", 0, 10) == b"\x00\x08\x00\x00\x00"
    storage.crash()
    assert storage.read("f", 0, 10) == b"\x00\x08\x00\x00\x00"


def test_a_missing_file_is_an_error_of_its_own() -> None:
    with pytest.raises(FileNotFoundError):
        disk().read("none", 0, 1)


def test_reads_fail_as_often_as_planned() -> None:
    storage = disk(fail_reads=2)
    storage.write("f", 0, b"x")
    for _ in range(2):
        with pytest.raises(OSError, match="read error"):
            storage.read("f", 0, 1)
    assert storage.read("f", 0, 1) == b"x"


def test_a_sector_cannot_be_read() -> None:
    storage = disk(unreadable={"f": {1}})
    storage.write("f", 0, b"x" * 3 * SECTOR)
    assert len(storage.read("f", 0, SECTOR)) == len(storage.read("f", 2 * SECTOR, SECTOR)) == SECTOR
    for offset, length in ((0, SECTOR + 1), (SECTOR, 1), (2 * SECTOR - 1, 2)):
        with pytest.raises(OSError, match="unreadable sector"):
            storage.read("f", offset, length)

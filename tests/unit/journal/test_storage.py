"""The storage interface, in memory and on a real directory; then the features of the real one."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import multiprocessing
import os
import random
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.journal import storage as module
from escrowmq.journal.errors import DataDirLocked
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.storage import FileStorage, Storage, check_unlocked


@pytest.fixture(params=["memory", "file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    made: Storage = MemoryStorage(random.Random(1)) if request.param == "memory" else FileStorage(tmp_path / "d")
    yield made
    made.close()


def test_written_data_is_read(storage: Storage) -> None:
    storage.create("f")
    storage.write("f", 0, b"ab", b"", b"cde")
    storage.write("f", 3, b"XY")
    storage.sync("f")
    assert storage.read("f", 0, 100) == b"abcXY"
    assert storage.read("f", 4, 1) == b"Y"
    assert storage.read("f", 5, 1) == b""
    assert storage.size("f") == 5


def test_writing_through_writes(storage: Storage) -> None:
    storage.create("f")
    storage.write_through("f", 0, b"ab", b"", b"cde")
    storage.write_through("f", 3, b"XY")
    assert storage.read("f", 0, 100) == b"abcXY"


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS])
def test_writing_through_syncs_if_the_system_has_no_call_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    storage = FileStorage(tmp_path / "d")
    storage.create("f")
    syncs: list[int] = []
    pwritev = os.pwritev

    def without_flags(fd: int, parts: list[bytes], offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(error, "no such flag")
        return pwritev(fd, parts, offset)

    monkeypatch.setattr(os, "pwritev", without_flags)
    monkeypatch.setattr(module, "_sync_descriptor", syncs.append)
    storage.write_through("f", 0, b"abc")
    storage.write_through("f", 3, b"de")
    assert len(syncs) == 2
    assert storage.read("f", 0, 9) == b"abcde"
    storage.close()


def test_writing_through_syncs_after_a_short_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(tmp_path / "d")
    storage.create("f")
    syncs: list[int] = []
    pwritev = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, offset, flags=0: pwritev(fd, [parts[0][:2]], offset, flags))
    monkeypatch.setattr(module, "_sync_descriptor", syncs.append)
    storage.write_through("f", 0, b"abcd", b"ef")
    assert len(syncs) == 1
    assert storage.read("f", 0, 9) == b"abcdef"
    storage.close()


def test_a_failed_write_through_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(tmp_path / "d")
    storage.create("f")

    def fails(*_: object) -> int:
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(os, "pwritev", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        storage.write_through("f", 0, b"abc")
    storage.close()


def test_reserved_space_reads_as_zeros(storage: Storage) -> None:
    storage.create("f")
    storage.reserve("f", 4096)
    storage.write("f", 0, b"a")
    assert storage.size("f") == 4096
    assert storage.read("f", 0, 3) == b"a\0\0"
    storage.reserve("f", 10)
    assert storage.size("f") == 4096


def test_a_file_can_be_read_after_its_copy_in_memory_is_gone(storage: Storage) -> None:
    storage.create("f")
    storage.write_through("f", 0, b"abc")
    storage.uncache("f")
    assert storage.read("f", 0, 100) == b"abc"
    storage.write_through("f", 3, b"def")
    assert storage.read("f", 0, 100) == b"abcdef"


def test_truncate_cuts(storage: Storage) -> None:
    storage.create("f")
    storage.write("f", 0, b"abcdef")
    storage.truncate("f", 2)
    storage.sync("f")
    storage.finish("f")
    assert storage.read("f", 0, 9) == b"ab"


def test_replace_takes_the_name_over_also_from_open_readers(storage: Storage) -> None:
    storage.create("f")
    storage.write("f", 0, b"old")
    assert storage.read("f", 0, 3) == b"old"
    storage.create("f.tmp")
    storage.write("f.tmp", 0, b"new")
    storage.sync("f.tmp")
    storage.replace("f.tmp", "f")
    assert storage.names() == ["f"]
    assert storage.read("f", 0, 3) == b"new"
    storage.write("f", 3, b"er")
    assert storage.read("f", 0, 9) == b"newer"


def test_create_truncates_an_existing_file(storage: Storage) -> None:
    storage.create("f")
    storage.write("f", 0, b"old")
    storage.create("f")
    assert storage.size("f") == 0


def test_a_deleted_file_does_not_exist(storage: Storage) -> None:
    storage.create("f")
    storage.write("f", 0, b"abc")
    storage.read("f", 0, 1)
    storage.delete("f")
    assert storage.names() == []
    with pytest.raises(FileNotFoundError):
        storage.read("f", 0, 1)


def test_free_space_is_reported(storage: Storage) -> None:
    assert storage.free_bytes() > 1 << 20


def test_names_contain_only_files_and_not_the_lock(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "b").touch()
    (tmp_path / "a").touch()
    storage = FileStorage(tmp_path)
    assert storage.names() == ["a", "b"]
    storage.close()


HOLDER = """
import sys
from escrowmq.journal.storage import FileStorage
storage = FileStorage(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_second_opener_gets_the_process_id_of_the_first(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            HOLDER,
            str(tmp_path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "ready\n"
        with pytest.raises(DataDirLocked) as caught:
            FileStorage(tmp_path)
        assert caught.value.pid == str(holder.pid)
        assert str(tmp_path) in str(caught.value)
        FileStorage(tmp_path, read_only=True).close()
        holder.stdin.close()
    FileStorage(tmp_path).close()


@pytest.mark.rule("DUR-4")
@pytest.mark.parametrize("change", ["removed", "replaced", "renamed"])
def test_a_deleted_lock_file_does_not_release_the_lock(tmp_path: Path, change: str) -> None:
    storage = FileStorage(tmp_path)
    lock = tmp_path / "lock"
    if change == "renamed":
        lock.rename(tmp_path / "lock.old")
    else:
        lock.unlink()
    if change == "replaced":
        lock.write_text("")
    with pytest.raises(DataDirLocked):
        FileStorage(tmp_path)
    assert FileStorage(tmp_path, read_only=True).names() is not None
    storage.close()
    FileStorage(tmp_path).close()


@pytest.mark.parametrize("error", [errno.EBADF, errno.ENOLCK])
def test_without_locks_of_directories_the_lock_file_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    flock = fcntl.flock

    def files_only(fd: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(error, "no")
        flock(fd, how)

    monkeypatch.setattr(fcntl, "flock", files_only)
    storage = FileStorage(tmp_path)
    with pytest.raises(DataDirLocked, match=f"process {os.getpid()}"):
        FileStorage(tmp_path)
    storage.close()


def test_a_lock_that_fails_for_another_reason_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0

    def fails(fd: int, how: int) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(fcntl, "flock", fails)
    with pytest.raises(OSError, match="no"):
        FileStorage(tmp_path)
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == before


def test_the_lock_is_released_on_close(tmp_path: Path) -> None:
    first = FileStorage(tmp_path)
    with pytest.raises(DataDirLocked, match=f"process {os.getpid()}"):
        FileStorage(tmp_path)
    first.close()
    FileStorage(tmp_path).close()


def test_read_only_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    storage = FileStorage(tmp_path, read_only=True)
    assert storage.read("f", 0, 9) == b"abc"
    with pytest.raises(PermissionError):
        storage.write("f", 0, b"x")
    storage.close()
    assert storage.names() == ["f"]
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_read_only_needs_a_directory(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        FileStorage(tmp_path / "none", read_only=True)


def test_a_file_that_could_not_be_read_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(tmp_path)
    storage.create("f")
    storage.write("f", 0, b"abc")
    assert storage.read("f", 0, 3) == b"abc"
    (fd,) = storage._readers.values()
    pread = os.pread

    def fails(fd: int, length: int, offset: int) -> bytes:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "pread", fails)
    with pytest.raises(OSError, match="no"):
        storage.read("f", 0, 3)
    assert not storage._readers
    monkeypatch.setattr(os, "pread", pread)
    assert storage.read("f", 0, 3) == b"abc"
    storage.close()
    assert fd > 0


def test_a_limited_number_of_files_stays_open_for_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_READERS", 3)
    before = len(os.listdir("/proc/self/fd"))
    storage = FileStorage(tmp_path, read_only=True)
    for i in range(10):
        (tmp_path / str(i)).write_bytes(b"%d" % i)
    for _ in range(2):
        for i in range(10):
            assert storage.read(str(i), 0, 1) == b"%d" % i
    assert len(os.listdir("/proc/self/fd")) == before + 3
    storage.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FileStorage(tmp_path)
    storage.create("f")
    real = os.pwrite
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, offset: real(fd, parts[0][:2], offset))
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:3], offset))
    storage.write("f", 1, b"abcd", b"efghij")
    assert storage.read("f", 0, 99) == b"\0abcdefghij"
    storage.close()


def test_short_reads_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"abcdefghij")
    storage = FileStorage(tmp_path, read_only=True)
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: real(fd, min(length, 3), offset))
    assert storage.read("f", 1, 8) == b"bcdefghi"
    assert storage.read("f", 1, 80) == b"bcdefghij"
    storage.close()


def _work_without_descriptors(directory: Path) -> None:
    storage = FileStorage(directory)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 50, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with contextlib.suppress(OSError):
        while True:
            os.dup(0)
    for i in range(40):
        storage.create("tmp")
        storage.write("tmp", 0, b"%d" % i)
        storage.replace("tmp", f"{i}.log")
        assert storage.read(f"{i}.log", 0, 9) == b"%d" % i
        storage.finish(f"{i}.log")
        if i > 2:
            storage.delete(f"{i - 3}.log")
    with pytest.raises(OSError, match="Too many open files"):
        os.dup(0)


def test_files_can_be_opened_when_clients_use_all_descriptors(tmp_path: Path) -> None:
    """The log must keep working although connections that are not accepted yet use up descriptors."""
    # A process of its own: in that of the tests, what other tests left open is closed when Python collects garbage.
    process = multiprocessing.get_context("spawn").Process(target=_work_without_descriptors, args=(tmp_path,))
    process.start()
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_all_files_are_private_for_any_umask(tmp_path: Path, umask: int) -> None:
    (tmp_path / "left.tmp").touch(0o644)
    before = os.umask(umask)
    try:
        storage = FileStorage(tmp_path)
        for name in ("new.log", "left.tmp"):
            storage.create(name)
        storage.close()
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new.log", "left.tmp")] == [0o600, 0o600]
    assert not stat.S_IMODE((tmp_path / "lock").stat().st_mode) & 0o077


@pytest.mark.rule("FAIR-3")
def test_a_disk_without_room_for_a_whole_segment_takes_what_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FileStorage(tmp_path / "d")
    storage.create("f")

    def full(fd: int, offset: int, size: int) -> None:
        os.ftruncate(fd, 1 << 20)  # some file systems keep a part of it
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    storage.reserve("f", 64 << 20)
    storage.write("f", 0, b"abc")
    assert storage.size("f") == 3
    storage.close()


def test_a_directory_in_use_is_recognised_without_taking_or_creating_anything(tmp_path: Path) -> None:
    check_unlocked(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    storage = FileStorage(tmp_path)
    with pytest.raises(DataDirLocked, match=f"process {os.getpid()}"):
        check_unlocked(tmp_path)
    storage.close()
    check_unlocked(tmp_path)
    FileStorage(tmp_path).close()

"""The small interface to bytes on disk: one directory of files. `FileStorage` is the real one."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from escrowmq.journal.errors import DataDirLocked

LOCK_NAME: Final = "lock"
PRIVATE: Final = 0o600
"""Of all files: they hold messages as they came."""
_READERS: Final = 128
"""Files kept open for reading; far below the usual limit of 1024 descriptors a process."""
_SPARES: Final = 16
"""Descriptors held back for files of ours: clients' connections may take all others, and the log must go on."""


class Storage(Protocol):
    """Files of one directory. All errors are OSError; a missing file is FileNotFoundError. Calls block.

    `read` may be called on one thread while `write` and `sync` run on another.
    """

    def names(self) -> list[str]:
        """Names of all files, sorted."""

    def size(self, name: str) -> int:
        """Bytes in the file, preallocated ones included."""

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""

    def create(self, name: str) -> None:
        """An empty file, replacing one of that name. Its name is durable only after `replace`."""

    def reserve(self, name: str, size: int) -> None:
        """Make sure that the file can grow to `size` bytes; new ones read as zeros. ENOSPC if there is no room."""

    def write(self, name: str, offset: int, *parts: bytes) -> None:
        """Put the parts one after the other at `offset`, in one call to the system where it can. Not yet durable."""

    def write_through(self, name: str, offset: int, *parts: bytes) -> None:
        """Write as `write` does, and return when it is durable. After an error nothing is known of what was written."""

    def sync(self, name: str) -> None:
        """Make the file's data and size durable. After an error nothing is known of what was written since the last
        sync.
        """

    def truncate(self, name: str, size: int) -> None:
        """Cut the file to `size` bytes; durable with the next sync."""

    def finish(self, name: str) -> None:
        """No more writes to this file: give up what is held for them."""

    def replace(self, tmp: str, name: str) -> None:
        """Rename `tmp` to `name`, atomically and durably."""

    def delete(self, name: str) -> None:
        """Remove the file. After a crash it may be there again."""

    def free_bytes(self) -> int:
        """Bytes that can still be written to this directory."""

    def close(self) -> None:
        """Close all files and give up the lock."""


_WRITE_THROUGH: Final = getattr(os, "RWF_DSYNC", 0)
"""Write and sync in one call to the system, which also gives up the interpreter only once; where it can."""


def _sync_descriptor(fd: int) -> None:
    full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone leaves data in the drive's cache
    if full is not None:
        fcntl.fcntl(fd, full)
    else:
        os.fdatasync(fd)


class FileStorage:
    """A directory of the operating system. The writing one holds an exclusive lock on it (file `lock`, our pid
    inside).
    """

    def __init__(self, directory: str | Path, *, read_only: bool = False) -> None:
        """Create the directory if needed and lock it. Raises DataDirLocked, OSError. `read_only` neither locks nor
        creates.
        """
        self.directory = Path(directory)
        self._writers: dict[str, int] = {}
        self._readers: OrderedDict[str, int] = OrderedDict()
        self._guard = threading.Lock()
        self._spares: list[int] = []
        self._read_only = read_only
        self._through = bool(_WRITE_THROUGH)
        self._lock = -1
        if read_only:
            if not self.directory.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "not a journal directory", str(directory))
        else:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take_lock()
            self._spares += [os.dup(self._lock) for _ in range(_SPARES)]

    def _take_lock(self) -> None:
        fd = os.open(self.directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise DataDirLocked(str(self.directory), pid) from None
        except BaseException:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        self._lock = fd

    def names(self) -> list[str]:
        return sorted(entry.name for entry in os.scandir(self.directory) if entry.name != LOCK_NAME and entry.is_file())

    def size(self, name: str) -> int:
        return (self.directory / name).stat().st_size

    def read(self, name: str, offset: int, length: int) -> bytes:
        with self._guard:  # the descriptor must not be closed by another thread's eviction meanwhile
            fd = self._readers.get(name)
            if fd is None:
                fd = self._readers[name] = self._open(self.directory / name, os.O_RDONLY)
                if len(self._readers) > _READERS:
                    self._close(self._readers.popitem(last=False)[1])
            else:
                self._readers.move_to_end(name)
            data = os.pread(fd, length, offset)
            if 0 < len(data) < length:  # a signal, or Linux's limit of 2 GiB a call
                while more := os.pread(fd, length - len(data), offset + len(data)):
                    data += more
            return data

    def create(self, name: str) -> None:
        self._forget(name)
        fd = self._writers[name] = self._open(self.directory / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.fchmod(fd, PRIVATE)  # whatever the umask is, and whoever made the file

    def reserve(self, name: str, size: int) -> None:
        try:
            os.posix_fallocate(self._writer(name), 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # a file system without preallocation
                raise

    def write(self, name: str, offset: int, *parts: bytes) -> None:
        fd = self._writer(name)
        self._complete(fd, offset, parts, os.pwritev(fd, parts, offset))

    def write_through(self, name: str, offset: int, *parts: bytes) -> None:
        fd = self._writer(name)
        if self._through:
            try:
                done = os.pwritev(fd, parts, offset, _WRITE_THROUGH)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                    raise
                self._through = False  # a file system, or a kernel, that cannot
            else:
                if self._complete(fd, offset, parts, done):
                    _sync_descriptor(fd)
                return
        self.write(name, offset, *parts)
        _sync_descriptor(fd)

    @staticmethod
    def _complete(fd: int, offset: int, parts: Sequence[bytes], done: int) -> bool:
        """Write what a call has left, of which `done` bytes are written; whether there was anything."""
        size = sum(map(len, parts))
        if done < size:  # rare: Linux's limit of 2 GiB a call, or the disk is full, which the next call reports
            rest = memoryview(b"".join(parts))
            while done < size:
                done += os.pwrite(fd, rest[done:], offset + done)
            return True
        return False

    def sync(self, name: str) -> None:
        _sync_descriptor(self._writer(name))

    def truncate(self, name: str, size: int) -> None:
        os.ftruncate(self._writer(name), size)

    def finish(self, name: str) -> None:
        fd = self._writers.pop(name, None)
        if fd is not None:
            self._close(fd)

    def replace(self, tmp: str, name: str) -> None:
        self._forget(name)
        (self.directory / tmp).replace(self.directory / name)
        if tmp in self._writers:
            self._writers[name] = self._writers.pop(tmp)
        self._sync_directory()

    def delete(self, name: str) -> None:
        self._forget(name)
        (self.directory / name).unlink()

    def free_bytes(self) -> int:
        stat = os.statvfs(self.directory)
        return stat.f_bavail * stat.f_frsize

    def close(self) -> None:
        with self._guard:
            for fd in (*self._writers.values(), *self._readers.values(), *self._spares):
                os.close(fd)
            self._spares.clear()
            self._writers.clear()
            self._readers.clear()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _writer(self, name: str) -> int:
        fd = self._writers.get(name)
        if fd is None:
            if self._read_only:
                raise PermissionError(errno.EROFS, "opened for reading only", name)
            fd = self._writers[name] = self._open(self.directory / name, os.O_RDWR)
        return fd

    def _forget(self, name: str) -> None:
        self.finish(name)
        with self._guard:
            fd = self._readers.pop(name, None)
            if fd is not None:
                self._close(fd)

    def _sync_directory(self) -> None:
        fd = self._open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            self._close(fd)

    def _open(self, path: Path, flags: int) -> int:
        """A descriptor, in place of a spare one where the process has no more."""
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, PRIVATE)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                try:
                    os.close(self._spares.pop())  # a client may be faster to take it: then the next one
                except IndexError:
                    raise error from None

    def _close(self, fd: int) -> None:
        """Close a file. If spare descriptors are missing, this one becomes one, before a client can have it."""
        if self._lock >= 0 and len(self._spares) < _SPARES:
            os.dup2(self._lock, fd, inheritable=False)
            self._spares.append(fd)
        else:
            os.close(fd)

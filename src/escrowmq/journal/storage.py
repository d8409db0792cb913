"""The interface to bytes on disk: one directory of files. `FileStorage` implements it for a real directory."""

from __future__ import annotations

import contextlib
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
"""The mode of all files, because they contain messages unencrypted."""
_READERS: Final = 128
"""The number of files kept open for reading; far below the usual limit of 1024 descriptors per process."""
_SPARES: Final = 16
"""Descriptors held back for the journal, which must keep working when connections have used up all others."""


class Readable(Protocol):
    """The files of one directory, to be read. All errors are OSError; a missing file is FileNotFoundError."""

    def names(self) -> list[str]:
        """Return the names of all files, sorted."""

    def size(self, name: str) -> int:
        """Return the size of the file in bytes, including preallocated space."""

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from `offset`; fewer only at the end of the file."""


class Storage(Readable, Protocol):
    """The files of one directory. Calls block.

    `read` may run on one thread while `write` and `sync` run on another.
    """

    def create(self, name: str) -> None:
        """Create an empty file, or empty an existing one. Its name is durable only after `replace`."""

    def reserve(self, name: str, size: int) -> None:
        """Preallocate space up to `size` bytes, which reads as zeros.

        Raises OSError (ENOSPC) if there is not enough.
        """

    def write(self, name: str, offset: int, *parts: bytes) -> None:
        """Write the parts one after the other at `offset`, in one system call if possible.

        The data is not durable yet.
        """

    def write_through(self, name: str, offset: int, *parts: bytes) -> None:
        """Write as `write` does, and return when the data is durable. After an error, the file's content is unknown."""

    def sync(self, name: str) -> None:
        """Make the file's data and size durable.

        After an error, data written since the last sync is in an unknown state.
        """

    def truncate(self, name: str, size: int) -> None:
        """Cut the file to `size` bytes; durable with the next sync."""

    def finish(self, name: str) -> None:
        """Release the resources for writing this file. No more writes follow."""

    def uncache(self, name: str) -> None:
        """Let the system reuse the memory in which it keeps a copy of the file. The file stays readable."""

    def replace(self, tmp: str, name: str) -> None:
        """Rename `tmp` to `name`, atomically and durably."""

    def delete(self, name: str) -> None:
        """Delete the file. After a crash it may exist again."""

    def free_bytes(self) -> int:
        """Return how many bytes can still be written to this directory."""

    def close(self) -> None:
        """Close all files and release the lock."""


_NO_DIRECTORY_LOCKS: Final = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP})
"""Errors of file systems that cannot lock directories."""
_WRITE_THROUGH: Final = getattr(os, "RWF_DSYNC", 0)
"""The flag to write and sync in one system call, which also releases the GIL only once; 0 if unsupported."""


def _sync_descriptor(fd: int) -> None:
    full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone leaves data in the drive's cache
    if full is not None:
        fcntl.fcntl(fd, full)
    else:
        os.fdatasync(fd)


def _read_all(fd: int, offset: int, length: int) -> bytes:
    data = os.pread(fd, length, offset)
    if 0 < len(data) < length:  # a signal, or Linux's limit of 2 GiB per call
        while more := os.pread(fd, length - len(data), offset + len(data)):
            data += more
    return data


def check_unlocked(directory: Path) -> None:
    """Raise DataDirLocked if another process uses a directory. Nothing is created, and no lock is kept."""
    for path, flags in ((directory, os.O_RDONLY | os.O_DIRECTORY), (directory / LOCK_NAME, os.O_RDWR)):
        try:
            fd = os.open(path, flags | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataDirLocked(str(directory), _holder(directory)) from None
        except OSError:
            continue  # a file system without such locks
        finally:
            os.close(fd)


def _holder(directory: Path) -> str:
    """Return the process id in the lock file; empty if there is none."""
    with contextlib.suppress(OSError):
        return (directory / LOCK_NAME).read_text("ascii", "replace").strip()
    return ""


class FileStorage:
    """A directory of the operating system.

    Unless it is read-only, it holds two exclusive locks: that of the directory itself, which cannot be removed while it
    is in use, and that of the file `lock`, which contains the process id. The second one serves where a file system
    cannot lock directories (NFS), and keeps out older versions of this program.
    """

    def __init__(self, directory: str | Path, *, read_only: bool = False) -> None:
        """Create the directory if necessary, and lock it. `read_only` does neither.

        Raises:
            DataDirLocked: Another process holds the lock.
            OSError: The directory cannot be created or opened.
        """
        self.directory = Path(directory)
        self._writers: dict[str, int] = {}
        self._readers: OrderedDict[str, int] = OrderedDict()
        self._guard = threading.Lock()
        self._spares: list[int] = []
        self._read_only = read_only
        self._through = bool(_WRITE_THROUGH)
        self._lock = self._directory_lock = -1
        if read_only:
            if not self.directory.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "not a journal directory", str(directory))
        else:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take_locks()
            self._spares += [os.dup(self._lock) for _ in range(_SPARES)]

    def _take_locks(self) -> None:
        self._directory_lock = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._flock(self._directory_lock)
            self._lock = os.open(self.directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
            self._flock(self._lock)
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, b"%d\n" % os.getpid(), 0)
        except BaseException:
            self._release_locks()
            raise

    def _flock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataDirLocked(str(self.directory), _holder(self.directory)) from None
        except OSError as error:
            if fd != self._directory_lock or error.errno not in _NO_DIRECTORY_LOCKS:
                raise

    def _release_locks(self) -> None:
        for fd in (self._lock, self._directory_lock):
            if fd >= 0:
                os.close(fd)
        self._lock = self._directory_lock = -1

    def names(self) -> list[str]:
        return sorted(entry.name for entry in os.scandir(self.directory) if entry.name != LOCK_NAME and entry.is_file())

    def size(self, name: str) -> int:
        return (self.directory / name).stat().st_size

    def read(self, name: str, offset: int, length: int) -> bytes:
        with self._guard:  # another thread's eviction must not close the descriptor meanwhile
            fd = self._readers.get(name)
            if fd is None:
                fd = self._readers[name] = self._open(self.directory / name, os.O_RDONLY)
                if len(self._readers) > _READERS:
                    self._close(self._readers.popitem(last=False)[1])
            else:
                self._readers.move_to_end(name)
            try:
                return _read_all(fd, offset, length)
            except OSError:  # the next attempt opens the file again, which helps on network file systems
                del self._readers[name]
                self._close(fd)
                raise

    def create(self, name: str) -> None:
        self._forget(name)
        fd = self._writers[name] = self._open(self.directory / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.fchmod(fd, PRIVATE)  # regardless of the umask and of an existing file's mode

    def reserve(self, name: str, size: int) -> None:
        fd = self._writer(name)
        before = os.fstat(fd).st_size
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno == errno.ENOSPC:  # what will be written may still fit; the file grows with it
                os.ftruncate(fd, before)
            elif error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):  # the file system does not support preallocation
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
                self._through = False  # the file system or the kernel does not support it
            else:
                if self._complete(fd, offset, parts, done):
                    _sync_descriptor(fd)
                return
        self.write(name, offset, *parts)
        _sync_descriptor(fd)

    @staticmethod
    def _complete(fd: int, offset: int, parts: Sequence[bytes], done: int) -> bool:
        """Write the remaining bytes after a call that wrote `done` bytes. Returns whether there were any."""
        size = sum(map(len, parts))
        if done < size:  # rare: Linux's limit of 2 GiB per call, or a full disk, which the next call reports
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

    def uncache(self, name: str) -> None:
        if hasattr(os, "posix_fadvise"):
            fd = self._open(self.directory / name, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
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
        self._release_locks()

    def _writer(self, name: str) -> int:
        fd = self._writers.get(name)
        if fd is None:
            if self._read_only:
                raise PermissionError(errno.EROFS, "the storage is read-only", name)
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
        """Open a file, releasing a spare descriptor if the process has no other left."""
        while True:
            try:
                return os.open(path, flags | os.O_CLOEXEC, PRIVATE)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                try:
                    os.close(self._spares.pop())  # a new connection may take it first; then try the next one
                except IndexError:
                    raise error from None

    def _close(self, fd: int) -> None:
        """Close a file. If a spare descriptor is missing, this one becomes a spare before a connection can take it."""
        if self._lock >= 0 and len(self._spares) < _SPARES:
            os.dup2(self._lock, fd, inheritable=False)
            self._spares.append(fd)
        else:
            os.close(fd)

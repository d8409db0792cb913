"""A simulated disk that loses unsynced data, tears writes at sectors, fails syncs, fills up and flips bits.

All choices come from the `random.Random` that it is given, so the same seed gives the same behaviour.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

SECTOR: Final = 512
"""The unit that a disk writes completely or not at all, in bytes."""


@dataclass(slots=True)
class _File:
    cache: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    sizes: list[int] = field(default_factory=lambda: [0])
    """The sizes that a crash may leave: first the durable size, then each later one."""


@dataclass(slots=True)
class Faults:
    """The faults to simulate, as probabilities (0 to 1) per operation, and as counts of operations until the fault."""

    sync_fails: float = 0.0
    fail_sync_in: int | None = None
    write_fails: float = 0.0
    read_fails: float = 0.0
    fail_reads: int = 0
    """How many of the next reads fail."""
    unreadable: dict[str, set[int]] = field(default_factory=dict)
    """Sectors that cannot be read, by file."""
    dies_in: int | None = None
    """The machine dies at this changing operation, counted from 1: it is done in part, and all later ones fail."""
    capacity: int | None = None
    """The size limit of all files together, in bytes; None for no limit."""


class MemoryStorage:
    """A `Storage` in memory.

    `crash()` leaves what a power failure could leave; the storage can then be opened again.
    """

    def __init__(self, rng: random.Random, faults: Faults | None = None) -> None:
        self._rng = rng
        self.faults = faults or Faults()
        self._files: dict[str, _File] = {}
        self._volatile: set[str] = set()
        self._undead: dict[str, _File] = {}
        self.syncs = 0
        self.writes = 0

    def names(self) -> list[str]:
        return sorted(self._files)

    def size(self, name: str) -> int:
        return len(self._file(name).cache)

    def read(self, name: str, offset: int, length: int) -> bytes:
        sectors = self.faults.unreadable.get(name, ())
        if any(offset < (sector + 1) * SECTOR and sector * SECTOR < offset + length for sector in sectors):
            raise OSError(errno.EIO, "simulated unreadable sector", name)
        fails = self.faults.fail_reads > 0
        if fails:
            self.faults.fail_reads -= 1
        elif self.faults.read_fails:
            fails = self._rng.random() < self.faults.read_fails
        if fails:
            raise OSError(errno.EIO, "simulated read error", name)
        return bytes(self._file(name).cache[offset : offset + length])

    def create(self, name: str) -> None:
        self._step()
        self._files[name] = _File()
        self._volatile.add(name)

    def reserve(self, name: str, size: int) -> None:
        file = self._file(name)
        if size > len(file.cache):
            self._need(size - len(file.cache))
            self._resize(file, size)

    def write(self, name: str, offset: int, *parts: bytes) -> None:
        file = self._file(name)
        data = b"".join(parts)
        self.writes += 1
        if self._dying() or self._rng.random() < self.faults.write_fails:
            self._put(file, offset, data[: self._rng.randrange(len(data) + 1)])
            raise OSError(errno.EIO, "simulated write error", name)
        growth = max(0, offset + len(data) - len(file.cache))
        room = self._room()
        if growth > room:
            self._put(file, offset, data[: max(0, len(data) - (growth - room))])
            raise OSError(errno.ENOSPC, "simulated disk is full", name)
        self._put(file, offset, data)

    def write_through(self, name: str, offset: int, *parts: bytes) -> None:
        self.write(name, offset, *parts)
        self.sync(name)

    def sync(self, name: str) -> None:
        file = self._file(name)
        self.syncs += 1
        self._step()
        fails = self._rng.random() < self.faults.sync_fails
        if self.faults.fail_sync_in is not None:
            self.faults.fail_sync_in -= 1
            fails = fails or self.faults.fail_sync_in == 0
        if fails:
            # Linux marks pages clean that it could not write, so that a second sync succeeds without them.
            self._reach_disk(file, [s for s in sorted(file.dirty) if self._rng.random() < 0.5], len(file.disk))
            file.dirty.clear()
            raise OSError(errno.EIO, "simulated sync error", name)
        self._reach_disk(file, file.dirty, len(file.cache))
        file.dirty.clear()
        file.sizes = [len(file.cache)]

    def truncate(self, name: str, size: int) -> None:
        self._step()
        self._resize(self._file(name), size)

    def finish(self, name: str) -> None:
        self._file(name)

    def uncache(self, name: str) -> None:
        """There is no second copy."""

    def replace(self, tmp: str, name: str) -> None:
        self._step()
        self._files[name] = self._files.pop(tmp)
        self._volatile -= {tmp, name}
        self._undead.clear()  # syncing the directory makes deletions durable too
        self.syncs += 1

    def delete(self, name: str) -> None:
        self._step()
        file = self._file(name)
        del self._files[name]
        if name in self._volatile:
            self._volatile.discard(name)
        else:
            self._undead[name] = file

    def free_bytes(self) -> int:
        return self._room()

    def close(self) -> None:
        """Do nothing. The next user finds the same cache, as after a process ends without a crash of the machine."""

    def crash(self) -> None:
        """Simulate a power failure and a restart.

        Of unsynced data, each sector survives or is lost at random; so do unsynced sizes and names.
        """
        self.faults = Faults(capacity=self.faults.capacity)
        for name in sorted(self._undead):
            if self._rng.random() < 0.5:
                self._files.setdefault(name, self._undead[name])
        self._undead.clear()
        for name in sorted(self._volatile):
            if self._rng.random() < 0.5:
                del self._files[name]
        self._volatile.clear()
        for name in sorted(self._files):
            self._crash_file(self._files[name])

    def flip(self, name: str, bit: int) -> None:
        """Invert one bit of the file on the medium."""
        file = self._file(name)
        for image in (file.cache, file.disk):
            if bit >> 3 < len(image):
                image[bit >> 3] ^= 1 << (bit & 7)

    def shorten(self, name: str, size: int) -> None:
        """Cut the file to `size` bytes on the medium."""
        file = self._file(name)
        del file.cache[size:], file.disk[size:]
        file.sizes = [len(file.disk)]
        file.dirty = {s for s in file.dirty if s * SECTOR < size}

    def _crash_file(self, file: _File) -> None:
        dirty = sorted(file.dirty)
        how = self._rng.randrange(4)
        if how == 0:
            kept = []
        elif how == 1:
            kept = dirty[: self._rng.randrange(len(dirty) + 1)]
        elif how == 2:
            kept = [s for s in dirty if self._rng.random() < 0.5]
        else:
            kept = dirty
        self._reach_disk(file, kept, self._rng.choice(file.sizes))
        file.cache = bytearray(file.disk)
        file.dirty.clear()
        file.sizes = [len(file.disk)]

    @staticmethod
    def _reach_disk(file: _File, sectors: Iterable[int], size: int) -> None:
        del file.disk[size:]
        file.disk += bytes(size - len(file.disk))
        for sector in sectors:
            start, end = sector * SECTOR, min((sector + 1) * SECTOR, size)
            if start < end:
                piece = file.cache[start:end]
                file.disk[start : start + len(piece)] = piece

    def _put(self, file: _File, offset: int, data: bytes) -> None:
        if data:
            self._resize(file, max(len(file.cache), offset + len(data)))
            file.cache[offset : offset + len(data)] = data
            file.dirty.update(range(offset // SECTOR, (offset + len(data) - 1) // SECTOR + 1))

    @staticmethod
    def _resize(file: _File, size: int) -> None:
        old = len(file.cache)
        if size != old:
            del file.cache[size:]
            file.cache += bytes(size - len(file.cache))
            file.sizes.append(size)
            file.dirty.update(range(min(size, old) // SECTOR, (max(size, old) - 1) // SECTOR + 1))

    def _dying(self) -> bool:
        if self.faults.dies_in is None:
            return False
        self.faults.dies_in -= 1
        return self.faults.dies_in <= 0

    def _step(self) -> None:
        if self._dying():
            raise OSError(errno.EIO, "simulated power loss")

    def _room(self) -> int:
        limit = self.faults.capacity
        return 1 << 62 if limit is None else max(0, limit - sum(len(f.cache) for f in self._files.values()))

    def _need(self, size: int) -> None:
        if size > self._room():
            raise OSError(errno.ENOSPC, "simulated disk is full")

    def _file(self, name: str) -> _File:
        try:
            return self._files[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", name) from None

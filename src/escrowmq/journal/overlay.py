"""A journal's files as they were at one moment, for a broker that reads them. What that broker writes is in memory.

Another process owns the files, and writes on. A broker that recovers from them seals the last segment and begins a new
one; here, it does that without changing what it shares.
"""

from __future__ import annotations

from escrowmq.journal import format as fmt
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.storage import Readable


def visible_bytes(base: Readable, synced: int) -> dict[str, int]:
    """Return the journal files in `base` as far as they lie below the LSN `synced`, with their sizes in bytes.

    The owner of the files appends to the last segment. A standby that has led can also have frames, and whole segments,
    that were never confirmed.

    Raises:
        JournalDamaged: The header of a segment is damaged.
        JournalVersionUnknown: It is of a newer program.
        OSError: From `base`.
    """
    named = [(parsed, name) for name in base.names() if (parsed := fmt.parse_name(name))]
    found = {name: base.size(name) for (_, lsn), name in named if lsn <= synced}
    segments = [name for (type_, lsn), name in named if type_ == fmt.TYPE_SEGMENT and lsn <= synced]
    if segments:
        last = JournalFile(base, segments[-1])
        if last.footer is None or last.footer.end_lsn > synced:
            found[last.name] = min(found[last.name], last.offset_of(synced))
    return found


class _OverlaidFile:
    """The first `kept` bytes of a file of the base, and the bytes in memory that follow them."""

    __slots__ = ("kept", "tail")

    def __init__(self, kept: int = 0) -> None:
        self.kept = kept
        self.tail = bytearray()

    @property
    def size(self) -> int:
        return self.kept + len(self.tail)


class Overlay:
    """A `Storage` over files that it never changes. See `Storage` for the methods."""

    def __init__(self, base: Readable, visible: dict[str, int]) -> None:
        """`visible` has the files of `base` that exist here, with the number of their bytes that do."""
        self._base = base
        self._files = {name: _OverlaidFile(size) for name, size in visible.items()}
        self._bases = {name: name for name in visible}  # the name in the base of each file that has bytes there

    def names(self) -> list[str]:
        return sorted(self._files)

    def size(self, name: str) -> int:
        return self._file(name).size

    def read(self, name: str, offset: int, length: int) -> bytes:
        file = self._file(name)
        end = min(offset + length, file.size)
        data = b""
        if offset < file.kept:
            data = self._base.read(self._bases[name], offset, min(end, file.kept) - offset)
        if end > file.kept:
            data += file.tail[max(offset - file.kept, 0) : end - file.kept]
        return data

    def create(self, name: str) -> None:
        self._files[name] = _OverlaidFile()
        self._bases.pop(name, None)

    def reserve(self, name: str, size: int) -> None:
        """Do nothing: memory is taken when it is written."""

    def write(self, name: str, offset: int, *parts: bytes) -> None:
        file = self._file(name)
        if offset < file.kept:
            self._cut(name, offset, into_memory=True)
        at = offset - file.kept
        data = b"".join(parts)
        file.tail.extend(bytes(max(at - len(file.tail), 0)))
        file.tail[at : at + len(data)] = data

    def write_through(self, name: str, offset: int, *parts: bytes) -> None:
        self.write(name, offset, *parts)

    def sync(self, name: str) -> None:
        """Do nothing: what is written here ends with the process."""

    def truncate(self, name: str, size: int) -> None:
        file = self._file(name)
        if size < file.kept:
            self._cut(name, size, into_memory=False)
        del file.tail[size - file.kept :]
        file.tail.extend(bytes(size - file.size))

    def finish(self, name: str) -> None:
        """Do nothing: no file is open for writing."""

    def uncache(self, name: str) -> None:
        """Do nothing: the owner of the files reads them, too."""

    def replace(self, tmp: str, name: str) -> None:
        self._files[name] = self._files.pop(tmp)
        self._bases.pop(name, None)
        if tmp in self._bases:
            self._bases[name] = self._bases.pop(tmp)

    def delete(self, name: str) -> None:
        self._file(name)
        del self._files[name]
        self._bases.pop(name, None)

    def free_bytes(self) -> int:
        return 1 << 62

    def close(self) -> None:
        """Do nothing: the base is not this one's to close."""

    def _file(self, name: str) -> _OverlaidFile:
        try:
            return self._files[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def _cut(self, name: str, size: int, *, into_memory: bool) -> None:
        """Keep only `size` bytes of the base's file. The others continue in memory, or are dropped with the tail."""
        file = self._files[name]
        moved = self._base.read(self._bases[name], size, file.kept - size) if into_memory else b""
        if not into_memory:
            file.tail.clear()
        file.tail[:0] = moved
        file.kept = size

"""Writes journal files: frames in sequence, preallocated space, and a footer at the end."""

from __future__ import annotations

import errno
import hashlib
from array import array
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from escrowmq.journal import format as fmt
from escrowmq.journal.digests import of_parts
from escrowmq.journal.frames import Frame
from escrowmq.journal.storage import Storage

_Write = Callable[..., None]  # as `Storage.write`


class JournalSink(Protocol):
    """Takes the journal's bytes to other machines while they are written here.

    Without `synced`, the other machines alone make frames durable, and the local ones are synced with their segment.
    """

    synced: bool

    def begin(self, header: bytes, messages: int) -> None:
        """Begin to send the header of a segment. The one before ever held so many messages."""
        ...

    def send(self, lsn: int, parts: Sequence[bytes]) -> None:
        """Begin to send a frame."""
        ...

    def wait(self) -> None:
        """Wait until everything that was sent is durable elsewhere. It does not return if that fails."""
        ...


FIRST_RESERVE: Final = 1 << 20
"""The bytes preallocated for a new segment; doubled whenever they are used up."""


class FooterBuilder:
    """Collects the contents of a file's footer while frames are written or read."""

    def __init__(self, header: fmt.FileHeader, *, contents: bool = False) -> None:
        """`contents` says that the file's digest is made of whole frames, and not only of their headers.

        A frame's header has the checksum of its body. Digests of whole frames also show a change that was made such
        that the checksum stayed the same; their cost grows with every byte.
        """
        self._index: list[tuple[int, int, int]] = []
        self._first = self.end_lsn = header.origin
        self._next_entry = header.origin
        self._contents = contents
        self._digest = hashlib.sha256(header.pack()) if header.version >= fmt.CHAINED_VERSION else None
        self.frames = 0
        self.records = 0
        self._times = (0, 0)

    def add(self, lsn: int, end_lsn: int, time_us: int, count: int, parts: Sequence[bytes | memoryview]) -> None:
        """Add a frame. Its `parts` are the header, then the rest."""
        if self._digest is not None:
            self._digest.update(parts[0])
            if self._contents:
                for part in parts[1:]:
                    self._digest.update(part)
        if lsn >= self._next_entry:
            self._index.append((lsn, time_us, self.records))
            self._next_entry = lsn + fmt.INDEX_STRIDE
        self._times = (self._times[0] if self.frames else time_us, time_us)
        self.frames += 1
        self.records += count
        self.end_lsn = end_lsn

    def add_frame(self, frame: Frame) -> None:
        """Add a frame that was read."""
        self.add(frame.lsn, frame.end_lsn, frame.time_us, len(frame.kinds), (frame.head, frame.body))

    def build(self, messages: int) -> fmt.Footer:
        """Return the footer for the frames so far. `messages` is the number that the segment ever held."""
        totals = (self._first, self.end_lsn, self.frames, self.records)
        chain, chained = b"", 0
        if self._digest is not None:
            chain, chained = self._digest.digest(), fmt.OF_CONTENTS if self._contents else fmt.OF_HEADERS
        return fmt.Footer(tuple(self._index), *totals, *self._times, messages, chain, chained)


class FileWriter:
    """A segment or snapshot that is being written. Not thread-safe. Raises OSError."""

    def __init__(
        self,
        storage: Storage,
        name: str,
        header: fmt.FileHeader,
        *,
        reserve_limit: int = 0,
        chain_contents: bool = False,
        sink: JournalSink | None = None,
    ) -> None:
        """`reserve_limit` bounds the space that is preallocated, and `chain_contents` is as for FooterBuilder.

        `append_durably` also sends frames to `sink`.
        """
        self.name = name
        self.chain = b""
        """The file's digest, once it is sealed."""
        self._storage = storage
        self._header = header
        self._seed = header.seed
        self._origin = header.origin
        self._reserved = 0
        self._reserve_limit = reserve_limit
        self._chain_contents = chain_contents
        self._sink = sink
        self._write_durably = storage.write_through if sink is None or sink.synced else storage.write
        self._footer = FooterBuilder(header, contents=chain_contents)

    @property
    def end_lsn(self) -> int:
        """The address of the next frame."""
        return self._footer.end_lsn

    def create(self) -> None:
        """Create the file with its header. Nothing of it is durable yet."""
        self._storage.create(self.name)
        self._reserve(fmt.FILE_HEADER_SIZE)
        self._storage.write(self.name, 0, self._header.pack())

    def publish(self, name: str) -> None:
        """Make the contents durable and rename the file to `name`, atomically."""
        self._storage.sync(self.name)
        self._storage.replace(self.name, name)
        self.name = name

    def append(self, time_us: int, payload: Sequence[bytes], offsets: array[int], kinds: bytes | bytearray) -> int:
        """Write one frame; it is durable after `publish` or `seal`. Returns its size in bytes."""
        parts = fmt.pack_frame(self._footer.end_lsn, time_us, payload, offsets, kinds, self._seed)
        return self._put(self._storage.write, time_us, parts, len(kinds))

    def append_durably(
        self, time_us: int, payload: list[bytes], offsets: array[int], kinds: bytes | bytearray, digest: bytes = b""
    ) -> bytes:
        """Write and sync one frame. `digest` is the payload of its last record, which is not in `payload`.

        Returns the frame's own digest, which the next frame repeats.
        """
        marks = None
        if offsets[-1] >= fmt.MARK:
            marks, payload, digest = array("I"), [*payload, digest], b""
        parts = fmt.pack_frame(self._footer.end_lsn, time_us, payload, offsets, kinds, self._seed, marks, digest)
        sink = self._sink
        if sink is not None:
            sink.send(self._footer.end_lsn, parts)
        self._put(self._write_durably, time_us, parts, len(kinds))
        if sink is not None:
            sink.wait()
        return of_parts(parts, marks, strong=self._chain_contents)

    def _put(self, write: _Write, time_us: int, parts: list[bytes], count: int) -> int:
        lsn = self._footer.end_lsn
        size = sum(map(len, parts))
        offset = lsn - self._origin + fmt.FILE_HEADER_SIZE
        if offset + size > self._reserved:
            self._reserve(offset + size)
        write(self.name, offset, *parts)
        self._footer.add(lsn, lsn + size, time_us, count, parts)
        return size

    def seal(self, messages: int) -> int:
        """Cut off preallocated space, write the footer and sync. Returns the size of the file in bytes."""
        footer = self._footer.build(messages)
        self.chain = footer.chain
        return write_footer(self._storage, self.name, self._header, footer)

    def _reserve(self, need: int) -> None:
        # With preallocation, a full disk is a clean error, and syncs do not have to update the file's size.
        if self._reserve_limit:
            size = max(need, min(max(FIRST_RESERVE, 2 * self._reserved), self._reserve_limit))
            try:
                self._storage.reserve(self.name, size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size = need  # use the last free space for settlements, which will free more
                self._storage.reserve(self.name, size)
            self._reserved = size


def write_footer(storage: Storage, name: str, header: fmt.FileHeader, footer: fmt.Footer) -> int:
    """Seal a file after its last frame, durably. Returns the size of the file in bytes."""
    offset = footer.end_lsn - header.origin + fmt.FILE_HEADER_SIZE
    data = footer.pack(header.seed)
    storage.truncate(name, offset)  # first, so that bytes behind the last frame can never be read as frames
    storage.write(name, offset, data)
    storage.sync(name)
    storage.finish(name)
    return offset + len(data)

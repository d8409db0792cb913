"""A group commit, and the state of the writer thread. `Batch.write` and everything it calls run on that thread only."""

from __future__ import annotations

import contextlib
import errno
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable
from itertools import groupby
from typing import Final

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalFailed, JournalFull
from escrowmq.journal.storage import Storage
from escrowmq.journal.writer import FileWriter, JournalSink

LARGE: Final = 32_768
"""Bytes from which on a part of a record is written from where it lies; copying smaller ones together is cheaper."""
_SMALL: Final = 4096
"""With fewer bytes in a part on average, nothing is gained by looking for large ones."""
_MOST_CHUNKS: Final = 1000
"""The system takes 1024 pieces in one write."""


class Health:
    """Whether the journal can be written.

    A failure is permanent (DUR-2). Set by the writer thread, read by the loop.
    """

    def __init__(self) -> None:
        self.failure: JournalFailed | None = None
        self.on_failure: Callable[[], None] = lambda: None

    def fail(self, error: BaseException) -> JournalFailed:
        """Record the first failure and return the error to raise."""
        if self.failure is None:
            kind = JournalFull if isinstance(error, OSError) and error.errno == errno.ENOSPC else JournalFailed
            self.failure = kind(f"the journal cannot be written: {error}")
            self.on_failure()
        return self.failure

    def check(self) -> None:
        """Raise JournalFailed if the journal has failed."""
        if self.failure is not None:
            raise JournalFailed(str(self.failure)) from self.failure


class PendingRecords:
    """Records that have an LSN but are not part of a batch yet. The journal's hot path reads the slots directly."""

    __slots__ = ("chunk_ends", "chunks", "kinds", "offsets", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.offsets = array("I", (0,))
        self.kinds = bytearray()
        self.chunks: list[bytes] = []
        """Joined parts in order, one item for each read that had to join; they precede `parts`."""
        self.chunk_ends: list[int] = []

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of one record, by offset in the payload. Joins the parts that no earlier read has joined."""
        ends = self.chunk_ends
        if not ends or offset + length > ends[-1]:
            self.chunks.append(b"".join(self.parts))
            ends.append(self.offsets[-1])
            self.parts.clear()
        i = bisect_right(ends, offset)
        start = offset - (ends[i - 1] if i else 0)
        return self.chunks[i][start : start + length]

    def payload(self) -> list[bytes]:
        """Return all parts in order."""
        return self.chunks + self.parts if self.chunks else self.parts


class LogWriter:
    """The segment that is being written. One batch at a time uses it."""

    def __init__(
        self,
        storage: Storage,
        journal_id: bytes,
        segment_bytes: int,
        *,
        chain_contents: bool,
        sink: JournalSink | None = None,
    ) -> None:
        self._sink = sink
        self.link = bytes(fmt.LINK_SIZE)
        """The beginning of the digest of the last sealed segment."""
        self.last = b""
        """The digest of the last frame; empty if there is none, or it cannot be read."""
        self._chain_contents = chain_contents
        self._storage = storage
        self._journal_id = journal_id
        self._reserve = segment_bytes + fmt.FILE_HEADER_SIZE
        self._file: FileWriter | None = None

    def write(self, batch: Batch, payload: list[bytes]) -> None:
        """Write and sync one batch, and begin a new segment if the batch is the first of one. Raises OSError."""
        if batch.begins_segment:
            self.seal(batch.sealed_messages)
            self._uncache(batch.read_file)
            batch.link = self.link
            self._file = self._begin(batch.first_lsn, batch.time_us, batch.sealed_messages)
        file = self._file
        assert file is not None
        assert file.end_lsn == batch.first_lsn
        digest = self.last if batch.digest_size else b""
        started = time.perf_counter_ns()
        self.last = file.append_durably(batch.time_us, payload, batch.offsets, batch.kinds, digest)
        batch.sync_us = (time.perf_counter_ns() - started) // 1000
        assert file.end_lsn == batch.end_lsn

    def seal(self, messages: int) -> None:
        """Close the current segment durably, if there is one. `messages` is the number that it ever held."""
        if self._file is not None:
            self._file.seal(messages)
            self.link = self._file.chain[: fmt.LINK_SIZE]
            self._file = None

    def _uncache(self, name: str) -> None:
        """Let the system write the next segment into the memory of a file. Fresh memory costs twice the time."""
        if name:
            with contextlib.suppress(OSError):  # the file may have been deleted meanwhile
                self._storage.uncache(name)

    def _begin(self, lsn: int, time_us: int, messages: int) -> FileWriter:
        name = fmt.segment_name(lsn)
        header = fmt.FileHeader(fmt.TYPE_SEGMENT, self._journal_id, lsn, time_us, link=self.link)
        file = FileWriter(
            self._storage,
            name + ".tmp",
            header,
            reserve_limit=self._reserve,
            chain_contents=self._chain_contents,
            sink=self._sink,
        )
        if self._sink is not None:
            self._sink.begin(header.pack(), messages)
        file.create()
        file.publish(name)
        return file


class Batch:
    """Records that are written together: one frame, one write, one sync."""

    def __init__(
        self, writer: LogWriter, health: Health, first_lsn: int, records: PendingRecords, digest_size: int = 0
    ) -> None:
        """`digest_size` is the size of the last record, whose content the writer knows when it writes the batch. It is
        0 if there is no such record.
        """
        self.first_lsn = first_lsn
        self.digest_size = digest_size
        self.offsets = records.offsets
        self.kinds = records.kinds
        self.end_lsn = first_lsn + fmt.FRAME_HEADER_SIZE + fmt.body_size(self.offsets[-1], len(self.kinds))
        self.time_us = 0
        self.begins_segment = False
        self.sealed_messages = 0
        """The number of messages that the previous segment held, if this batch begins a segment."""
        self.link = b""
        """The link to the previous segment, once it was sealed because this batch begins a segment."""
        self.read_file = ""
        """A file that will hardly be read again, if this batch begins a segment and there is one."""
        self.sync_us = 0
        self.written = False
        self._parts = records.payload()
        self._chunks: list[bytes] | None = None
        self._writer = writer
        self._health = health

    @property
    def size(self) -> int:
        """The size of the frame in bytes."""
        return self.end_lsn - self.first_lsn

    @property
    def records(self) -> int:
        """The number of records that were appended."""
        return len(self.kinds) - (self.digest_size > 0)

    def chunks(self) -> list[bytes]:
        """Return the records back to back, without the digest: large parts as they are, small ones joined. Loop and
        writer may both come first; they get the same.
        """
        chunks = self._chunks
        if chunks is None:
            chunks = self._chunks = joined(self._parts, self.offsets[-1] - self.digest_size)
        return chunks

    def write(self) -> None:
        """Join, checksum, write and sync. Blocks; runs on the writer thread.

        After an error, the content of the disk is unknown, and the journal accepts no more records.

        Raises:
            JournalFailed: The write or the sync failed (JournalFull if there was no space).
        """
        self._health.check()
        try:
            self._writer.write(self, self.chunks())
        except BaseException as error:
            raise self._health.fail(error) from error
        self.written = True

    def read(self, lsn: int, length: int) -> bytes:
        """Return bytes of a record in this batch."""
        start = lsn - self.first_lsn - fmt.FRAME_HEADER_SIZE
        found = []
        for chunk in self.chunks():
            if length <= 0:
                break
            if start < len(chunk):
                part = chunk[start : start + length]
                found.append(part)
                length -= len(part)
                start = 0
            else:
                start -= len(chunk)
        return found[0] if len(found) == 1 else b"".join(found)


def joined(parts: list[bytes], size: int) -> list[bytes]:
    """`parts`, which have `size` bytes in all, with neighbours under `LARGE` bytes joined."""
    if size < _SMALL * len(parts) or len(parts) == 1:
        return parts if len(parts) == 1 else [b"".join(parts)]
    chunks: list[bytes] = []
    for large, group in groupby(parts, _is_large):
        if large:
            chunks += group
        else:
            chunks.append(b"".join(group))
    return chunks if len(chunks) <= _MOST_CHUNKS else [b"".join(chunks)]


def _is_large(part: bytes) -> bool:
    return len(part) >= LARGE

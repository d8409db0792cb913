"""One group commit, and the writer's side of the log. What `Batch.write` does belongs to the writer thread alone."""

from __future__ import annotations

import errno
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable

from escrowmq.journal import format as fmt
from escrowmq.journal.errors import JournalFailed, JournalFull
from escrowmq.journal.storage import Storage
from escrowmq.journal.writer import FileWriter


class Health:
    """Whether the journal may go on. Once failed it stays so (DUR-2); set by the writer, read by the loop."""

    def __init__(self) -> None:
        self.failure: JournalFailed | None = None
        self.on_failure: Callable[[], None] = lambda: None

    def fail(self, error: BaseException) -> JournalFailed:
        """Record the first failure; returns the error to raise."""
        if self.failure is None:
            kind = JournalFull if isinstance(error, OSError) and error.errno == errno.ENOSPC else JournalFailed
            self.failure = kind(f"the journal cannot be written: {error}")
            self.on_failure()
        return self.failure

    def check(self) -> None:
        """Raises JournalFailed if it has failed."""
        if self.failure is not None:
            raise JournalFailed(str(self.failure)) from self.failure


class PendingRecords:
    """Records that have an address and are not yet in a batch. Slots are read by the journal's hot path."""

    __slots__ = ("chunk_ends", "chunks", "kinds", "offsets", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.offsets = array("I", (0,))
        self.kinds = bytearray()
        self.chunks: list[bytes] = []
        """Parts that a read has joined, in order; they come before `parts`."""
        self.chunk_ends: list[int] = []

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of one record, by its offset in the payload. Joins parts that no read has joined before."""
        ends = self.chunk_ends
        if not ends or offset + length > ends[-1]:
            self.chunks.append(b"".join(self.parts))
            ends.append(self.offsets[-1])
            self.parts.clear()
        i = bisect_right(ends, offset)
        start = offset - (ends[i - 1] if i else 0)
        return self.chunks[i][start : start + length]

    def payload(self) -> list[bytes]:
        """All parts in order."""
        return self.chunks + self.parts if self.chunks else self.parts


class LogWriter:
    """The segment being filled. Used by one batch at a time."""

    def __init__(self, storage: Storage, journal_id: bytes, segment_bytes: int) -> None:
        self._storage = storage
        self._journal_id = journal_id
        self._reserve = segment_bytes + fmt.FILE_HEADER_SIZE
        self._file: FileWriter | None = None

    def write(self, batch: Batch, payload: bytes) -> int:
        """Write and sync one batch, beginning a segment if it is the first in one; returns the frame's bytes. Raises
        OSError.
        """
        if batch.begins_segment:
            self.seal(batch.sealed_messages)
            self._file = self._begin(batch.first_lsn, batch.time_us)
        file = self._file
        assert file is not None
        assert file.end_lsn == batch.first_lsn
        started = time.perf_counter_ns()
        size = file.append_durably(batch.time_us, payload, batch.offsets, batch.kinds)
        batch.sync_us = (time.perf_counter_ns() - started) // 1000
        return size

    def seal(self, messages: int) -> None:
        """Close the segment being filled, durably, if there is one."""
        if self._file is not None:
            self._file.seal(messages)
            self._file = None

    def _begin(self, lsn: int, time_us: int) -> FileWriter:
        name = fmt.segment_name(lsn)
        header = fmt.FileHeader(fmt.TYPE_SEGMENT, self._journal_id, lsn, time_us)
        file = FileWriter(self._storage, name + ".tmp", header, reserve_limit=self._reserve)
        file.create()
        file.publish(name)
        return file


class Batch:
    """Records that go to disk together: one frame, one write, one sync."""

    def __init__(self, writer: LogWriter, health: Health, first_lsn: int, records: PendingRecords) -> None:
        self.first_lsn = first_lsn
        self.offsets = records.offsets
        self.kinds = records.kinds
        self.end_lsn = first_lsn + fmt.FRAME_HEADER_SIZE + fmt.body_size(self.offsets[-1], len(self.kinds))
        self.time_us = 0
        self.begins_segment = False
        self.sealed_messages = 0
        """If it begins a segment: the messages that the one before it held."""
        self.sync_us = 0
        self.written = False
        self._parts = records.payload()
        self._payload: bytes | None = None
        self._writer = writer
        self._health = health

    @property
    def size(self) -> int:
        """Bytes of the frame."""
        return self.end_lsn - self.first_lsn

    def payload(self) -> bytes:
        """The records back to back. Loop and writer may both come first; they get the same."""
        payload = self._payload
        if payload is None:
            payload = self._payload = b"".join(self._parts)
        return payload

    def write(self) -> None:
        """Join, checksum, write, sync. Blocks; for the writer thread. Raises JournalFailed (JournalFull if there is no
        space).

        After an error nothing may be assumed of what is on disk: the journal takes nothing more.
        """
        self._health.check()
        try:
            size = self._writer.write(self, self.payload())
        except BaseException as error:
            raise self._health.fail(error) from error
        assert size == self.size
        self.written = True

    def read(self, lsn: int, length: int) -> bytes:
        """Bytes of a record in this batch."""
        start = lsn - self.first_lsn - fmt.FRAME_HEADER_SIZE
        return self.payload()[start : start + length]

"""The journal: append on the loop, write on the writer thread, replay at the start.

Everything here runs on the loop, except `Batch.write`, `Snapshot.write` and the work that `housekeeping` returns.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from escrowmq.journal import format as fmt
from escrowmq.journal.batch import Batch, Health, LogWriter, PendingRecords
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.recovery import Found, RecoveryReport, examine, repair
from escrowmq.journal.segments import Segment, SegmentTable
from escrowmq.journal.snapshot import Record, Snapshot, read_snapshot
from escrowmq.journal.stats import JournalStats
from escrowmq.journal.storage import Storage

SEGMENT_BYTES: Final = 64 << 20
BATCH_BYTES: Final = 16 << 20
SNAPSHOT_LSN: Final = -1
"""The LSN that `replay` gives with a record of the snapshot, which has no address in the log."""


class SparseSegment(NamedTuple):
    """A segment that is mostly dead. The broker appends what lives anew and releases the old."""

    first_lsn: int
    end_lsn: int
    live: int
    total: int


class Journal:
    """One log in one directory. See `open`; `replay` must have been run to its end before the first batch is taken."""

    def __init__(self, storage: Storage, found: Found, journal_id: bytes, limits: tuple[int, int, int]) -> None:
        self.recovery: RecoveryReport = found.report
        self.stats = JournalStats()
        self.synced_lsn = found.end_lsn
        """Everything below is on disk."""
        self.snapshot_lsn = found.report.snapshot_lsn
        self._segment_bytes, self._batch_bytes, self._keep_dead_bytes = limits
        self._storage = storage
        self._journal_id = journal_id
        self._found: Found | None = found
        self._table = SegmentTable(found.segments)
        self._health = Health()
        self._health.on_failure = self._stop
        self._writer = LogWriter(storage, journal_id, self._segment_bytes)
        self._start = found.end_lsn
        self._payload_lsn = self._start + fmt.FRAME_HEADER_SIZE
        self._fill = 0
        self._limit = self._batch_bytes
        self._pending = PendingRecords()
        self._closed: deque[Batch] = deque()
        self._in_flight: Batch | None = None
        self._snapshot: Snapshot | None = None
        self._work: _FileWork | None = None

    @classmethod
    def open(
        cls,
        storage: Storage,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        batch_bytes: int = BATCH_BYTES,
        keep_dead_bytes: int = 0,
        journal_id: bytes | None = None,
    ) -> Journal:
        """Find out what the directory holds; nothing in it is changed before `replay`.

        Args:
            storage: the directory.
            segment_bytes: size at which the next batch begins a new segment (a segment is longer by up to one batch).
            batch_bytes: payload at which a batch is closed and the next one begun.
            keep_dead_bytes: so much of what the broker needs no more is kept all the same, for audit; newest first.
            journal_id: 16 bytes, for a new journal; default: random.

        Raises:
            JournalDamaged: damage that is not at the tail (DUR-3).
            JournalVersionUnknown: a file of a newer version.
            OSError: from the storage.
        """
        found = examine(storage)
        identity = found.journal_id or journal_id or os.urandom(16)
        return cls(storage, found, identity, (segment_bytes, batch_bytes, keep_dead_bytes))

    # -- at the start

    def replay(self) -> Iterator[tuple[int, int, memoryview, int]]:
        """(LSN of the payload, kind, payload, time in microseconds) of each record that rebuilds the state, once.

        First the snapshot's, with SNAPSHOT_LSN, then the log's from the snapshot's LSN on. Call `retain` and `release`
        as they come. Payloads are views; copy what is to be kept. After the last one, the tail is repaired.

        Raises:
            JournalDamaged: a frame that is not whole, or a live message in a segment that is missing (DUR-3).
            JournalFailed: the repair failed.
        """
        found, report = self._found, self.recovery
        if found is None:
            raise RuntimeError("the journal is replayed once")
        if found.snapshot is not None:
            for kind, payload, time_us in read_snapshot(found.snapshot):
                report.snapshot_records += 1
                yield SNAPSHOT_LSN, kind, payload, time_us
        for segment in found.segments:
            if segment.end_lsn > self.snapshot_lsn:
                yield from self._replay_segment(segment, found)
        self._table.drop_holes()
        try:
            repair(self._storage, found)
        except OSError as error:
            raise self._health.fail(error) from error
        self._found = None
        self.stats.segments = len(self._table)
        self._table.begin(self._start)
        self.stats.disk_bytes = sum(segment.size for segment in self._table)

    def _replay_segment(self, segment: Segment, found: Found) -> Iterator[tuple[int, int, memoryview, int]]:
        file = found.files[segment.first_lsn]
        start = segment.first_lsn
        if start < self.snapshot_lsn and file.footer is not None:
            start = file.granule(self.snapshot_lsn)[0]
        walk = file.walk(start, segment.end_lsn)
        for frame in walk:
            if frame.end_lsn <= self.snapshot_lsn:
                continue
            if frame.lsn < self.snapshot_lsn:
                raise JournalDamaged(file.name, file.offset_of(frame.lsn), "the snapshot's LSN lies within a frame")
            self.recovery.log_frames += 1
            for lsn, kind, payload in frame.records():
                self.recovery.log_records += 1
                yield lsn, kind, payload, frame.time_us
        if walk.lsn != segment.end_lsn:
            raise JournalDamaged(file.name, walk.offset, walk.why)

    # -- on the loop

    def append(self, kind: int, *parts: bytes) -> int:
        """Add a record to the pending batch; returns the LSN of its payload (`parts` joined).

        Raises:
            JournalFailed: see `Batch.write`.
            ValueError: `kind` is not in 0..255, or the payload longer than `format.MAX_RECORD`.
        """
        start = end = self._fill
        for part in parts:
            end += len(part)
        if end > self._limit:
            size = end - start
            start = self._make_room(size)
            end = start + size
        pending = self._pending
        pending.kinds.append(kind)
        pending.offsets.append(end)
        pending.parts.extend(parts)
        self._fill = end
        return self._payload_lsn + start

    @property
    def end_lsn(self) -> int:
        """What a durable answer given now has to wait for: `synced_lsn` reaches it when all appended so far is on
        disk.
        """
        return self._payload_lsn + self._fill if self._pending.kinds else self._start

    @property
    def pending_bytes(self) -> int:
        """Bytes of payload and frames appended and not yet synced; they are held in memory."""
        return self.end_lsn - self.synced_lsn

    def take_batch(self, now_us: int) -> Batch | None:
        """The next batch for the writer; None if one is in flight, or nothing is pending. Raises JournalFailed.

        `now_us`: microseconds since the epoch, the time that the frame carries.
        """
        self._health.check()
        if self._in_flight is not None:
            return None
        if self._found is not None:
            raise RuntimeError("replay the journal first")
        if not self._closed:
            if not self._pending.kinds:
                return None
            self._close_pending()
        batch = self._in_flight = self._closed.popleft()
        batch.time_us = now_us
        return batch

    def batch_done(self, batch: Batch) -> None:
        """The writer has written `batch`: `synced_lsn` moves. Raises JournalFailed if it could not write it."""
        self._health.check()
        if batch is not self._in_flight or not batch.written:
            raise RuntimeError("not the batch that was written")
        self._in_flight = None
        self.synced_lsn = batch.end_lsn
        self.stats.batch(len(batch.kinds), batch.size, batch.sync_us)
        if batch.begins_segment:
            self.stats.segments += 1

    def read(self, lsn: int, length: int) -> bytes:
        """`length` bytes at `lsn`, which lie within one record, wherever it is now: pending, in flight or on disk.

        Raises:
            JournalDamaged: they are not there, or the frames around them are not whole.
            OSError: from the storage.
        """
        if lsn < self.synced_lsn:
            return self._table.read(self._storage, lsn, length)
        data = b""
        if lsn >= self._payload_lsn:
            if lsn + length <= self._payload_lsn + self._fill:
                data = self._pending.read(lsn - self._payload_lsn, length)
        else:
            for batch in (self._in_flight, *self._closed):
                if batch is not None and lsn < batch.end_lsn:
                    data = batch.read(lsn, length)
                    break
        if len(data) != length:
            raise ValueError(f"no record holds LSN {lsn:#x} to {lsn + length:#x}")
        return data

    def read_ahead(self, lsn: int, most: int) -> bytes:
        """Bytes from `lsn` on, at most `most`, and as many as lie together in one place; they may go over the end of
        the record into the next frames.

        Raises:
            JournalDamaged, ValueError, OSError: as `read`.
        """
        if lsn < self.synced_lsn:
            segment = self._table.find(lsn)
            end = self.synced_lsn if segment is None else min(segment.end_lsn, self.synced_lsn)
            return self._table.read(self._storage, lsn, min(most, end - lsn))
        if lsn >= self._payload_lsn:
            return self._pending.read(lsn - self._payload_lsn, min(most, self._payload_lsn + self._fill - lsn))
        for batch in (self._in_flight, *self._closed):
            if batch is not None and lsn < batch.end_lsn:
                return batch.read(lsn, most)
        return self.read(lsn, most)

    def retain(self, lsn: int, count: int) -> None:
        """`count` more messages live in the record at `lsn`: its segment stays."""
        segment = self._table.find(lsn)
        if segment is None:
            raise JournalDamaged(fmt.segment_name(lsn), 0, f"no segment holds the live messages at LSN {lsn:#x}")
        segment.live += count
        segment.total += count

    def release(self, lsn: int, count: int) -> None:
        """`count` messages in the record at `lsn` live no more."""
        segment = self._table.find(lsn)
        if segment is None or segment.live < count:
            raise ValueError(f"{count} messages released at LSN {lsn:#x}, which holds fewer")
        segment.live -= count

    def sparse_segments(self, limit_ratio: float) -> list[SparseSegment]:
        """Sealed segments below the snapshot of whose messages a share below `limit_ratio` (0 to 1), but not none,
        lives.
        """
        return [
            SparseSegment(s.first_lsn, s.end_lsn, s.live, s.total)
            for s in self._table
            if s is not self._table.current and s.end_lsn <= self.snapshot_lsn and 0 < s.live < limit_ratio * s.total
        ]

    def awaits_snapshot(self, limit_ratio: float) -> bool:
        """Whether a snapshot would let a sealed segment be deleted, or compacted: a share of its messages up to
        `limit_ratio` (0 to 1) lives, and it does not end below the snapshot that is in force.
        """
        return any(
            s.live <= limit_ratio * s.total
            for s in self._table
            if s is not self._table.current and s.end_lsn > self.snapshot_lsn
        )

    # -- snapshots and what they make superfluous

    def begin_snapshot(self, records: Iterable[Record], now_us: int) -> Snapshot:
        """A snapshot of the state as of now; its `write` goes to another thread, `snapshot_done` follows on the loop.

        `records` is iterated in that thread: it must not depend on what the loop changes. Raises JournalFailed;
        RuntimeError while another snapshot is under way.
        """
        self._health.check()
        if self._snapshot is not None:
            raise RuntimeError("a snapshot is under way")
        if self._pending.kinds:
            self._close_pending()
        self._snapshot = Snapshot(self._storage, self._journal_id, self._start, now_us, records)
        return self._snapshot

    def snapshot_done(self, snapshot: Snapshot) -> None:
        """`snapshot.write` has returned or raised. If it was written, `housekeeping` puts it in force once it may."""
        if snapshot is not self._snapshot:
            raise RuntimeError("not the snapshot under way")
        if not snapshot.written:
            self._snapshot = None

    def housekeeping(self) -> Callable[[], None] | None:
        """File work that has become due, to be run on another thread; None if there is none, or it is still running.

        To be called between turns of the loop, when the records of all that was released have been appended. It puts a
        written snapshot in force when the log is synced up to it, then deletes older ones and dead segments.
        The work raises OSError, which costs nothing but the work.
        """
        self._health.check()
        work = self._work
        if work is not None:
            if not work.over:
                return None
            self._work = None
            self._fold(work)
        snapshot = self._snapshot
        if snapshot is not None and snapshot.written and snapshot.lsn <= self.synced_lsn:
            self._work = _FileWork(self._storage, snapshot, [])
            return self._work
        dead = self._table.take_dead(self.snapshot_lsn, self.synced_lsn, self.end_lsn, self._keep_dead_bytes)
        if dead:
            self.stats.segments -= len(dead)
            self.stats.segments_deleted += len(dead)
            self.stats.disk_bytes -= sum(segment.size for segment in dead)
            self._work = _FileWork(self._storage, None, [segment.name for segment in dead])
        return self._work

    def _fold(self, work: _FileWork) -> None:
        snapshot = work.snapshot
        if snapshot is not None:
            self._snapshot = None
            if work.done:
                self.snapshot_lsn = snapshot.lsn  # only now: it must be in force before anything is deleted
                self.stats.snapshots += 1

    def close(self) -> None:
        """Seal the log, if it has not failed, and close the storage. No batch may be in flight. Blocks. Raises
        JournalFailed.

        What is pending and was not written is lost.
        """
        try:
            last = self._table.find(self.synced_lsn - 1)
            if self._health.failure is None and last is not None:
                self._writer.seal(last.total)
        except OSError as error:
            raise self._health.fail(error) from error
        finally:
            self._storage.close()

    # -- the slow side of append

    def _make_room(self, size: int) -> int:
        self._health.check()
        if size > fmt.MAX_RECORD:
            raise ValueError(f"a record of {size} bytes; the limit is {fmt.MAX_RECORD}")
        if self._pending.kinds:
            self._close_pending()
        return self._fill

    def _close_pending(self) -> None:
        batch = Batch(self._writer, self._health, self._start, self._pending)
        segment = self._table.current
        if segment.first_lsn == batch.first_lsn:
            batch.begins_segment = True
            batch.sealed_messages = self._table.before_current
        self._closed.append(batch)
        self._start = segment.end_lsn = batch.end_lsn
        self._payload_lsn = self._start + fmt.FRAME_HEADER_SIZE
        self._fill = 0
        self._pending = PendingRecords()
        if segment.size >= self._segment_bytes:
            self._table.begin(self._start)

    def _stop(self) -> None:
        self._limit = -1  # sends every append to `_make_room`


class _FileWork:
    """What `housekeeping` hands to another thread."""

    def __init__(self, storage: Storage, snapshot: Snapshot | None, names: list[str]) -> None:
        self.snapshot = snapshot
        self.done = False
        self.over = False
        self._storage = storage
        self._names = names

    def __call__(self) -> None:
        try:
            names = self._names
            if self.snapshot is not None:
                self.snapshot.install()
                self.done = True
                names = [n for n in self._storage.names() if n.endswith(".snapshot") and n != self.snapshot.name]
            for name in names:
                self._storage.delete(name)
        finally:
            self.over = True

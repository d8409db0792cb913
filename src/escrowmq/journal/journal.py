"""The journal: records are appended on the loop, written on the writer thread, and replayed at startup.

Everything here runs on the loop, except `Batch.write`, `Snapshot.write` and the function that `housekeeping` returns.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from escrowmq.journal import format as fmt
from escrowmq.journal.batch import Batch, Health, LogWriter, PendingRecords
from escrowmq.journal.digests import DIGEST, of_frame, size_of
from escrowmq.journal.errors import JournalDamaged, JournalUnreadable
from escrowmq.journal.recovery import Found, RecoveryReport, examine, last_frame, repair
from escrowmq.journal.removals import REMOVED, DeletedParts, encode
from escrowmq.journal.segments import Segment, SegmentTable
from escrowmq.journal.snapshot import Record, Snapshot, read_snapshot
from escrowmq.journal.stats import JournalStats
from escrowmq.journal.storage import Storage
from escrowmq.journal.writer import JournalSink

SEGMENT_BYTES: Final = 64 << 20
BATCH_BYTES: Final = 16 << 20
READ_ATTEMPTS: Final = 3
"""How often a read is tried that the system refuses."""
SHORT_READS: Final = (4096, 64)
"""Bytes to read ahead instead, if the damage may lie behind those that are needed."""
SNAPSHOT_LSN: Final = -1
"""The LSN that `replay` yields for a record of the snapshot, which has no address in the log."""


class SparseSegment(NamedTuple):
    """A segment with few live messages. The broker relocates these, after which the segment can be deleted."""

    first_lsn: int
    end_lsn: int
    live: int
    total: int


class Journal:
    """A log in one directory, opened by `open`. `replay` must have completed before the first batch is taken."""

    def __init__(
        self,
        storage: Storage,
        found: Found,
        journal_id: bytes,
        limits: tuple[int, int, int],
        *,
        chain_contents: bool = False,
        sink: JournalSink | None = None,
    ) -> None:
        self.recovery: RecoveryReport = found.report
        self.stats = JournalStats()
        self.synced_lsn = found.end_lsn
        """Everything below this LSN is on disk."""
        self.snapshot_lsn = found.report.snapshot_lsn
        self.removal_lsn: int | None = None
        """The LSN up to which the log must be synced before `housekeeping` deletes dead segments; None if none wait."""
        self._segment_bytes, self._batch_bytes, self._keep_dead_bytes = limits
        self._storage = storage
        self._sink = sink
        self._journal_id = journal_id
        self._found: Found | None = found
        self._table = SegmentTable(found.segments)
        self._health = Health()
        self._health.on_failure = self._stop
        self._writer = LogWriter(storage, journal_id, self._segment_bytes, chain_contents=chain_contents, sink=sink)
        self._start = found.end_lsn
        self._payload_lsn = self._start + fmt.FRAME_HEADER_SIZE
        self._chain_contents = chain_contents
        self._digest_size = size_of(0, strong=chain_contents)
        self._repaired: int | None = None
        """The number of messages in the footer that the repair wrote; None after the next segment has begun."""
        self._before: int | None = None
        """The size of the payload of the batch before the pending one; None if its digest cannot be known."""
        self._fill = 0
        self._limit = self._batch_bytes
        self._pending = PendingRecords()
        self._closed: deque[Batch] = deque()
        self._in_flight: Batch | None = None
        self._snapshot: Snapshot | None = None
        self._work: _FileWork | None = None
        self._removals = DeletedParts()

    @classmethod
    def open(
        cls,
        storage: Storage,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        batch_bytes: int = BATCH_BYTES,
        keep_dead_bytes: int = 0,
        journal_id: bytes | None = None,
        chain_contents: bool = False,
        sink: JournalSink | None = None,
    ) -> Journal:
        """Examine a directory and return its journal. Nothing in the directory changes before `replay`.

        Args:
            storage: The directory.
            segment_bytes: The size at which the next batch begins a new segment. A segment can be longer by one batch.
            batch_bytes: The payload size at which a batch is closed and the next one begins.
            keep_dead_bytes: The amount of data to keep for audits although the broker no longer needs it, newest first.
            journal_id: 16 bytes to identify a new journal; random by default.
            chain_contents: Whether the digests that chain segments are made of whole frames, and not of their headers.
            sink: Gets every frame before it counts as synced.

        Raises:
            JournalDamaged: There is damage that is not at the tail (DUR-3).
            JournalVersionUnknown: A file has a newer format version.
            OSError: From the storage.
        """
        found = examine(storage, chain_contents=chain_contents)
        identity = found.journal_id or journal_id or os.urandom(16)
        limits = (segment_bytes, batch_bytes, keep_dead_bytes)
        return cls(storage, found, identity, limits, chain_contents=chain_contents, sink=sink)

    # -- startup

    def replay(self) -> Iterator[tuple[int, int, memoryview, int]]:
        """Yield LSN of the payload, kind, payload and time (µs) of each record that rebuilds the state. Runs once.

        The records of the snapshot come first, with SNAPSHOT_LSN; those of the log from the snapshot's LSN follow. The
        caller must call `retain` and `release` while it iterates. Payloads are views, so the caller must copy what it
        keeps. After the last record, the tail is repaired.

        Raises:
            JournalDamaged: A frame is damaged, or a live message is in a missing segment (DUR-3).
            JournalFailed: The repair failed.
        """
        found, report = self._found, self.recovery
        if found is None:
            raise RuntimeError("the journal has already been replayed")
        if found.snapshot is not None:
            for kind, payload, time_us in read_snapshot(found.snapshot):
                if kind == REMOVED:
                    self._removals.replay(found.snapshot.name, payload)
                    continue
                report.snapshot_records += 1
                yield SNAPSHOT_LSN, kind, payload, time_us
        for segment in found.segments:
            if segment.end_lsn > self.snapshot_lsn:
                yield from self._replay_segment(segment, found)
        missing = self._table.missing()
        self._table.drop_holes()
        try:
            repair(self._storage, found)
        except OSError as error:
            raise self._health.fail(error) from error
        self._writer.link = found.link
        self._repaired = found.segments[-1].total if found.segments else None
        last = last_frame(found)
        if last is not None:
            self._writer.last = of_frame(last, strong=self._chain_contents).pack()
            self._before = len(last.payload)
        self._found = None
        self.stats.segments = len(self._table)
        self._table.begin(self._start)
        self.stats.disk_bytes = sum(segment.size for segment in self._table)
        report.notes += self._removals.found(missing, noting=found.noting)
        if missing and not found.noting:
            self.append(REMOVED, encode(self._removals.holes))

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
                raise JournalDamaged(file.name, file.offset_of(frame.lsn), "the snapshot's LSN is not a frame boundary")
            self.recovery.log_frames += 1
            for lsn, kind, payload in frame.records():
                if kind == REMOVED:
                    self._removals.replay(file.name, payload)
                elif kind != DIGEST:
                    self.recovery.log_records += 1
                    yield lsn, kind, payload, frame.time_us
        if walk.lsn != segment.end_lsn:
            raise JournalDamaged(file.name, walk.offset, walk.why)

    # -- on the loop

    def append(self, kind: int, *parts: bytes) -> int:
        """Append a record to the pending batch. Returns the LSN of its payload, which is `parts` joined.

        Raises:
            JournalFailed: The journal has failed (see `Batch.write`).
            ValueError: `kind` is not 0 to 255, or the payload is longer than `format.MAX_RECORD`.
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
    def identity(self) -> bytes:
        """The 16 bytes that identify this journal, chosen at random when it was created."""
        return self._journal_id

    @property
    def end_lsn(self) -> int:
        """The LSN that a durable answer given now must wait for.

        When `synced_lsn` reaches it, everything appended so far is on disk.
        """
        return self._payload_lsn + self._fill if self._pending.kinds else self._start

    def proof_lsn(self, after: int) -> int:
        """Return the LSN that an answer must wait for that says that nothing newer than `after` is in the log.

        Without a sink this is `after`, because nobody else writes to the log. With a sink, another node may write to
        it. Then a frame must be sent after this call, and count. If no such frame is there yet, it gets a record that
        repeats the last one of its kind.
        """
        if self._sink is None:
            return after
        if after > (self.synced_lsn if self._in_flight is None else self._in_flight.end_lsn):
            return after
        if self._closed:
            return self._closed[0].end_lsn
        if not self._pending.kinds:
            self.append(REMOVED, encode(self._removals.holes))
        return self.end_lsn

    @property
    def pending_bytes(self) -> int:
        """The size of the frames that are appended but not synced yet, in bytes. They are held in memory."""
        return self.end_lsn - self.synced_lsn

    def take_batch(self, now_us: int) -> Batch | None:
        """Return the next batch for the writer, or None if one is in flight or nothing is pending.

        `now_us` is the time that the frame carries, in microseconds since the epoch.

        Raises:
            JournalFailed: The journal has failed.
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
        """Advance `synced_lsn` after the writer has written `batch`. Raises JournalFailed if the write failed."""
        self._health.check()
        if batch is not self._in_flight or not batch.written:
            raise RuntimeError("this is not the batch that was written")
        self._in_flight = None
        self.synced_lsn = batch.end_lsn
        self.stats.batch(batch.records, batch.size, batch.sync_us)
        if batch.begins_segment:
            self.stats.segments += 1
            self._table.sealed(batch.first_lsn, batch.link)

    def read(self, lsn: int, length: int) -> bytes:
        """Return `length` bytes at `lsn`, which lie within one record: pending, in flight or on disk.

        Raises:
            JournalDamaged: The bytes are missing, or the frames around them are damaged.
            ValueError: No record that is not synced yet holds these bytes.
            JournalUnreadable: The system could not read them, in several attempts.
        """
        if lsn < self.synced_lsn:
            return self._read_one_of(lsn, (length,) * READ_ATTEMPTS)
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
        """Return up to `most` bytes from `lsn` on, as many as are stored in one place.

        They may extend beyond the record into the next frames.

        Raises:
            JournalDamaged, ValueError, JournalUnreadable: As for `read`.
        """
        if lsn < self.synced_lsn:
            segment = self._table.find(lsn)
            end = self.synced_lsn if segment is None else min(segment.end_lsn, self.synced_lsn)
            most = min(most, end - lsn)
            return self._read_one_of(lsn, (most, *(min(most, short) for short in SHORT_READS)))
        if lsn >= self._payload_lsn:
            return self._pending.read(lsn - self._payload_lsn, min(most, self._payload_lsn + self._fill - lsn))
        for batch in (self._in_flight, *self._closed):
            if batch is not None and lsn < batch.end_lsn:
                return batch.read(lsn, most)
        return self.read(lsn, most)

    def _read_one_of(self, lsn: int, lengths: Sequence[int]) -> bytes:
        """Read from the disk, with each length in turn until one succeeds."""
        failure: OSError | None = None
        for length in lengths:
            try:
                return self._table.read(self._storage, lsn, length)
            except OSError as error:
                failure = error
        raise JournalUnreadable(f"the journal cannot be read at LSN {lsn:#x}: {failure}") from failure

    def retain(self, lsn: int, count: int) -> None:
        """Count `count` more live messages in the record at `lsn`, which keep its segment from being deleted.

        Raises:
            JournalDamaged: No segment contains `lsn`.
        """
        segment = self._table.find(lsn)
        if segment is None:
            raise JournalDamaged(fmt.segment_name(lsn), 0, f"no segment holds LSN {lsn:#x}, which has live messages")
        segment.live += count
        segment.total += count

    def retain_each(self, lsns: Sequence[int], counts: Sequence[int]) -> None:
        """Do `retain` for many records, which are best in order.

        Raises:
            JournalDamaged: No segment contains one of the LSNs.
        """
        for lsn, count in self._by_segment(lsns, counts):
            self.retain(lsn, count)

    def release(self, lsn: int, count: int) -> None:
        """Count `count` fewer live messages in the record at `lsn`.

        Raises:
            ValueError: The segment has fewer live messages.
        """
        segment = self._table.find(lsn)
        if segment is None or segment.live < count:
            raise ValueError(f"cannot release {count} messages at LSN {lsn:#x}: the segment has fewer live messages")
        segment.live -= count

    def release_each(self, lsns: Sequence[int], counts: Sequence[int]) -> None:
        """Do `release` for many records, which are best in order.

        Raises:
            ValueError: A segment has fewer live messages.
        """
        for lsn, count in self._by_segment(lsns, counts):
            self.release(lsn, count)

    def _by_segment(self, lsns: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield the sums of `counts` over neighbours in one segment, each with the first LSN."""
        begin = end = first = total = 0
        for lsn, count in zip(lsns, counts, strict=True):
            if not begin <= lsn < end:
                if total:
                    yield first, total
                first, total = lsn, 0
                begin, end = self._table.extent(lsn)
            total += count
        if total:
            yield first, total

    def sparse_segments(self, limit_ratio: float) -> list[SparseSegment]:
        """Return the sealed segments below the snapshot of which some messages live, but a share below `limit_ratio`.

        `limit_ratio` is 0 to 1.
        """
        return [
            SparseSegment(s.first_lsn, s.end_lsn, s.live, s.total)
            for s in self._table
            if s is not self._table.current and s.end_lsn <= self.snapshot_lsn and 0 < s.live < limit_ratio * s.total
        ]

    @property
    def oldest_lsn(self) -> int:
        """Where the oldest segment begins that has living messages; if there is none, the current one."""
        return next((s.first_lsn for s in self._table if s.live), self._table.current.first_lsn)

    def pinning_segment(self, factor: int, least_bytes: int) -> SparseSegment | None:
        """Return the oldest segment with live messages, if the log from there on is longer than `least_bytes`, and than
        `factor` times what lives in it.

        A replicated log can be trimmed at its beginning only, so one such message keeps everything behind it. The
        segment is sealed, and lies below the snapshot. How much of it lives does not matter.
        """
        live = sum(s.size * s.live // s.total if s.total else 0 for s in self._table)
        for s in self._table:
            if s.live and s is not self._table.current:
                long = self._start - s.first_lsn > max(least_bytes, factor * live)
                if long and s.end_lsn <= self.snapshot_lsn:
                    return SparseSegment(s.first_lsn, s.end_lsn, s.live, s.total)
                return None
        return None

    def awaits_snapshot(self, limit_ratio: float) -> bool:
        """Return whether a new snapshot would allow a sealed segment to be deleted or compacted.

        That is so if the segment does not end below the current snapshot and at most the share `limit_ratio` (0 to 1)
        of its messages lives.
        """
        return any(
            s.live <= limit_ratio * s.total
            for s in self._table
            if s is not self._table.current and s.end_lsn > self.snapshot_lsn
        )

    # -- snapshots and housekeeping

    def begin_snapshot(self, records: Iterable[Record], now_us: int) -> Snapshot:
        """Begin a snapshot of the current state.

        `Snapshot.write` is to be run on another thread, followed by `snapshot_done` on the loop. `records` is iterated
        on that thread, so it must not depend on anything that the loop changes. `now_us` is in microseconds since the
        epoch.

        Raises:
            JournalFailed: The journal has failed.
            RuntimeError: Another snapshot is in progress.
        """
        self._health.check()
        if self._snapshot is not None:
            raise RuntimeError("a snapshot is in progress")
        if self._pending.kinds:
            self._close_pending()
        if self._removals.holes:
            records = chain([(REMOVED, encode(self._removals.holes))], records)
        self._snapshot = Snapshot(self._storage, self._journal_id, self._start, now_us, records)
        return self._snapshot

    def snapshot_done(self, snapshot: Snapshot) -> None:
        """Note that `snapshot.write` has returned or raised. `housekeeping` installs the snapshot as soon as it may."""
        if snapshot is not self._snapshot:
            raise RuntimeError("this is not the snapshot in progress")
        if not snapshot.written:
            self._snapshot = None

    def housekeeping(self, *, delete: bool = True) -> Callable[[], None] | None:
        """Return file work that is due, to be run on another thread. Returns None if there is none or it still runs.

        Call it between turns of the loop, when the records of all released messages have been appended. The work
        installs a written snapshot once the log is synced up to it, then deletes older snapshots and dead segments. It
        may raise OSError; then it is incomplete, but nothing else is affected.

        Dead segments are deleted only after a record about them is on disk. The first call that finds some appends it,
        and sets `removal_lsn`. Without `delete`, it finds none.

        Raises:
            JournalFailed: The journal has failed.
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
        if self.removal_lsn is None and delete:
            self._note_dead()
        if self.removal_lsn is not None and self.removal_lsn <= self.synced_lsn:
            dead, self.removal_lsn = self._removals.take(), None
            self.stats.segments -= len(dead)
            self.stats.segments_deleted += len(dead)
            self.stats.disk_bytes -= sum(segment.size for segment in dead)
            self._work = _FileWork(self._storage, None, [segment.name for segment in dead])
        return self._work

    def _note_dead(self) -> None:
        dead = self._table.take_dead(self.snapshot_lsn, self.synced_lsn, self.end_lsn, self._keep_dead_bytes)
        if dead:
            self._removals.add(dead)
            self.append(REMOVED, encode(self._removals.holes))
            self.removal_lsn = self.end_lsn

    def _fold(self, work: _FileWork) -> None:
        snapshot = work.snapshot
        if snapshot is not None:
            self._snapshot = None
            if work.done:
                self.snapshot_lsn = snapshot.lsn  # only now: the snapshot must be installed before anything is deleted
                self.stats.snapshots += 1

    def close(self) -> None:
        """Seal the log, unless it has failed, and close the storage. Blocks.

        No batch may be in flight. Pending records that were not written are lost.

        Raises:
            JournalFailed: The log could not be sealed.
        """
        try:
            last = self._table.find(self.synced_lsn - 1)
            if self._health.failure is None and last is not None:
                self._writer.seal(last.total)
        except OSError as error:
            raise self._health.fail(error) from error
        finally:
            self._storage.close()

    # -- the slow path of append

    def _make_room(self, size: int) -> int:
        self._health.check()
        if size > fmt.MAX_RECORD:
            raise ValueError(f"a record of {size} bytes exceeds the limit of {fmt.MAX_RECORD} bytes")
        if self._pending.kinds:
            self._close_pending()
        return self._fill

    def _close_pending(self) -> None:
        size = 0
        if self._before is not None:  # the digest of the batch before, which is known when this one is written
            size = self._digest_size + 4 * (self._before // fmt.MARK)
            self._pending.kinds.append(DIGEST)
            self._pending.offsets.append(self._fill + size)
        self._before = self._fill + size
        batch = Batch(self._writer, self._health, self._start, self._pending, size)
        segment = self._table.current
        if segment.first_lsn == batch.first_lsn:
            batch.begins_segment = True
            batch.sealed_messages = self._table.before_current if self._repaired is None else self._repaired
            self._repaired = None
            batch.read_file = self._table.take_read()
        self._closed.append(batch)
        self._start = segment.end_lsn = batch.end_lsn
        self._payload_lsn = self._start + fmt.FRAME_HEADER_SIZE
        self._fill = 0
        self._pending = PendingRecords()
        if segment.size >= self._segment_bytes:
            self._table.begin(self._start)

    def _stop(self) -> None:
        self._limit = -1  # makes every append call `_make_room`, which raises


class _FileWork:
    """The file work that `housekeeping` returns."""

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

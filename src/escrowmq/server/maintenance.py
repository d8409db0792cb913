"""Keeps the journal short: snapshots, the deletion of dead segments, and the compaction of sparse segments.

Only one of these is in progress at a time, so a snapshot never refers to messages that compaction is moving. Files are
written and deleted on a thread of their own; the event loop only captures the state, in pieces.
"""

from __future__ import annotations

import asyncio
import logging
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from enum import Enum, auto
from functools import partial
from typing import Final

from escrowmq.core.broker import Broker
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.recovery.relocation import Relocation
from escrowmq.core.recovery.snapshot import Capture
from escrowmq.journal.journal import Journal, SparseSegment
from escrowmq.journal.snapshot import Snapshot
from escrowmq.server.turn import Turns

CHECK_MS: Final = 1000
CALM_MS: Final = 10_000
"""A sparse segment is compacted after losing few messages for this time. A segment that is being consumed becomes empty
without compaction.
"""
PAUSE: Final = 3
"""A step of a compaction is followed by a pause this many times as long, so it takes at most a quarter of the time."""
PINNED_FACTOR: Final = 4
PINNED_BYTES: Final = 1 << 30
"""How much longer a replicated log may be than what lives in it, and how long it may always be."""
_log = logging.getLogger("escrowmq.journal")


class Stage(Enum):
    """The work in progress."""

    IDLE = auto()
    CAPTURE = auto()
    """The state is being captured for a snapshot, in pieces with turns between them."""
    SNAPSHOT = auto()
    """A snapshot is being written, or waits for the sync after which it takes effect."""
    FILES = auto()
    """Files are being renamed or deleted."""
    COMPACTION = auto()
    """Live messages of sparse segments are copied to the end of the journal, in steps with turns between them."""


class Maintenance:
    """Runs at the end of turns, after their records have been appended."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        turns: Turns,
        executor: Executor,
        *,
        snapshot_bytes: int,
        compaction_ratio: float,
        short: Callable[[], bool] = lambda: False,
        trims_prefix: bool = False,
        files_changed: Callable[[int, int], None] | None = None,
    ) -> None:
        """`short` tells whether the disk is short of space. If it is, and a snapshot would free some, the snapshot does
        not wait until the journal has grown by `snapshot_bytes`.

        With `trims_prefix`, the journal is on a replicated log too, of which only the beginning can be deleted. The
        oldest segment is then compacted if much of the log is behind it for nothing, however many of its messages live.

        `files_changed` is called with `Journal.snapshot_lsn` and `Journal.oldest_lsn` when a snapshot has taken effect,
        and when dead segments have been deleted, which usually happens some time later.
        """
        self.stage = Stage.IDLE
        self._idle = asyncio.Event()
        self._loop = loop
        self._turns = turns
        self._broker: Broker = turns.broker
        self._journal: Journal = turns.journal
        self._executor = executor
        self._snapshot_bytes = snapshot_bytes
        self._ratio = compaction_ratio
        self._short = short
        self._trims_prefix = trims_prefix
        self._files_changed = files_changed
        self._base = self._journal.snapshot_lsn
        self._capture: Capture | None = None
        self._snapshot: Snapshot | None = None
        self._sparse: list[SparseSegment] = []
        self._seen: dict[int, tuple[int, int]] = {}
        self._left: dict[int, int] = {}
        self._relocation: Relocation | None = None
        self._wanted = False
        self._resting = False
        """Nothing is written after the last snapshot, so dead segments are left to the next start."""
        self._waiting: list[Callable[[str], None]] = []
        self._promised: list[Callable[[str], None]] = []
        self._checked_ms = 0
        self._step_ends = 0
        self._pause: TimerHandle | None = None
        self.longest_capture_ms = 0.0
        turns.after.append(self._step)

    def snapshot_now(self, done: Callable[[str], None], *, compact: bool = False) -> None:
        """Take a snapshot soon. `done` is called with the reason of a failure, or an empty text after success.

        With `compact`, every segment with dead messages is compacted first, even if they are few.
        """
        self._turns.begin()
        self._wanted = True
        self._waiting.append(done)
        if compact and self.stage is Stage.IDLE:
            self._start_compaction(self._journal.sparse_segments(1.0))

    def _step(self) -> None:
        match self.stage:
            case Stage.IDLE:
                if self._wanted or self._journal.end_lsn - self._base >= self._snapshot_bytes:
                    self._take_snapshot()
                    return
                noted = self._journal.removal_lsn
                if noted is not None and noted <= self._journal.synced_lsn:
                    self._run_files()
                    return
                now = self._broker.engine.now
                if not 0 <= now - self._checked_ms < CHECK_MS:
                    self._checked_ms = now
                    if self._short() and self._journal.awaits_snapshot(self._ratio):
                        self._take_snapshot()  # publishers wait for disk space, so the journal does not grow
                    else:
                        self._tidy()
            case Stage.CAPTURE:
                self._capture_piece()
            case Stage.SNAPSHOT:
                snapshot = self._snapshot
                if snapshot is not None and snapshot.written and snapshot.lsn <= self._journal.synced_lsn:
                    self._run_files()
            case Stage.COMPACTION:
                if self._pause is None and self._journal.synced_lsn >= self._step_ends:
                    self._copy()
            case Stage.FILES:
                pass

    # -- snapshots

    def _take_snapshot(self) -> None:
        self.stage = Stage.CAPTURE
        self._wanted = False
        self._promised, self._waiting = self._waiting, []
        self._capture = Capture(self._broker)
        self._capture_piece()

    def _capture_piece(self) -> None:
        capture = self._capture
        assert capture is not None
        started = time.perf_counter()
        whole = capture.step()
        if whole:
            self._capture = None
            self._begin_snapshot((kind, b"".join(parts)) for kind, parts in capture.records())
        else:
            self._turns.soon(self._turns.begin)
        self.longest_capture_ms = max(self.longest_capture_ms, (time.perf_counter() - started) * 1000)

    def _begin_snapshot(self, records: Iterable[tuple[int, bytes]]) -> None:
        self.stage = Stage.SNAPSHOT
        self._base = self._journal.end_lsn
        snapshot = self._snapshot = self._journal.begin_snapshot(records, self._broker.engine.now * 1000)
        self._executor.submit(snapshot.write).add_done_callback(partial(self._post, self._snapshot_written))

    def _snapshot_written(self, future: Future[None]) -> None:
        snapshot = self._snapshot
        assert snapshot is not None
        self._journal.snapshot_done(snapshot)
        error = future.exception()
        if error is None:
            return  # the next step lets it take effect
        self._snapshot = None
        self.stage = Stage.IDLE
        _log.error("%s; the broker continues without this snapshot, and the next start takes longer", error)
        self._answer(str(error))

    # -- files

    def _tidy(self) -> None:
        """Delete dead segments; if there are none, compact sparse ones."""
        if not self._run_files():
            sparse = self._journal.sparse_segments(self._ratio) if self._ratio else []
            pinning = self._journal.pinning_segment(PINNED_FACTOR, PINNED_BYTES) if self._trims_prefix else None
            if pinning is not None and pinning not in sparse:
                sparse.append(pinning)
            self._start_compaction(self._calm(self._promising(sparse)))

    def _promising(self, sparse: list[SparseSegment]) -> list[SparseSegment]:
        """Return the segments that were not compacted since the last snapshot, or lost a tenth of their messages since
        then.

        Messages that are in memory during a compaction may stay in their segment. Compacting such a segment again at
        once could repeat without end.
        """
        return [s for s in sparse if s.first_lsn not in self._left or s.live < 0.9 * self._left[s.first_lsn]]

    def _calm(self, sparse: list[SparseSegment]) -> list[SparseSegment]:
        """Return the segments that have lost few messages for `CALM_MS`."""
        now, before = self._broker.engine.now, self._seen
        self._seen = {}
        for segment in sparse:
            live, since = before.get(segment.first_lsn, (0, now))
            self._seen[segment.first_lsn] = (live, since) if segment.live >= 0.9 * live > 0 else (segment.live, now)
        return [segment for segment in sparse if now - self._seen[segment.first_lsn][1] >= CALM_MS]

    def _run_files(self) -> bool:
        work = self._journal.housekeeping(delete=not self._resting)
        if work is None:
            return False
        self.stage = Stage.FILES
        self._executor.submit(work).add_done_callback(partial(self._post, self._files_done))
        return True

    def _files_done(self, future: Future[None]) -> None:
        error = future.exception()
        if error is not None:
            _log.error("cannot rename or delete files of the journal: %s", error)
        self.stage = Stage.IDLE
        self._idle.set()
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            self._tell(self._journal.snapshot_lsn)
            return
        # The journal notices its changed files only in `housekeeping`, which may also find the next work.
        more = self._run_files()
        if self._journal.snapshot_lsn == snapshot.lsn:
            self._left.clear()
            _log.info("snapshot %s is in effect, with %d records", snapshot.name, snapshot.record_count)
            self._tell(snapshot.lsn)
            self._answer("")
        else:
            self._answer(f"snapshot {snapshot.name} could not take effect: {error}")
        if not more:
            self._checked_ms = 0

    def _tell(self, snapshot_lsn: int) -> None:
        if self._files_changed is not None:
            self._files_changed(snapshot_lsn, self._journal.oldest_lsn)

    # -- compaction

    def _start_compaction(self, sparse: list[SparseSegment]) -> None:
        if sparse:
            self._sparse = sparse
            self.stage = Stage.COMPACTION
            live, total = sum(s.live for s in sparse), sum(s.total for s in sparse)
            _log.info("compaction of %d segments begins: %d of %d messages are live", len(sparse), live, total)
            self._copy()

    def _copy(self) -> None:
        started = self._loop.time()
        if self._relocation is None:
            segment = self._sparse.pop()
            self._relocation = Relocation(self._broker, segment.first_lsn, segment.end_lsn)
        if not self._copied(self._relocation):
            self._tried(self._relocation)
            self._relocation = None
            if not self._sparse:
                self.stage = Stage.IDLE
                self._checked_ms = 0  # the compacted segments are dead, and the next step deletes them
        self._step_ends = self._journal.end_lsn
        self._pause = self._loop.call_later(PAUSE * (self._loop.time() - started), self._go_on)

    def _copied(self, relocation: Relocation) -> bool:
        """Do a step, and return False if it was the last one."""
        try:
            return relocation.step()
        except LogUnreadable as error:
            _log.error("compaction left a segment, with its messages, where it is: %s", error)
            return False

    def _go_on(self) -> None:
        self._pause = None
        self._turns.begin()

    def _tried(self, relocation: Relocation) -> None:
        """Note how many messages are left in the segment."""
        for segment in self._journal.sparse_segments(1.0):
            if segment.first_lsn == relocation.first_lsn:
                self._left[segment.first_lsn] = segment.live
                _log.info("compaction moved %d messages and left %d in their segment", relocation.moved, segment.live)

    async def rest(self, *, snapshot: bool = True) -> str:
        """Take a last snapshot, unless it is not wanted, after which no work begins. Return the reason of a failure, or
        an empty text.
        """
        fault = ""
        self._resting = True
        if self.stage is Stage.COMPACTION:  # messages that were copied stay at their new address
            self._sparse.clear()
            self._relocation = None
            self.stage = Stage.IDLE
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if snapshot and self._journal.snapshot_lsn != self._journal.end_lsn:
            done: asyncio.Future[str] = self._loop.create_future()
            self.snapshot_now(lambda fault: None if done.done() else done.set_result(fault))
            fault = await done
        self._turns.after.remove(self._step)
        if self.stage is Stage.FILES:
            self._idle.clear()
            await self._idle.wait()
        return fault

    def _post(self, then: Callable[[Future[None]], None], future: Future[None]) -> None:
        self._turns.post(partial(then, future))

    def _answer(self, fault: str) -> None:
        promised, self._promised = self._promised, []
        for done in promised:
            done(fault)

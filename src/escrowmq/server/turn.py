"""The turns of the broker: all input of a turn is handled together, and each connection's output is sent once.

All sockets that are ready in one iteration of the event loop share a turn. The journal is written on another thread at
the same time. A batch that a client waits for goes to the writer as soon as the writer is idle, unless the clients of
the last batch shall be in it, too (see `gathering`). The answers are sent when the writer reports. Records that no
client waits for (plain acknowledgements, publishes without confirms) are written within `LAZY_SECONDS`, so that their
sync does not delay a commit.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Final, Protocol

from escrowmq.core.broker import Broker
from escrowmq.journal.batch import Batch
from escrowmq.journal.errors import JournalError
from escrowmq.journal.journal import Journal
from escrowmq.server.clock import Clock, ClockRecorder
from escrowmq.server.fatal import die
from escrowmq.server.gathering import SLOW_US, Gathering
from escrowmq.server.writer import Writer
from escrowmq.wire.endpoint import Endpoint

LAZY_SECONDS: Final = 0.01
LOOK_SECONDS: Final = 0.1
"""The time after which the broker looks again whether it may deliver."""
LAZY_BYTES: Final = 1 << 20
"""Bytes in the pending batch above which it is written although no client waits for it."""


_log = logging.getLogger("escrowmq.replication")


class Outlet(Protocol):
    """Sends the output of an endpoint."""

    def flush(self) -> None:
        """Send the endpoint's output."""
        ...


class Turns:
    """Runs the broker turn by turn. `begin` must be called before any call on the broker."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        broker: Broker,
        journal: Journal,
        clock: Callable[[], int] | None = None,
        withheld: Callable[[], bool] | None = None,
    ) -> None:
        """`clock` returns nanoseconds since the epoch (default: a `Clock` for which records are kept). While `withheld`
        returns True, nothing is delivered.
        """
        self.broker = broker
        self.journal = journal
        self.outlets: dict[Endpoint, Outlet] = {}
        self.dirty: dict[Endpoint, None] = {}
        self.holding: dict[Endpoint, None] = {}
        self.patient: dict[Endpoint, None] = {}
        """Endpoints with output that waits for the next sync, and does not hasten it."""
        self.after: list[Callable[[], None]] = []
        """Called at the end of each turn, after its records have been appended."""
        self.count = 0
        self._loop = loop
        self._clock = clock or self._own_clock()
        self._withheld = withheld
        self._look: TimerHandle | None = None
        self._silent_looks = 0
        self._begun = False
        self._stopped = False
        self._committed = False  # the broker has not been told of the latest sync
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._timer: TimerHandle | None = None
        self._timer_due = 0
        self._lazy: TimerHandle | None = None
        self._gathering = Gathering()
        self._gathered: TimerHandle | None = None
        """Ends the wait of the next batch."""
        self._writer = Writer(self._report, _write_failed)

    def _own_clock(self) -> Clock:
        clock = Clock(self.broker.engine.behind_ms)
        self.after.append(ClockRecorder(self.broker.engine, clock))
        return clock

    def begin(self) -> None:
        """Begin a turn, unless one has begun. The turn ends when everything that is ready has been handled."""
        if not self._begun:
            if self._stopped:
                return
            self._begun = True
            self.broker.engine.now = self._clock() // 1_000_000
            self._loop.call_soon(self.end)
        if self._committed:
            self._show()

    def end(self) -> None:
        """End the turn now, so that its answers do not wait for the other sockets."""
        if self._begun:
            self._end()

    def soon(self, action: Callable[[], None]) -> None:
        """Call `action` in the next iteration of the event loop, which may belong to another turn."""
        self._loop.call_soon(action)

    def forget(self, endpoint: Endpoint) -> None:
        """Forget an endpoint whose connection is closed."""
        self.outlets.pop(endpoint, None)
        self.dirty.pop(endpoint, None)
        self.holding.pop(endpoint, None)
        self.patient.pop(endpoint, None)

    def when_synced(self, lsn: int, action: Callable[[], None]) -> None:
        """Call `action` in a turn as soon as the journal is on disk up to `lsn`; immediately if it is."""
        if lsn <= self.journal.synced_lsn:
            action()
        else:
            heapq.heappush(self._waiting, (lsn, next(self._order), action))

    async def synced(self) -> None:
        """Wait until everything appended so far is on disk."""
        self.begin()
        future: asyncio.Future[None] = self._loop.create_future()
        # After the end of the turn, which appends the settlements of the turn.
        self._loop.call_soon(
            lambda: self.when_synced(self.journal.end_lsn, lambda: None if future.done() else future.set_result(None))
        )
        await future

    def post(self, action: Callable[[], None]) -> None:
        """Call `action` in a turn. May be called on any thread; does nothing after the event loop has ended."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._posted, action)

    def _posted(self, action: Callable[[], None]) -> None:
        self.begin()
        try:
            action()
        except JournalError as error:
            die(str(error))

    @property
    def idle(self) -> bool:
        """Whether everything appended is on disk."""
        return not self._writer.busy and self.journal.end_lsn == self.journal.synced_lsn

    def stop(self) -> None:
        """Begin no more turns, leave the present one unfinished, and end the writer's thread."""
        self._stopped, self._begun = True, False
        for timer in (self._timer, self._lazy, self._gathered, self._look):
            if timer is not None:
                timer.cancel()
        self._writer.stop()

    def _end(self) -> None:
        try:
            self._finish()
        except JournalError as error:
            die(str(error))
        except Exception as error:  # noqa: BLE001 - the broker's state is unknown; what is on disk is not
            die("internal error in the broker", error)

    def _finish(self) -> None:
        broker = self.broker
        if self._committed:
            self._show()
        due = broker.engine.next_deadline()
        if due is not None and due <= broker.engine.now:
            broker.engine.run_deadlines()
        if self._withheld is not None:
            self._withhold(self._withheld())
        broker.engine.turn.end()
        for action in self.after:
            action()
        self._write()
        self._flush()
        self.count += 1
        self._begun = False
        self._write()
        if self.holding and self.idle:
            self._release()  # their records are on disk already, so the writer will not report
            if self.dirty:
                self.begin()
        if broker.engine.turn.unfinished:  # consumers may have room again, now that their output is sent
            self.begin()
        due = broker.engine.next_deadline() or 0
        if due != self._timer_due:
            self._set_timer(due)

    def _withhold(self, silent: bool) -> None:
        """Deliver nothing while the node may be deposed, and look again soon."""
        turn = self.broker.engine.turn
        if turn.withheld != silent:
            turn.withheld = silent
            text = "nothing is delivered, since the replicated log does not answer" if silent else "deliveries go on"
            _log.warning("%s", text)
        if not silent:
            self._silent_looks = 0
        elif self._look is None:
            self._look = self._loop.call_later(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._look = None
        self._silent_looks += 1
        self.begin()

    @property
    def silent_seconds(self) -> float:
        """For how long nothing is delivered, without the time in which the process was suspended."""
        return self._silent_looks * LOOK_SECONDS

    def _flush(self) -> None:
        while self.dirty:
            dirty, self.dirty = self.dirty, {}
            for endpoint in dirty:
                outlet = self.outlets.get(endpoint)
                if outlet is not None:
                    outlet.flush()

    def _write(self) -> None:
        journal = self.journal
        if self._writer.busy or journal.end_lsn == journal.synced_lsn:
            return
        if self._gathered is not None and not self._gathering.is_whole(journal.pending_bytes):
            return
        if self.holding or self._waiting or journal.pending_bytes > LAZY_BYTES:
            self._put_batch()
        elif self._lazy is None:
            self._lazy = self._loop.call_later(LAZY_SECONDS, self._write_lazily)

    def _gather(self, batch: Batch) -> None:
        """Let the next batch wait if the clients of this one, which will be answered now, shall be in it."""
        seconds = self._gathering.begin(batch.records, batch.size, batch.sync_us, self.journal.pending_bytes)
        if seconds:
            self._gathered = self._loop.call_later(seconds, self._write_gathered)

    def _end_gathering(self, timer: TimerHandle) -> None:
        timer.cancel()
        self._gathered = None
        self._gathering.end(self.journal.pending_bytes)

    def _write_gathered(self) -> None:
        if self._gathered is not None:
            self._end_gathering(self._gathered)
        try:
            self._write()
        except JournalError as error:
            die(str(error))

    def _write_lazily(self) -> None:
        self._lazy = None
        try:
            self._put_batch()
        except JournalError as error:
            die(str(error))

    def _put_batch(self) -> None:
        if not self._writer.busy:
            if self._gathered is not None:
                self._end_gathering(self._gathered)
            batch = self.journal.take_batch(self._clock() // 1000)
            if batch is not None:
                self._writer.put(batch)

    def _set_timer(self, due: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = due
        if due:
            self._timer = self._loop.call_later(max(0, due - self.broker.engine.now) / 1000, self._deadline)

    def _deadline(self) -> None:
        self._timer = None
        self._timer_due = 0
        self.begin()

    def _report(self, batch: Batch) -> None:
        # Called on the writer's thread. The loop may be closed already while the process ends.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._synced, batch)

    def _synced(self, batch: Batch) -> None:
        """The writer has reported: send the answers that waited for this batch, and give the writer the next one.

        The event loop sends when all due callbacks have returned. The rest of the turn is left to the next iteration,
        so that the clients can read their answers while messages are delivered.
        """
        self._writer.busy = False
        self.begin()
        try:
            self.journal.batch_done(batch)
            self._committed = True  # visible before the next request, but not before the answers are sent
            if self._waiting:
                self._show()
            if batch.sync_us >= SLOW_US:
                self._gather(batch)
            self._release()
            self._write()
            self._flush()
        except JournalError as error:
            die(str(error))
        except Exception as error:  # noqa: BLE001 - as in `_end`
            die("internal error in the broker", error)

    def _show(self) -> None:
        """Tell the broker of the sync: committed messages become visible."""
        self._committed = False
        try:
            self.broker.engine.synced(self.journal.synced_lsn)
        except JournalError as error:
            die(str(error))
        except Exception as error:  # noqa: BLE001 - as in `_end`
            die("internal error in the broker", error)

    def _release(self) -> None:
        lsn = self.journal.synced_lsn
        holding, self.holding = self.holding, {}
        for endpoint in holding:
            if endpoint.synced(lsn):
                self.holding[endpoint] = None
        if self.patient:
            patient, self.patient = self.patient, {}
            for endpoint in patient:
                if endpoint.synced(lsn):
                    self.patient[endpoint] = None
        while self._waiting and self._waiting[0][0] <= lsn:
            heapq.heappop(self._waiting)[2]()


def _write_failed(error: BaseException) -> None:
    die(str(error) if isinstance(error, JournalError) else f"the journal cannot be written: {error!r}")

"""The thread that appends to the replicated log what the journal's writer writes, and shows that the leader is there.

While the log does not answer, it asks again without end: clients wait for their answers, and the same frame is appended
until it counts, or until it is clear that another node leads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Final, NoReturn

from escrowmq.replica.errors import AppendUnknown
from escrowmq.replica.leader import Leader
from escrowmq.replica.standing import LeaderLease

REPORT_SECONDS: Final = 5.0
"""The time between two reports of a node in the log, which show operators how far it follows."""
_PAUSE_SECONDS: Final = 0.1
_LEAVING_SECONDS: Final = 0.04
"""The time between signs of life while the process stops and refuses connections. See `presence`."""
_TELLING_SECONDS: Final = 0.5
"""How long a stop waits for the log. Without it, nobody can take over anyway."""

_log = logging.getLogger("escrowmq.replication")


class Shipper:
    """Implements `journal.writer.JournalSink`. `failed` is called on the thread when the node leads no more.

    Args:
        leader: Its claim counts. Only the thread uses it from now on.
        heartbeat_seconds: The time without an append after which the leader shows that it is there.
        silence_seconds: The time after the last append that counted from which on nothing may be delivered.
        synced: Whether frames are also synced on this machine before they are answered.
        failed: Ends the process without another answer.
    """

    def __init__(
        self,
        leader: Leader,
        heartbeat_seconds: float,
        silence_seconds: float,
        failed: Callable[[BaseException], NoReturn],
        *,
        synced: bool,
    ) -> None:
        self.synced = synced
        self.lease = LeaderLease(round(silence_seconds * 1000))
        self.lease.acknowledged(round(time.monotonic() * 1000))
        self.appends = 0
        self.waited_seconds = 0.0
        """The time that appends took, all together."""
        self._leader = leader
        self._heartbeat_seconds = heartbeat_seconds
        self._failed = failed
        self._work: SimpleQueue[tuple[Callable[[], object], Callable[[], None]] | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        self._outstanding = 0
        self._stopping = Event()
        self._report_at = time.monotonic() + REPORT_SECONDS
        self._thread = Thread(target=self._run, name="replicated-log", daemon=True)
        self._thread.start()

    # -- on the journal's writer thread

    def begin(self, header: bytes, messages: int) -> None:
        """See `JournalSink.begin`."""
        self._put(partial(self._leader.begin_segment, header, messages))

    def send(self, lsn: int, parts: Sequence[bytes]) -> None:
        """See `JournalSink.send`."""
        self._put(partial(self._leader.append_frame, lsn, parts))

    def wait(self) -> None:
        """See `JournalSink.wait`."""
        for _ in range(self._outstanding):
            self._done.get()
        self._outstanding = 0

    def _put(self, work: Callable[[], None]) -> None:
        self._outstanding += 1
        self._work.put((work, self._finish))

    def _finish(self) -> None:
        self._done.put(None)

    # -- on any thread

    @property
    def is_silent(self) -> bool:
        """Whether this node does not know for so long that it leads that it must not deliver."""
        return not self.lease.holds(round(time.monotonic() * 1000))

    def call(self, work: Callable[[], object]) -> None:
        """Do something on the thread, between frames, and wait until it is done. `stop` must not have been called."""
        done = Event()
        self._work.put((work, done.set))
        done.wait()

    def submit(self, work: Callable[[], object]) -> None:
        """Do something on the thread, between frames, without waiting for it."""
        self._work.put((work, lambda: None))

    def leave(self) -> None:
        """Tell the other nodes that this one stops in order, before it refuses connections, and show more often from
        now on that it is there. Blocks until the log has that, but not for long.
        """
        self._heartbeat_seconds = _LEAVING_SECONDS
        done = Event()
        self._work.put((partial(self._leader.prove, leaving=True), done.set))
        done.wait(_TELLING_SECONDS)

    def stop(self, *, resign: bool) -> None:
        """End the leadership, so that another node takes over at once, or only the thread. No frame may be on its way.

        If the log does not answer, the other nodes notice the silence.
        """
        self._stopping.set()
        if resign:
            self._work.put((self._leader.resign, lambda: None))
        self._work.put(None)
        self._thread.join()

    # -- on its thread

    def _run(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=self._heartbeat_seconds)
            except Empty:
                self._do(self._leader.prove)
                self._report()
                continue
            if work is None:
                return
            task, finish = work
            self._do(task)
            finish()
            self._report()

    def _report(self) -> None:
        """Say now and then where the newest map of living segments is, for nodes that begin to follow."""
        now = time.monotonic()
        if now >= self._report_at and not self._stopping.is_set():
            self._report_at = now + REPORT_SECONDS
            self._do(partial(self._leader.report_place, round(time.time() * 1000)))

    def _do(self, work: Callable[[], object]) -> None:
        """Do something until it is done."""
        first = began = time.monotonic()
        told = False
        while True:
            try:
                work()
            except (AppendUnknown, OSError) as error:
                if self._stopping.is_set():
                    return
                if not told:
                    _log.warning("the replicated log does not answer, so clients wait: %s", error)
                    told = True
                time.sleep(_PAUSE_SECONDS)
                began = time.monotonic()
            except BaseException as error:  # noqa: BLE001 - nothing may be answered any more
                self._failed(error)
            else:
                break
        self.lease.acknowledged(round(began * 1000))
        self.appends += 1
        self.waited_seconds += time.monotonic() - first
        if told:
            _log.warning("the replicated log answers again, after %.1f s", time.monotonic() - first)

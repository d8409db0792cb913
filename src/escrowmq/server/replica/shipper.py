"""Appends to the replicated log what the journal's writer writes, and shows by a thread that the leader is there.

The writer's own thread sends frames and waits for them, since each change of thread delays a commit. While the log does
not answer, it is asked again without end: clients wait for their answers, and the same frame is appended until it
counts, or until it is clear that another node leads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Final, NamedTuple, NoReturn

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


class _SentFrame(NamedTuple):
    """A frame that was sent: what waits for it, what appends it again, and when it was sent."""

    finish: Callable[[], object]
    again: Callable[[], object]
    at: float


class Shipper:
    """Implements `journal.writer.JournalSink`. `failed` is called on the thread when the node leads no more.

    Args:
        leader: Its claim counts. Nobody else uses it from now on.
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
        self._leads = Lock()
        """Held by the thread that uses the leader."""
        self._sent: _SentFrame | None = None
        """The frame that the log may not have acknowledged yet."""
        self._appended_at = time.monotonic()
        self._work: SimpleQueue[tuple[Callable[[], object], Callable[[], None]] | None] = SimpleQueue()
        self._stopping = Event()
        self._report_at = time.monotonic() + REPORT_SECONDS
        self._thread = Thread(target=self._run, name="replicated-log", daemon=True)
        self._thread.start()

    # -- on the journal's writer thread

    def begin(self, header: bytes, messages: int) -> None:
        """See `JournalSink.begin`."""
        with self._leads:
            self._settle()
            self._do(partial(self._leader.begin_segment, header, messages))

    def send(self, lsn: int, parts: Sequence[bytes]) -> None:
        """See `JournalSink.send`."""
        again = partial(self._leader.append_frame, lsn, parts)
        with self._leads:
            self._settle()
            began = time.monotonic()
            try:
                finish = self._leader.begin_frame(lsn, parts)
            except OSError:
                finish = again
            except BaseException as error:  # noqa: BLE001 - nothing may be answered any more
                self._failed(error)
            self._sent = _SentFrame(finish, again, began)

    def wait(self) -> None:
        """See `JournalSink.wait`."""
        with self._leads:
            self._settle()

    def _settle(self) -> None:
        """Wait for the frame that was sent. Every thread does this before it uses the leader."""
        sent, self._sent = self._sent, None
        if sent is not None:
            self._do(sent.finish, sent.again, sent.at)

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
            idle = time.monotonic() - self._appended_at
            try:
                work = self._work.get(timeout=max(0.0, self._heartbeat_seconds - idle))
            except Empty:
                with self._leads:
                    self._prove_if_idle()
                    self._report_if_due()
                continue
            if work is None:
                return
            task, finish = work
            with self._leads:
                self._settle()
                self._do(task)
                finish()
                self._report_if_due()

    def _prove_if_idle(self) -> None:
        if time.monotonic() - self._appended_at >= self._heartbeat_seconds:
            self._settle()
            self._do(self._leader.prove)

    def _report_if_due(self) -> None:
        """Say now and then where the newest map of living segments is, for nodes that begin to follow."""
        now = time.monotonic()
        if now >= self._report_at and not self._stopping.is_set():
            self._settle()
            self._report_at = now + REPORT_SECONDS
            self._do(partial(self._leader.report_place, round(time.time() * 1000)))

    # -- on each of these threads

    def _do(
        self, work: Callable[[], object], again: Callable[[], object] | None = None, began: float | None = None
    ) -> None:
        """Do something until it is done. If it fails, do `again` from then on. It began when its entries were sent."""
        first = began = time.monotonic() if began is None else began
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
                began, work = time.monotonic(), again or work
            except BaseException as error:  # noqa: BLE001 - nothing may be answered any more
                self._failed(error)
            else:
                break
        self._appended_at = time.monotonic()
        self.lease.acknowledged(round(began * 1000))
        self.appends += 1
        self.waited_seconds += self._appended_at - first
        if told:
            _log.warning("the replicated log answers again, after %.1f s", self._appended_at - first)

"""One thread that drives all connections of a run and makes sure that the run ends."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass

from escrowmq.perf.errors import PerfError
from escrowmq.perf.pace import SECOND
from escrowmq.perf.peer import Consumer, Peer, Producer
from escrowmq.perf.totals import Totals

_CHECK_EVERY = SECOND // 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run, in seconds.

    Publishing ends after `duration` (None: after the count alone). The run ends with an error after `deadline`, or
    after `stall` without any progress.
    """

    duration: float | None
    deadline: float
    stall: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The totals at one moment of a run."""

    seconds: float
    published: int
    confirmed: int
    consumed: int


class Loop:
    """Runs producers and consumers to their end."""

    def __init__(
        self,
        producers: list[Producer],
        consumers: list[Consumer],
        totals: Totals,
        copies: int,
        backlog: int,
        paced: bool,
        limits: Limits,
        on_sample: Callable[[Sample, str | None], None],
        sample_every: float,
    ) -> None:
        """`copies` is the number of deliveries for one publish, `backlog` the number of messages in the queues at the
        start.

        `on_sample` gets the counts, and the broker's reason while it blocks publishers, every `sample_every` seconds.
        """
        self._producers = producers
        self._consumers = consumers
        self._totals = totals
        self._copies = copies
        self._backlog = backlog
        self._limits = limits
        self._on_sample = on_sample
        self._sample_every = int(sample_every * SECOND)
        self._paced = paced
        # select() can wait for microseconds, epoll only for milliseconds: a paced load needs the former.
        self._selector: selectors.BaseSelector = (
            selectors.SelectSelector() if self._paced else selectors.DefaultSelector()
        )
        self._peers: list[Peer] = [*consumers, *producers]
        self._interest: dict[Peer, int] = {}
        self._progress = (-1, -1, -1)
        self._progress_at = 0
        self.blocked_seconds = 0.0

    @property
    def expected(self) -> int:
        """The number of deliveries that must arrive for the messages published so far."""
        return self._backlog + (self._totals.published - self._totals.rejected) * self._copies

    def subscribe(self) -> None:
        """Start the consumers, and wait until the broker has accepted all subscriptions.

        Raises PerfError if that takes longer than a run may stall.
        """
        start = time.monotonic_ns()
        for peer in self._peers:
            peer.socket.setblocking(False)
            self._interest[peer] = selectors.EVENT_READ
            self._selector.register(peer.socket, selectors.EVENT_READ, peer)
        for consumer in self._consumers:
            consumer.start(start)
        while not all(consumer.subscribed for consumer in self._consumers):
            self._wait(_CHECK_EVERY)
            if time.monotonic_ns() - start > self._limits.stall * SECOND:
                raise PerfError(f"the broker did not accept all consumers in {self._limits.stall:g} s")

    def run(self, start: int) -> None:
        """Run from `start` (monotonic ns) until all messages are published, answered and consumed.

        Raises PerfError if that does not happen within the limits.
        """
        for producer in self._producers:
            producer.wake(start)
        self._turn(start)
        for consumer in self._consumers:
            consumer.finish(time.monotonic_ns())

    def close(self) -> None:
        """Stop watching all connections."""
        self._selector.close()

    def _turn(self, start: int) -> None:
        next_check = next_sample = start
        stop_at = None if self._limits.duration is None else start + int(self._limits.duration * SECOND)
        while True:
            now = time.monotonic_ns()
            if stop_at is not None and now >= stop_at:
                stop_at = None
                for producer in self._producers:
                    producer.stop()
            if now >= next_check:
                self._check(now, start)
                next_check = now + _CHECK_EVERY
                if now >= next_sample:
                    next_sample = now + self._sample_every
                    self._sample(now, start)
            if self._done():
                self._sample(time.monotonic_ns(), start)
                return
            timeout = _CHECK_EVERY
            if self._paced:
                timeout = self._pace(now, timeout)
            self._wait(timeout)

    def _wait(self, timeout: int) -> None:
        """Serve the connections that are ready within `timeout` (ns)."""
        for peer in self._peers:
            self._register(peer)
        for key, events in self._selector.select(timeout / SECOND):
            peer = key.data
            now = time.monotonic_ns()
            if events & selectors.EVENT_READ:
                peer.on_readable(now)
            if events & selectors.EVENT_WRITE:
                peer.pump(now)

    def _pace(self, now: int, timeout: int) -> int:
        """Send the messages that are due. Returns how long (ns) there is nothing to do."""
        for producer in self._producers:
            due = producer.due_at()
            if due is not None and due <= now:
                producer.wake(now)
                due = producer.due_at()
            if due is not None:
                timeout = min(timeout, max(due - now, 0))
        return timeout

    def _register(self, peer: Peer) -> None:
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.wants_write else 0)
        if wanted != self._interest[peer]:
            self._interest[peer] = wanted
            self._selector.modify(peer.socket, wanted, peer)

    def _done(self) -> bool:
        totals = self._totals
        if self._consumers and totals.consumed < self.expected:
            return False
        if not all(producer.finished for producer in self._producers):
            return False
        if self._consumers and totals.consumed > self.expected:
            raise PerfError(
                f"the broker delivered {totals.consumed} messages, but only {self.expected} could be delivered"
            )
        return True

    def _check(self, now: int, start: int) -> None:
        totals = self._totals
        progress = (totals.published, totals.confirmed, totals.consumed)
        if progress != self._progress:
            self._progress = progress
            self._progress_at = now
        quiet = (now - self._progress_at) / SECOND
        seconds = (now - start) / SECOND
        if seconds > self._limits.deadline:
            raise PerfError(f"not done after {self._limits.deadline:g} s: {self._state()}")
        if quiet > self._limits.stall:
            raise PerfError(f"no progress for {self._limits.stall:g} s: {self._state()}")
        if self._blocked() is not None:
            self.blocked_seconds += _CHECK_EVERY / SECOND

    def _state(self) -> str:
        totals = self._totals
        text = (
            f"published {totals.published}, confirmed {totals.confirmed}, consumed {totals.consumed} of {self.expected}"
        )
        blocked = self._blocked()
        return text if blocked is None else f"{text}; the broker blocks publishers: {blocked}"

    def _blocked(self) -> str | None:
        return next((producer.blocked for producer in self._producers if producer.blocked is not None), None)

    def _sample(self, now: int, start: int) -> None:
        totals = self._totals
        sample = Sample((now - start) / SECOND, totals.published, totals.confirmed, totals.consumed)
        self._on_sample(sample, self._blocked())

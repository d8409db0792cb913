"""The next bytes of one publishing channel: without limit, with a window of unconfirmed messages, or by transaction."""

from __future__ import annotations

import sys

from escrowmq.perf.block import PublishBlock
from escrowmq.perf.confirms import ConfirmTracker
from escrowmq.perf.errors import PerfError
from escrowmq.perf.pace import Pace
from escrowmq.perf.totals import Totals


class Publisher:
    """Publishes without waiting for anything."""

    def __init__(self, channel: int, block: PublishBlock, totals: Totals, count: int | None, stamped: bool) -> None:
        """`count` None: publish until `stop`. `stamped`: write the time into the bodies."""
        self.channel = channel
        self.block = block
        self.totals = totals
        self.limit = sys.maxsize if count is None else count
        self.stamped = stamped
        self.published = 0
        self.pace: Pace | None = None
        self.queued = False
        """Whether the peer lists it among the publishers that may have something to send."""
        self._at = 0

    @property
    def finished(self) -> bool:
        """Whether nothing is left to send or to wait for."""
        return self.published >= self.limit

    def stop(self) -> None:
        """Send no more messages."""
        self.limit = min(self.limit, self.published)

    def room(self, now: int) -> int:
        """Return the number of messages that may be sent now (ns)."""
        block = self.block
        room = min(self.limit - self.published, block.count - self._at, block.write_count)
        if self.pace is not None:
            room = min(room, self.pace.due(now) - self.published)
        return room

    def due_at(self) -> int | None:
        """When the next message is due (ns), if the publisher waits for the pace alone."""
        return None if self.pace is None or self.published >= self.limit else self.pace.time_of(self.published)

    def take(self, now: int) -> memoryview | None:
        """Return the bytes to send next, which count as published from now on; None if nothing may be sent now."""
        number = self.room(now)
        if number <= 0:
            return None
        first = self._at
        if self.stamped:
            self._stamp(first, number, now)
        self._at = (first + number) % self.block.count
        self.published += number
        self.totals.published += number
        self.totals.published_at = now
        return self.block.slice(first, number)

    def _stamp(self, first: int, number: int, now: int) -> None:
        if self.pace is None:
            self.block.stamp(first, number, now)
        else:
            # The time at which it was due, not at which it was sent. Otherwise a stalled broker would hide its own
            # latency.
            time_of = self.pace.time_of
            self.block.stamp_each(first, [time_of(self.published + i) for i in range(number)])

    def on_confirm(self, tag: int, multiple: bool, now: int) -> int:
        """The broker has answered a publish. Returns how many publishes that settled. PerfError if no answer is
        expected.
        """
        raise PerfError(f"the broker confirmed publish {tag} on channel {self.channel}, which is not in confirm mode")

    def on_commit_ok(self, now: int) -> None:
        """The broker has answered a commit. Raises PerfError if no answer is expected."""
        raise PerfError(f"the broker answered a commit on channel {self.channel}, which sent none")


class ConfirmingPublisher(Publisher):
    """Keeps at most `window` messages unconfirmed."""

    def __init__(
        self, channel: int, block: PublishBlock, totals: Totals, count: int | None, stamped: bool, window: int
    ) -> None:
        super().__init__(channel, block, totals, count, stamped)
        self.window = window
        self._confirms = ConfirmTracker()
        self._probe: tuple[int, int] | None = None
        """The message whose confirm is timed, one at a time: tag, time."""

    @property
    def finished(self) -> bool:
        return self.published >= self.limit and self._confirms.floor == self.published

    def room(self, now: int) -> int:
        return min(super().room(now), self.window - self.published + self._confirms.confirmed)

    def due_at(self) -> int | None:
        return None if self.published - self._confirms.confirmed >= self.window else super().due_at()

    def take(self, now: int) -> memoryview | None:
        data = super().take(now)
        if data is not None and self._probe is None:
            self._probe = self.published, now
        return data

    def on_confirm(self, tag: int, multiple: bool, now: int) -> int:
        settled = self._confirms.confirm(tag, multiple, self.published)
        if self._probe is not None and self._confirms.floor >= self._probe[0]:
            self.totals.answer.record(now - self._probe[1])
            self._probe = None
        return settled


class TransactingPublisher(Publisher):
    """Repeats: publish `size` messages, commit, and wait for the answer."""

    def __init__(
        self,
        channel: int,
        block: PublishBlock,
        totals: Totals,
        count: int | None,
        stamped: bool,
        size: int,
        commit: bytes,
    ) -> None:
        """`block.count` must be a multiple of `size`. `commit` is the request that follows the publishes."""
        super().__init__(channel, block, totals, count, stamped)
        self.size = size
        self._commit = commit
        self._open = 0
        """The number of messages in the transaction whose commit is in flight."""
        self._committed_at = 0

    @property
    def finished(self) -> bool:
        return self.published >= self.limit and not self._open

    def room(self, now: int) -> int:
        if self._open:
            return 0
        size = min(self.size, self.limit - self.published)
        return size if self.pace is None or self.pace.due(now) - self.published >= size else 0

    def due_at(self) -> int | None:
        if self.pace is None or self._open or self.published >= self.limit:
            return None
        return self.pace.time_of(self.published + min(self.size, self.limit - self.published) - 1)

    def take(self, now: int) -> memoryview | None:
        data = self.take_messages(now)
        return None if data is None else memoryview(b"".join((data, self._commit)))

    def take_messages(self, now: int) -> memoryview | None:
        """Return the publishes of the next transaction, whose answer is awaited from now on; None as in `take`."""
        before = self.published
        data = super().take(now)
        if data is not None:
            self._open = self.published - before
            self._committed_at = now
        return data

    def _note(self, number: int, now: int) -> None:
        """Count a transaction of `number` messages that was encoded before, and whose answer is awaited from now on."""
        self._at = (self._at + number) % self.block.count
        self.published += number
        self.totals.published += number
        self.totals.published_at = now
        self._open = number
        self._committed_at = now

    def on_commit_ok(self, now: int) -> None:
        if not self._open:
            super().on_commit_ok(now)
        self.totals.confirmed += self._open
        self.totals.confirmed_at = now
        self.totals.answer.record(now - self._committed_at)
        self._open = 0

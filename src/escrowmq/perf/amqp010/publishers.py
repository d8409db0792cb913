"""The publishers of the load tool over AMQP 0-10, one for each session.

The broker answers a transfer by its completion, or by accepting it. Completions are asked for by `execution.sync`,
behind the messages of one write. In transactions the completion of the last command is the answer.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from escrowmq.perf.amqp010 import frames
from escrowmq.perf.amqp010.connection import SessionNumbers
from escrowmq.perf.block import PublishBlock
from escrowmq.perf.errors import PerfError
from escrowmq.perf.publisher import Publisher, TransactingPublisher
from escrowmq.perf.totals import Totals
from escrowmq.perf.workload import TWO_PHASE
from escrowmq.wire.amqp010.codec.spec import (
    DtxCommit,
    DtxEnd,
    DtxPrepare,
    DtxStart,
    ExecutionSync,
    TxCommit,
    XaStatus,
    Xid,
)
from escrowmq.wire.amqp010.codec.structs import Command

_FORMAT: Final = 0x70657266
_COMPLETED_EVERY: Final = 64
"""Commands of the broker (results and acceptances) after which their completion is sent."""
_ANY_ID: Final = bytes(16)


class CommandSet:
    """The numbers of commands that the broker has answered, most often in their order."""

    __slots__ = ("_above", "floor")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        """All commands below this number are answered."""
        self._above: set[int] = set()

    def add(self, first: int, last: int, sent: int) -> int:
        """Add answers, which may be known already. Returns how many are new.

        Raises PerfError if the broker answers a command of which none with this number was `sent`.
        """
        if last >= sent:
            raise PerfError(f"the broker answered command {last}, but only {sent} were sent")
        floor = self.floor
        if first <= floor:
            if last < floor:
                return 0
            new = last + 1 - floor
            self.floor = last + 1
            if self._above:
                known = {number for number in self._above if number <= last}
                new -= len(known)
                self._above -= known
                while self.floor in self._above:
                    self._above.discard(self.floor)
                    self.floor += 1
            return new
        before = len(self._above)
        self._above.update(range(first, last + 1))
        return len(self._above) - before


class SessionPublisher(Publisher):
    """Publishes without waiting for anything. `numbers` are those of its session."""

    numbers: SessionNumbers
    _told = 0  # commands of the broker whose completion was sent

    def take(self, now: int) -> memoryview | None:
        before = self.published
        data = super().take(now)
        self.numbers.sent += self.published - before
        return data

    def completion(self) -> bytes:
        """Return the completion of what the broker has sent, or nothing if there is too little of it."""
        received = self.numbers.received
        if received - self._told < _COMPLETED_EVERY:
            return b""
        self._told = received
        return frames.completed(self.channel, 0, received - 1)

    def on_completed(self, first: int, last: int, now: int) -> bool:
        """The broker has completed commands. Returns whether there may be something to send now."""
        return False

    def on_accepted(self, first: int, last: int, now: int, *, rejected: bool) -> bool:
        """The broker has accepted transfers, or rejected them. Returns whether there may be something to send now."""
        raise PerfError(f"the broker answered transfers on channel {self.channel} that need no acceptance")

    def on_result(self, number: int, status: int, now: int) -> bool:
        """The broker has sent the result of a command. Returns whether there may be something to send now."""
        raise PerfError(f"the broker sent a result for command {number} on channel {self.channel}, which has none")


class AnsweredPublisher(SessionPublisher):
    """Keeps at most `window` messages unanswered. The answer is the acceptance if that is `explicit`, otherwise the
    completion.
    """

    def __init__(
        self,
        channel: int,
        block: PublishBlock,
        totals: Totals,
        count: int | None,
        stamped: bool,
        window: int,
        numbers: SessionNumbers,
        *,
        explicit: bool,
    ) -> None:
        super().__init__(channel, block, totals, count, stamped)
        self.window = window
        self.numbers = numbers
        self._explicit = explicit
        self._sync = frames.command(channel, ExecutionSync(), sync=True)
        self._syncs: deque[int] = deque()  # numbers of those that are not complete
        self._answered = CommandSet(numbers.sent)
        self._confirmed = 0
        self._probe: tuple[int, int] | None = None  # the transfer whose answer is timed: number, time

    @property
    def finished(self) -> bool:
        return self.published >= self.limit and self._confirmed == self.published

    def room(self, now: int) -> int:
        return min(super().room(now), self.window - self.published + self._confirmed)

    def due_at(self) -> int | None:
        return None if self.published - self._confirmed >= self.window else super().due_at()

    def take(self, now: int) -> memoryview | None:
        data = super().take(now)
        if data is None:
            return None
        numbers = self.numbers
        if self._probe is None:
            self._probe = numbers.sent - 1, now
        if self._explicit:
            return data
        self._syncs.append(numbers.sent)
        numbers.sent += 1
        return memoryview(b"".join((data, self._sync)))

    def on_completed(self, first: int, last: int, now: int) -> bool:
        return not self._explicit and self._count(first, last, now)

    def on_accepted(self, first: int, last: int, now: int, *, rejected: bool) -> bool:
        if not self._explicit:
            return super().on_accepted(first, last, now, rejected=rejected)
        before = self._confirmed
        wake = self._count(first, last, now)
        if rejected:
            self.totals.rejected += self._confirmed - before
        return wake

    def _count(self, first: int, last: int, now: int) -> bool:
        new = self._answered.add(first, last, self.numbers.sent)
        syncs = self._syncs
        if syncs and first <= syncs[0] <= last:
            while syncs and syncs[0] <= last:
                syncs.popleft()
                new -= 1
        if not new:
            return False
        self._confirmed += new
        self.totals.confirmed += new
        self.totals.confirmed_at = now
        if self._probe is not None and self._answered.floor > self._probe[0]:
            self.totals.answer.record(now - self._probe[1])
            self._probe = None
        return True


class CommittingPublisher(SessionPublisher, TransactingPublisher):
    """Repeats: publish `size` messages, commit (class `tx`), and wait for the completion."""

    def begin(self, numbers: SessionNumbers) -> None:
        """Use the session, in which `tx.select` was sent."""
        self.numbers = numbers
        self._commit = frames.command(self.channel, TxCommit(), sync=True)
        self._awaited = -1

    def take(self, now: int) -> memoryview | None:
        data = self.take_messages(now)
        if data is None:
            return None
        self._awaited = self.numbers.sent + self._open
        self.numbers.sent = self._awaited + 1
        return memoryview(b"".join((data, self._commit)))

    def on_completed(self, first: int, last: int, now: int) -> bool:
        if not first <= self._awaited <= last:
            return False
        self._awaited = -1
        self.on_commit_ok(now)
        return True


class SessionBranchPublisher(SessionPublisher, TransactingPublisher):
    """Repeats: publish `size` messages in a branch, end it, prepare it, commit it, and wait for the result.

    Commands that need no result first are sent in one write: start, transfers, end and prepare (or the one-phase
    commit).
    """

    def begin(self, numbers: SessionNumbers, phases: str) -> None:
        """Use the session, in which `dtx.select` was sent."""
        channel = self.channel
        self.numbers = numbers
        self._two_phase = phases == TWO_PHASE
        self._id = b""
        self._ids = int.from_bytes(secrets.token_bytes(16), "big") >> 1
        self._start = _around(channel, DtxStart)
        self._end = _around(channel, DtxEnd)
        last: Callable[[Xid], Command] = DtxPrepare if self._two_phase else lambda xid: DtxCommit(xid, one_phase=True)
        self._last = _around(channel, last, sync=True)
        self._commit_around = _around(channel, DtxCommit, sync=True)
        self._prepared = False
        self._preparation = self._decision = -1

    def room(self, now: int) -> int:
        return 1 if self._prepared else super().room(now)

    def take(self, now: int) -> memoryview | None:
        numbers = self.numbers
        if self._prepared:
            self._prepared = False
            self._decision = numbers.sent
            numbers.sent += 1
            return memoryview(self._id.join(self._commit_around))
        data = self.take_messages(now)
        if data is None:
            return None
        self._ids += 1
        each = self._id = self._ids.to_bytes(16, "big")
        final = numbers.sent + self._open + 2
        numbers.sent = final + 1
        self._preparation, self._decision = (final, -1) if self._two_phase else (-1, final)
        (start, started), (end, ended), (last, rest) = self._start, self._end, self._last
        return memoryview(b"".join((start, each, started, data, end, each, ended, last, each, rest)))

    def on_result(self, number: int, status: int, now: int) -> bool:
        if status != XaStatus.XA_OK:
            raise PerfError(f"the broker answered {status} to command {number} on channel {self.channel}, not xa-ok")
        if number == self._preparation:
            self._prepared = True
        elif number == self._decision:
            self.on_commit_ok(now)
        else:
            return False
        return True


def _around(channel: int, command: Callable[[Xid], Command], *, sync: bool = False) -> tuple[bytes, bytes]:
    """Return the frame of a command, divided at the global id of its xid, which has 16 octets."""
    whole = frames.command(channel, command(Xid(_FORMAT, _ANY_ID, b"\1")), sync=sync)
    before, _, after = whole.rpartition(_ANY_ID)
    return before, after


def status_of(value: Any) -> int:
    """Return the status in the result of a command. Raises PerfError if the result is another one."""
    status = getattr(value, "status", None)
    if status is None:
        raise PerfError(f"the broker sent the result {value!r}")
    return int(status)

"""Checks: asking producers about half messages without a decision, and parking those that nobody decides.

All work is done in pieces, within the turn's budget, so a hundred thousand half messages may fall due at once. A half
message whose group has no live producer waits for one and costs nothing meanwhile. Its checks are not counted
(HALF-5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.core.half.message import HalfMessage
from escrowmq.core.half.producers import LiveProducer, Producers
from escrowmq.core.half.state import HalfInput, HalfState, after
from escrowmq.core.records.half import encode_half_many
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.access.access import Access
    from escrowmq.core.engine import Engine
    from escrowmq.core.half.options import HalfOptions
    from escrowmq.core.half.queue import HalfQueue

CHECK: Final = 12
"""Cost of a check, in units of the turn's budget."""
PARK: Final = 2
PASSED: Final = 8
"""Numbers that need nothing any more and together cost one unit."""
RETRY_MS: Final = 200
"""Time after which a check is tried again that no producer could take, or whose message could not be read."""
_Waiting = tuple[str, str, str]
"""Virtual host, group, and the owner of the half messages."""


class Checking:
    """Checks the half messages of all virtual hosts when they are due."""

    __slots__ = ("_access", "_changes", "_engine", "_unable", "options", "parked", "producers", "queue_of")

    def __init__(self, engine: Engine, access: Access, options: HalfOptions) -> None:
        self._engine = engine
        self._access = access
        self.options = options
        self._changes: dict[tuple[HalfQueue, Kind], list[tuple[int, int]]] = {}
        self._unable: set[_Waiting] = set()  # whose producers could not take a check a moment ago
        self.producers = Producers(self._joined)
        self.queue_of: Callable[[str], HalfQueue | None] = _none
        self.parked: Callable[[HalfMessage], None] = _nobody
        engine.at_each_turn(self.record)

    # -- when

    def arm(self, queue: HalfQueue) -> None:
        """Set the deadline of the next work on a virtual host's half messages."""
        if queue.running or queue.deleted:
            return
        times = [queue.timetable.next(queue.ledger.rows), self._expiry(queue)]
        at = min([time for time in times if time is not None], default=None)
        deadline = queue.deadline
        if at is None or (deadline is not None and deadline.action is not None and deadline.at <= at):
            return
        if deadline is not None:
            deadline.cancel()
        queue.deadline = self._engine.deadlines.set(max(at, self._engine.now), lambda: self._begin(queue))

    def _expiry(self, queue: HalfQueue) -> int | None:
        decided = queue.timetable.decided
        return queue.ledger.rows.due(decided[0]) + self.options.outcome_kept_ms if decided else None

    def _joined(self, vhost: str, group: str) -> None:
        queue = self.queue_of(vhost)
        if queue is not None and queue.timetable.wake(group):
            self.arm(queue)

    def _begin(self, queue: HalfQueue) -> None:
        if not queue.running and not queue.deleted:
            queue.running = True
            self._engine.left_over.add(self._work(queue))

    def _work(self, queue: HalfQueue) -> Iterator[None]:
        """Do all that is due, as far as the turn's budget allows; then others have their turn."""
        budget, passed = self._engine.requests, 0
        while budget.left > 0 and not queue.deleted:
            now, rows = self._engine.now, queue.ledger.rows
            number = queue.timetable.pop(rows, now)
            if number and rows.state(number) is HalfState.PENDING:
                self._due(queue, number)
                continue
            if not number and not self._forget(queue):
                queue.running = False
                self.arm(queue)
                return
            passed += 1
            budget.left -= not passed % PASSED
        if not queue.deleted:
            self._engine.left_over.add(self._work(queue))
        yield from ()

    def _forget(self, queue: HalfQueue) -> bool:
        """Forget an outcome that was known long enough. Return whether there was one."""
        at = self._expiry(queue)
        if at is None or at > self._engine.now:
            return False
        queue.ledger.forget(queue.timetable.decided.popleft())
        return True

    # -- checking

    def _due(self, queue: HalfQueue, number: int) -> None:
        half = HalfMessage(queue, number, HalfState.PENDING)
        options = self.options.of(half.vhost, half.topic)
        if half.checks >= options.checks:
            self._engine.requests.left -= PARK
            state = after(half.state, HalfInput.EXHAUST, half.title)
            queue.ledger.set(number, state, self._engine.now, half.checks)
            self._changes.setdefault((queue, Kind.HALF_PARKED), []).append((number, options.checks))
            self._engine.counters.half.parked += 1
            self.parked(half)
            return
        key = half.vhost, half.group, half.user
        if key in self._unable or not self.producers.count(half.vhost, half.group):
            self._engine.requests.left -= PARK
            queue.timetable.wait(half.group, half.user, number)
            return
        self._engine.requests.left -= CHECK
        if not queue.synced(number) or not self._readable(queue, number):
            queue.ledger.rows.put(number, self._engine.now + RETRY_MS)
            queue.timetable.add(number, RETRY_MS)
            return
        half.checks += 1
        if not self._ask(half):
            queue.timetable.wait(half.group, half.user, number)
            queue.timetable.rest_waits(half.group, half.user)
            self._unavailable(key)
            return
        self._engine.counters.half.checks += 1
        due = self._engine.now + options.interval_ms
        queue.ledger.set(number, after(half.state, HalfInput.CHECK, half.title), due, half.checks)
        queue.timetable.add(number, options.interval_ms)
        self._changes.setdefault((queue, Kind.HALF_CHECKED), []).append((number, options.checks))

    def _readable(self, queue: HalfQueue, number: int) -> bool:
        try:
            queue.load(number)
        except LogUnreadable:
            return False
        return True

    def _ask(self, half: HalfMessage) -> bool:
        """Write the check to a producer. Return whether one could take it."""

        def may(producer: LiveProducer) -> bool:
            return producer.user == half.user or self._access.allowed(producer.user, half.vhost, half.topic, "write")

        chosen = self.producers.choose(half.vhost, half.group, half.label, may)
        return any(producer.check(half) for producer in chosen)

    def _unavailable(self, key: _Waiting) -> None:
        """Let the half messages of a group and a user wait for a while, since no producer could take a check."""
        self._unable.add(key)
        self._engine.deadlines.set(self._engine.now + RETRY_MS, lambda: self._try_again(key))

    def _try_again(self, key: _Waiting) -> None:
        self._unable.discard(key)
        self._joined(key[0], key[1])

    # -- the log

    def record(self) -> None:
        """Record the checks and the parkings since the last call."""
        if not self._changes:
            return
        for (queue, kind), changed in self._changes.items():
            if not queue.deleted:
                numbers, limits = zip(*changed, strict=True)
                self._engine.log.append(kind, encode_half_many(queue.ident, self._engine.now, numbers, limits))
        self._changes.clear()


def _none(vhost: str) -> HalfQueue | None:
    del vhost
    return None


def _nobody(half: HalfMessage) -> None:
    del half

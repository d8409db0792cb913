"""Delayed messages: the hidden queue of a virtual host in which they wait, and the step out of it (DLY-1, DLY-2).

A message that is due leaves the hidden queue and enters its queues by one record. It is routed at that time, as in
RabbitMQ's plugin, so bindings that were made while it waited count. Its time to live begins then, too. If its exchange
is gone, or nothing is bound for it, it is dropped. Before that time, its sender can recall it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from escrowmq.core.branches.decision import Decision
from escrowmq.core.budget import DEAD_LETTERED
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.delay import due_time
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.messages.keys import with_own_keys
from escrowmq.core.queues.admission import admitted
from escrowmq.core.queues.due_buckets import PIECE, DueBuckets
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.portions import Portion
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.topology.arguments.queue import QueueOptions

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadline
    from escrowmq.core.engine import Engine
    from escrowmq.core.messages.entry import Entry, Run
    from escrowmq.core.queues.discipline import Discipline
    from escrowmq.core.queues.sealed import SealedRuns
    from escrowmq.core.topology.vhost import VirtualHost

NAME: Final = "amq.delayed"
"""The name of each hidden queue in the log. Clients cannot declare it, and the virtual host does not list it."""
_PLACED: Final = 8  # messages in one queue each that cost one unit of the turn's budget


class Delays:
    """Sends messages on when they are due. `make` creates the hidden queue of a virtual host that has none."""

    __slots__ = ("_engine", "make")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.make: Callable[[VirtualHost[Queue]], Queue] = _none

    def queue(self, delete: Callable[[Queue], int], ident: int, vhost: str) -> DelayedQueue:
        """Return a new hidden queue."""
        return DelayedQueue(self._engine, delete, ident, vhost)

    def hold(self, vhost: VirtualHost[Queue], headers: Mapping[str, Any]) -> Queue | None:
        """Return the queue in which a message with these headers has to wait, or None if it is due at once.

        Raises PRECONDITION_FAILED for a delay that is not understood, and LIMIT_EXCEEDED for the first delayed message
        of a virtual host while memory or disk space is scarce.
        """
        now = self._engine.now
        if due_time(headers, now) <= now:
            return None
        return vhost.hidden.get(NAME) or self.make(vhost)

    def due(self, envelope: Envelope, content: bytes, time: int) -> int:
        """Return when a message that arrived at `time` is due."""
        return due_time(self._engine.formats[envelope.protocol].headers(envelope, content), time)

    def send_on(self, queue: DelayedQueue, entries: list[Entry]) -> None:
        """Move entries, which have left `queue` because they are due, to the queues that they are routed to."""
        engine = self._engine
        vhost = engine.vhost_of(queue)
        engine.budget.left -= DEAD_LETTERED * len(entries)
        decision = Decision(engine)
        run: list[bytes] = []
        targets: Sequence[Queue] = ()
        last: Envelope | None = None
        for envelope, content in with_own_keys(engine.formats, entries):
            found = self._route(vhost, envelope, content)
            if last is not None and (envelope is not last or found != targets):
                if targets:
                    decision.place(last, run, targets)
                run = []
            last, targets = envelope, found
            run.append(content)
        if last is not None and targets:
            decision.place(last, run, targets)
        engine.budget.left -= decision.places // _PLACED
        decision.remove(queue, entries, Outcome.DUE)
        decision.apply()

    def recall(self, queue: DelayedQueue, entry: Entry) -> int:
        """Record that an entry, which has left `queue`, was recalled. Return the LSN that the answer waits for."""
        decision = Decision(self._engine)
        decision.remove(queue, [entry], Outcome.RECALLED)
        return decision.apply()

    def width(self, queue: Queue, entry: Entry, outcome: Outcome) -> tuple[int, bool]:
        """See `Forwarding`."""
        del outcome
        vhost = self._engine.vhost_of(queue)
        ((envelope, content),) = with_own_keys(self._engine.formats, [entry])
        found = self._route(vhost, envelope, content)
        alike = envelope is entry.run.envelope and (
            envelope.exchange not in vhost.exchanges or not vhost.needs_content(envelope.exchange)
        )
        return len(found), alike

    def _route(self, vhost: VirtualHost[Queue], envelope: Envelope, content: bytes) -> Sequence[Queue]:
        if envelope.exchange not in vhost.exchanges:
            return ()
        headers = None
        if vhost.needs_headers(envelope.exchange):
            headers = self._engine.formats[envelope.protocol].headers(envelope, content)
        found = vhost.route(envelope.exchange, envelope.routing_key, headers, envelope.extra_keys)
        self._engine.budget.left -= vhost.take_cost()
        return admitted(found, envelope, content) if vhost.needs_content(envelope.exchange) else found


class DelayedQueue(Queue):
    """The hidden queue of a virtual host. It is durable, and makes every message in it durable (DLY-4)."""

    __slots__ = ("_deadline", "_delays", "waiting")

    def __init__(self, engine: Engine, delete: Callable[[Queue], int], ident: int, vhost: str) -> None:
        self._delays = engine.delays
        self._deadline: Deadline | None = None
        super().__init__(engine, delete, ident, vhost, NAME, QueueOptions(), durable=True)
        self.persists_all = True

    def _discipline(self) -> Discipline:
        self.waiting = DueBuckets(self._host.pager, self._delays.due)
        return self.waiting

    def _admit(self, run: Run, contents: Sequence[bytes]) -> None:
        self.waiting.append(run, contents)
        self.logged = True
        self._arm()

    def _admit_together(self, sealed: SealedRuns) -> None:
        for run, contents in zip(sealed.runs, sealed.contents, strict=True):
            self._admit(run, contents)
        self._host.left_over.add(sealed.dismantle())

    def dispatch(self, *, whole: bool = False) -> None:
        """Send on what is due, as far as the turn's budget allows."""
        del whole
        if self.fault or self.deleted:
            return
        budget, now = self._host.budget, self._host.now
        try:
            while self.waiting.prepare(now, budget) and (entries := self._due(now)):
                self.change()
                self._delays.send_on(self, entries)
        except LogUnreadable as error:
            self._host.unavailable.suspend(self, error)
            return
        self._arm()

    def _due(self, now: int) -> list[Entry]:
        """Remove and return messages that are due: fewer if they go to many queues."""
        portion = Portion(self._delays, Outcome.DUE)
        return self.waiting.take_due(now, PIECE, lambda entry: portion.admits(self, entry))

    def find(self, position: int, due: int) -> Entry | None:
        """Return the message at `position`, which is due at `due`, or None if it has left.

        Raises UNAVAILABLE if it cannot be read from the log.
        """
        try:
            return self.waiting.find(position, due)
        except LogUnreadable as error:
            raise BrokerError(Condition.UNAVAILABLE, f"the log cannot be read: {error}") from None

    def recall(self, entry: Entry, due: int) -> int:
        """Remove a message that `find` has found. Return the LSN that the answer waits for."""
        self.waiting.take_out(entry.position, due)
        self.change()
        return self._delays.recall(self, entry)

    def _arm(self) -> None:
        """Set a deadline for the next message that is due, or continue in the next turn."""
        at = self.waiting.next_event()
        if at is None or self.fault:
            return
        if at <= self._host.now:
            self._host.dirty[self] = None
            return
        deadline = self._deadline
        if deadline is not None and deadline.action is not None and deadline.at <= at:
            return
        if deadline is not None:
            deadline.cancel()
        self._deadline = self._host.deadlines.set(at, self._wake)

    def _wake(self) -> None:
        self._host.dirty[self] = None

    def resume(self) -> None:
        self.fault = ""
        self._arm()

    def recovered(self) -> None:
        self._arm()

    def retire(self) -> None:
        super().retire()
        if self._deadline is not None:
            self._deadline.cancel()


def _none(vhost: VirtualHost[Queue]) -> Queue:
    raise AssertionError(f"nothing makes the queue for delayed messages of vhost '{vhost.name}'")

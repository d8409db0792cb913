"""All half messages of the broker: storing and deciding them, and what operators do with them (HALF-1 to HALF-12).

A half message is stored by one record and decided by one record. The record of a commit also places the message in its
destination, so it is delivered exactly once; its answer waits until that record is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.branches.decision import Decision
from escrowmq.core.branches.xa_branch import PreparedRun
from escrowmq.core.conditions import BrokerError, Condition, check_growth
from escrowmq.core.half.changes import Deciding, Storing
from escrowmq.core.half.checks import Checking
from escrowmq.core.half.message import HalfMessage
from escrowmq.core.half.options import ID_LENGTH, HalfOptions
from escrowmq.core.half.queue import NAME, HalfQueue
from escrowmq.core.half.state import TABLE, HalfInput, HalfState, after
from escrowmq.core.half.state_records import CapturedHalf
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.half import HalfDecided, HalfResumed, HalfStored, OriginFields, encode_half_resumed
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.access.holdings import Holdings
    from escrowmq.core.engine import Engine
    from escrowmq.core.half.ledger import HalfLedger
    from escrowmq.core.half.producers import LiveProducer
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.directory import Directory
    from escrowmq.core.topology.vhost import VirtualHost

HALF_BYTES: Final = 256
"""The estimated memory of an undecided half message, whose content is only in the log."""
_NUMBER_DIGITS: Final = 16
_FORGOTTEN: Final = 2
"""Outcomes over the limit that are forgotten with each new one."""
_BY_OPERATOR: Final = frozenset((HalfInput.FORCE_COMMIT, HalfInput.DROP))


class Stored(NamedTuple):
    """A half message that was stored, by this call or, if it is `repeated`, by an earlier one with the same id. The
    answer waits until the log is synced up to `lsn`.
    """

    number: int
    transaction_id: str
    lsn: int
    repeated: bool


class HalfMessages:
    """The half messages of all virtual hosts. `producers` holds those that are asked about them."""

    def __init__(self, engine: Engine, directory: Directory, holdings: Holdings) -> None:
        self._engine = engine
        self._directory = directory
        self._holdings = holdings
        self._checks = Checking(engine, directory.access, HalfOptions())
        self._checks.queue_of = self.queue
        self.producers = self._checks.producers
        directory.hidden[NAME] = self._make

    @property
    def options(self) -> HalfOptions:
        """The settings. They must be in place before recovery."""
        return self._checks.options

    @options.setter
    def options(self, options: HalfOptions) -> None:
        self._checks.options = options

    def watch(self, parked: Callable[[HalfMessage], None]) -> None:
        """Have `parked` called with each half message that is parked from now on."""
        self._checks.parked = parked

    def _make(self, vhost: VirtualHost[Queue], ident: int) -> Queue:
        return HalfQueue(self._engine, self._directory.delete_queue, ident, vhost.name)

    def queue(self, vhost: str) -> HalfQueue | None:
        """Return the queue in which half messages of a virtual host wait, if there is one."""
        found = self._directory.vhosts.get(vhost)
        queue = None if found is None else found.hidden.get(NAME)
        return queue if isinstance(queue, HalfQueue) else None

    # -- what producers do

    def store(
        self,
        vhost: str,
        topic: str,
        message_id: str,
        envelope: Envelope,
        content: bytes,
        queue: Queue,
        *,
        group: str,
        user: str,
        producer: LiveProducer | None = None,
        immunity_ms: int = 0,
    ) -> Stored:
        """Store a message that `queue` gets when it is committed. `message_id` is unique in the topic.

        `group` is that of the producers which are asked about it; `producer` is preferred. `immunity_ms` is the least
        time before the first check. Raises INVALID_ARGUMENT, and LIMIT_EXCEEDED if the user or the virtual host has too
        many or too large half messages, or memory or disk space is scarce.
        """
        label = "" if producer is None else producer.label[:ID_LENGTH]
        _check_names(message_id, group)
        waiting_in = self._queue_for(vhost)
        ledger = waiting_in.ledger
        number = ledger.number(topic, message_id)
        if number:
            return Stored(number, ledger.transaction_id(vhost, number), self._engine.log.end_lsn, True)
        self._check_room(waiting_in, user)
        options, now = self.options.of(vhost, topic), self._engine.now
        number, delay = waiting_in.next_position, max(options.timeout_ms, immunity_ms)
        origin = ledger.origins.of(OriginFields(topic, group, user, label, queue.ident), queue)

        def stored(stored: HalfStored) -> None:
            if waiting_in.timetable.add(stored.number, delay):
                self._checks.arm(waiting_in)

        decision = Decision(self._engine)
        decision.place(envelope.lasting(), [content], [waiting_in])
        decision.record(
            Storing(
                waiting_in,
                HalfStored(waiting_in.ident, number, now, now + delay, message_id, origin.key),
                origin,
                stored,
            )
        )
        lsn = decision.apply()
        waiting_in.synced(number)
        waiting_in.stored(number, lsn)
        return Stored(number, ledger.transaction_id(vhost, number), lsn, False)

    def _queue_for(self, vhost: str) -> HalfQueue:
        queue = self.queue(vhost)
        if queue is None:
            made = self._directory.make_hidden_queue(self._directory.vhost(vhost), NAME, "half messages")
            assert isinstance(made, HalfQueue)
            return made
        return queue

    def _check_room(self, queue: HalfQueue, user: str) -> None:
        check_growth(self._engine.scarcity, f"a half message in vhost '{queue.vhost}'")
        undecided = queue.ledger.undecided[user]
        if undecided >= self.options.per_user:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"user '{user}' has {undecided} undecided half messages in vhost '{queue.vhost}', the limit "
                "(half_messages.per_user)",
            )
        holding = queue.holdings.get(user)
        if holding is None:
            holding = queue.holdings[user] = self._holdings.begin(user, queue.vhost)
        holding.grow(HALF_BYTES * (undecided + 1), "a half message")

    def commit(self, vhost: str, number: int, *, message_id: str = "") -> int:
        """Deliver a half message. Return the LSN up to which the log must be synced before the answer.

        Raises NOT_FOUND if it is unknown, or is not the one with this `message_id`; ILLEGAL_STATE if it was rolled back
        or parked; UNAVAILABLE if it cannot be read.
        """
        return self._decide(vhost, number, HalfInput.COMMIT, message_id)

    def roll_back(self, vhost: str, number: int, *, message_id: str = "") -> int:
        """Drop a half message. Return value and errors are those of `commit`; ILLEGAL_STATE if it was committed."""
        return self._decide(vhost, number, HalfInput.ROLL_BACK, message_id)

    def unknown(self, vhost: str, number: int, *, message_id: str = "") -> int:
        """Note that the producer does not know the outcome yet. Return 0. Raises NOT_FOUND as `commit` does."""
        self._decide(vhost, number, HalfInput.UNKNOWN, message_id)
        return 0

    # -- what operators do

    def resume(self, vhost: str, number: int) -> int:
        """Have a parked half message checked again, from the first check on. Return and errors as of `commit`."""
        queue, state = self._known(vhost, number, "")
        half = HalfMessage(queue, number, state)
        self._checks.record()
        state = after(half.state, HalfInput.RESUME, half.title)
        delay = self.options.of(vhost, half.topic).timeout_ms
        now = self._engine.now
        self._engine.log.append(Kind.HALF_RESUMED, encode_half_resumed(HalfResumed(queue.ident, number, now)))
        queue.ledger.set(number, state, now + delay, 0)
        if queue.timetable.add(number, delay):
            self._checks.arm(queue)
        return self._engine.log.end_lsn

    def force_commit(self, vhost: str, number: int) -> int:
        """Deliver a half message, also a parked one. Return value and errors are those of `commit`."""
        return self._decide(vhost, number, HalfInput.FORCE_COMMIT, "")

    def drop(self, vhost: str, number: int) -> int:
        """Drop a half message, also a parked one. Return value and errors are those of `commit`."""
        return self._decide(vhost, number, HalfInput.DROP, "")

    # -- deciding

    def _known(self, vhost: str, number: int, message_id: str) -> tuple[HalfQueue, HalfState]:
        queue = self.queue(vhost)
        state = None if queue is None else queue.ledger.rows.state(number)
        if queue is None or state is None or (message_id and queue.ledger.rows.ident(number) != message_id):
            raise BrokerError(
                Condition.NOT_FOUND,
                f"no half message {number} in vhost '{vhost}' is known; its outcome may have been forgotten",
            )
        return queue, state

    def _decide(self, vhost: str, number: int, given: HalfInput, message_id: str) -> int:
        queue, state = self._known(vhost, number, message_id)
        half = HalfMessage(queue, number, state)
        wanted = TABLE.get((state, given)) or after(state, given, half.title)  # the title costs more than the rest
        log = self._engine.log
        if wanted is state:
            return log.end_lsn  # the decision in force may not be synced yet
        self._checks.record()
        commit = wanted is HalfState.COMMITTED
        try:
            entry = queue.entry(number, whole=commit)
        except LogUnreadable as error:
            raise BrokerError(
                Condition.UNAVAILABLE, f"{half.title} in vhost '{vhost}' cannot be read, and stays undecided: {error}"
            ) from error
        assert entry is not None
        decision = Decision(self._engine)
        if commit and half.queue is not None:
            self._place(decision, entry, half.queue)
        decision.remove(queue, [entry], Outcome.COMMITTED if commit else Outcome.ROLLED_BACK)
        decided = HalfDecided(queue.ident, number, wanted, given in _BY_OPERATOR, self._engine.now)
        decision.record(Deciding(decided, lambda decided: self._decided(queue, half, decided)))
        return decision.apply(sealed=True)

    def _place(self, decision: Decision, entry: Entry, target: Queue) -> None:
        """Place the message in its destination. If possible, the new record refers to the block that was stored."""
        run, log = entry.run, self._engine.log
        placed = PreparedRun(run.envelope, [entry.content], (target,), False, run.time, run.lsn, 1)
        if run.index or not target.durable or placed.has_to_be_written_again(self._engine.now):
            decision.place(run.envelope, [entry.content], [target])
            return
        log.retain(run.lsn, 1)  # for the destination; the hidden queue releases its own
        decision.place_prepared(placed, [target])

    def _decided(self, queue: HalfQueue, half: HalfMessage, decided: HalfDecided) -> None:
        number, ledger = decided.number, queue.ledger
        queue.remove(number)
        ledger.set(number, HalfState(decided.state), decided.time, half.checks)
        undecided = ledger.undecided[half.user]
        if undecided:
            queue.holdings[half.user].shrink(HALF_BYTES * undecided)
        else:
            queue.holdings.pop(half.user).close()
        known = queue.timetable.decided
        known.append(number)
        for _ in range(min(_FORGOTTEN, len(known) - self.options.outcomes)):
            ledger.forget(known.popleft())
        if len(known) == 1:
            self._checks.arm(queue)

    # -- looking

    def at(self, vhost: str, number: int) -> HalfMessage | None:
        """Return the half message with this number, if it is known."""
        queue = self.queue(vhost)
        state = None if queue is None else queue.ledger.rows.state(number)
        return None if queue is None or state is None else HalfMessage(queue, number, state)

    def find(self, vhost: str, transaction_id: str) -> HalfMessage | None:
        """Return the half message with this transaction id, if it is known."""
        try:
            number = int(transaction_id[:_NUMBER_DIGITS], 16)
        except ValueError:
            return None
        found = self.at(vhost, number)
        return found if found is not None and found.transaction_id == transaction_id.upper() else None

    def named(self, vhost: str, topic: str, message_id: str) -> HalfMessage | None:
        """Return the half message of a topic with this message id, if it is known."""
        queue = self.queue(vhost)
        number = 0 if queue is None else queue.ledger.number(topic, message_id)
        return self.at(vhost, number) if number else None

    def with_message_id(self, vhost: str, message_id: str) -> list[HalfMessage]:
        """Return the half messages with this message id, at most one of each topic."""
        queue = self.queue(vhost)
        numbers = [] if queue is None else queue.ledger.numbers(message_id)
        return [half for number in numbers if (half := self.at(vhost, number)) is not None]

    def some(self, vhost: str, above: int, most: int) -> list[HalfMessage]:
        """Return the next half messages in order of their numbers, which are greater than `above`: at most `most`."""
        return list(islice(self.each(vhost, above), most))

    def each(self, vhost: str, above: int = 0) -> Iterator[HalfMessage]:
        """Yield half messages in order of their numbers, which are greater than `above`. They may change meanwhile."""
        queue = self.queue(vhost)
        if queue is not None:
            for number in queue.ledger.rows.numbers(above):
                if (half := self.at(vhost, number)) is not None:
                    yield half

    # -- the log

    def captured(self) -> list[CapturedHalf]:
        """Return copies of the state of all half messages, for a snapshot."""
        self._checks.record()
        found = [self.queue(vhost) for vhost in self._directory.vhosts]
        return [CapturedHalf(queue.ident, queue.ledger) for queue in found if queue is not None]

    def restore(self, queue: HalfQueue, ledger: HalfLedger) -> None:
        """Take over the half messages that recovery has found in the records."""
        rows, targets = ledger.rows, {queue.ident: queue for queue in self._directory.durable_queues()}
        for origin in ledger.origins.all():
            origin.queue = targets.get(origin.key.target)
        queue.ledger = ledger
        decided = rows.in_states(HalfState.COMMITTED, HalfState.ROLLED_BACK)
        queue.timetable.restore(rows.in_states(HalfState.PENDING), decided)
        for user, count in ledger.undecided.items():
            queue.holdings[user] = self._holdings.begin(user, queue.vhost)
            queue.holdings[user].follow(HALF_BYTES * count)
        self._checks.arm(queue)


def _check_names(message_id: str, group: str) -> None:
    """Raises INVALID_ARGUMENT if one of the texts is empty or too long."""
    for what, text in (("message id", message_id), ("producer group", group)):
        if not text or len(text) > ID_LENGTH:
            raise BrokerError(
                Condition.INVALID_ARGUMENT, f"the {what} of a half message must have 1 to {ID_LENGTH} characters"
            )

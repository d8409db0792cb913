"""All half messages of the broker: storing and deciding them, and what operators do with them (HALF-1 to HALF-12).

A half message is stored by one record and decided by one record, which may do the same for others that arrive together
with it. The record of a commit also places the message in its destination, so it is delivered exactly once; its answer
waits until that record is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import BrokerError
from escrowmq.core.half.checks import Checking
from escrowmq.core.half.deciding import HalfDecisions, HalfVerdict, unknown
from escrowmq.core.half.message import HalfMessage
from escrowmq.core.half.options import HalfOptions
from escrowmq.core.half.queue import NAME, HalfQueue
from escrowmq.core.half.state import HalfInput, HalfState, after
from escrowmq.core.half.state_records import CapturedHalf
from escrowmq.core.half.storing import HALF_BYTES, HalfArrival, HalfStorage, Stored
from escrowmq.core.records.half import HalfResumed, encode_half_resumed
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.access.holdings import Holdings
    from escrowmq.core.engine import Engine
    from escrowmq.core.half.ledger import HalfLedger
    from escrowmq.core.half.origin import HalfOrigin
    from escrowmq.core.half.producers import LiveProducer
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.directory import Directory
    from escrowmq.core.topology.vhost import VirtualHost

_NUMBER_DIGITS: Final = 16


class HalfMessages:
    """The half messages of all virtual hosts. `producers` holds those that are asked about them."""

    def __init__(self, engine: Engine, directory: Directory, holdings: Holdings) -> None:
        self._engine = engine
        self._directory = directory
        self._holdings = holdings
        self._checks = Checking(engine, directory.access, HalfOptions())
        self._checks.queue_of = self.queue
        self._storage = HalfStorage(engine, directory, holdings, self._checks, self.queue)
        self._decisions = HalfDecisions(engine, self._checks, self.queue)
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
        """Do `store_each` for one half message. Raises the error if it is refused."""
        (found,) = self.store_each(
            vhost,
            topic,
            [HalfArrival(message_id, envelope, content, queue)],
            group=group,
            user=user,
            producer=producer,
            immunity_ms=immunity_ms,
        )
        if isinstance(found, BrokerError):
            raise found
        return found

    def store_each(
        self,
        vhost: str,
        topic: str,
        arrivals: Sequence[HalfArrival],
        *,
        group: str,
        user: str,
        producer: LiveProducer | None = None,
        immunity_ms: int = 0,
    ) -> list[Stored | BrokerError]:
        """Store half messages of one topic in one record, and return the result of each. Their contents must fit into a
        record together.

        `group` is that of the producers which are asked about them; `producer` is preferred. `immunity_ms` is the least
        time before the first check. Errors are INVALID_ARGUMENT, and LIMIT_EXCEEDED if the user or the virtual host has
        too many or too large half messages, or memory or disk space is scarce.
        """
        return self._storage.store(
            vhost, topic, arrivals, group=group, user=user, producer=producer, immunity_ms=immunity_ms
        )

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

    def decide_each(self, vhost: str, verdicts: Sequence[HalfVerdict]) -> list[int | BrokerError]:
        """Commit and roll back half messages: all commits in one record, and all others in another one. Return the LSN
        or the error of each, as `commit` would.
        """
        return self._decisions.decide(vhost, verdicts)

    def origin(self, vhost: str, number: int) -> HalfOrigin | None:
        """Return what a half message shares with others of its producer, or None if it is not known."""
        queue = self.queue(vhost)
        if queue is None or queue.ledger.rows.state(number) is None:
            return None
        return queue.ledger.origins[queue.ledger.rows.origin(number)]

    # -- what operators do

    def resume(self, vhost: str, number: int) -> int:
        """Have a parked half message checked again, from the first check on. Return and errors as of `commit`."""
        queue, half = self.queue(vhost), self.at(vhost, number)
        if queue is None or half is None:
            raise unknown(vhost, number)
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

    def _decide(self, vhost: str, number: int, given: HalfInput, message_id: str) -> int:
        (found,) = self.decide_each(vhost, [HalfVerdict(number, given, message_id)])
        if isinstance(found, BrokerError):
            raise found
        return found

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

    def number(self, vhost: str, topic: str, message_id: str) -> int:
        """Return the number of the half message of a topic with this message id; 0 if none is known."""
        queue = self.queue(vhost)
        return 0 if queue is None else queue.ledger.number(topic, message_id)

    def named(self, vhost: str, topic: str, message_id: str) -> HalfMessage | None:
        """Return the half message of a topic with this message id, if it is known."""
        number = self.number(vhost, topic, message_id)
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

"""Storing half messages: those that arrive together are in one record (HALF-1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.branches.decision import Decision
from escrowmq.core.conditions import BrokerError, Condition, check_growth
from escrowmq.core.half.changes import NewHalf, Storing
from escrowmq.core.half.options import ID_LENGTH
from escrowmq.core.half.queue import NAME, HalfQueue
from escrowmq.core.records.half import OriginFields

if TYPE_CHECKING:
    from escrowmq.core.access.holdings import Holdings
    from escrowmq.core.engine import Engine
    from escrowmq.core.half.checks import Checking
    from escrowmq.core.half.origin import HalfOrigin
    from escrowmq.core.half.producers import LiveProducer
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.directory import Directory

HALF_BYTES: Final = 256
"""The estimated memory of an undecided half message, whose content is only in the log."""
_envelope = attrgetter("envelope")


class HalfArrival(NamedTuple):
    """A half message that is to be stored. `message_id` is unique in the topic; `queue` gets the message when it is
    committed.
    """

    message_id: str
    envelope: Envelope
    content: bytes
    queue: Queue


class Stored(NamedTuple):
    """A half message that was stored, by this call or, if it is `repeated`, by an earlier one with the same id. The
    answer waits until the log is synced up to `lsn`.
    """

    number: int
    lsn: int
    repeated: bool


class HalfStorage:
    """Stores half messages in the hidden queues of the virtual hosts, which are made with the first one."""

    __slots__ = ("_checks", "_directory", "_engine", "_holdings", "_queue_of")

    def __init__(
        self,
        engine: Engine,
        directory: Directory,
        holdings: Holdings,
        checks: Checking,
        queue_of: Callable[[str], HalfQueue | None],
    ) -> None:
        self._engine = engine
        self._directory = directory
        self._holdings = holdings
        self._checks = checks
        self._queue_of = queue_of

    def store(
        self,
        vhost: str,
        topic: str,
        arrivals: Sequence[HalfArrival],
        *,
        group: str,
        user: str,
        producer: LiveProducer | None,
        immunity_ms: int,
    ) -> list[Stored | BrokerError]:
        """See `HalfMessages.store_each`."""
        try:
            waiting_in = self._queue_for(vhost)
        except BrokerError as error:
            return [error] * len(arrivals)
        ledger, now = waiting_in.ledger, self._engine.now
        delay = max(self._checks.options.of(vhost, topic).timeout_ms, immunity_ms)
        label = "" if producer is None else producer.label[:ID_LENGTH]
        origins: dict[Queue, HalfOrigin] = {}
        found: list[Stored | BrokerError] = []
        fresh: list[HalfArrival] = []
        made: list[NewHalf] = []
        numbers: dict[str, int] = {}
        for arrival in arrivals:
            ident = arrival.message_id
            number = numbers.get(ident) or ledger.number(topic, ident)
            if number:
                found.append(Stored(number, 0, True))
                continue
            try:
                _check_names(ident, group)
                self._check_room(waiting_in, user, len(fresh))
            except BrokerError as error:
                found.append(error)
                continue
            number = numbers[ident] = waiting_in.next_position + len(fresh)
            origin = origins.get(arrival.queue)
            if origin is None:
                key = OriginFields(topic, group, user, label, arrival.queue.ident)
                origin = origins[arrival.queue] = ledger.origins.of(key, arrival.queue)
            fresh.append(arrival)
            made.append(NewHalf(number, ident, now, now + delay, origin))
            found.append(Stored(number, 0, False))
        if fresh:
            self._write(waiting_in, fresh, made, delay)
        lsn = self._engine.log.end_lsn
        return [each if isinstance(each, BrokerError) else each._replace(lsn=lsn) for each in found]

    def _write(self, queue: HalfQueue, fresh: list[HalfArrival], made: list[NewHalf], delay_ms: int) -> None:
        decision = Decision(self._engine)
        for envelope, some in groupby(fresh, _envelope):
            decision.place(envelope.lasting(), [arrival.content for arrival in some], [queue])
        decision.record(Storing(queue, made))
        lsn = decision.apply()
        if queue.timetable.add_each([half.number for half in made], delay_ms):
            self._checks.arm(queue)
        queue.stored(made[0].number, lsn)
        self._engine.counters.half.stored += len(made)

    def _queue_for(self, vhost: str) -> HalfQueue:
        queue = self._queue_of(vhost)
        if queue is None:
            made = self._directory.make_hidden_queue(self._directory.vhost(vhost), NAME, "half messages")
            assert isinstance(made, HalfQueue)
            return made
        return queue

    def _check_room(self, queue: HalfQueue, user: str, more: int) -> None:
        """Check that the user may have one half message more, beyond the `more` ones that are about to be stored."""
        check_growth(self._engine.scarcity, f"a half message in vhost '{queue.vhost}'")
        undecided = queue.ledger.undecided[user] + more
        if undecided >= self._checks.options.per_user:
            raise BrokerError(
                Condition.LIMIT_EXCEEDED,
                f"user '{user}' has {undecided} undecided half messages in vhost '{queue.vhost}', the limit "
                "(half_messages.per_user)",
            )
        holding = queue.holdings.get(user)
        if holding is None:
            holding = queue.holdings[user] = self._holdings.begin(user, queue.vhost)
        holding.grow(HALF_BYTES * (undecided + 1), "a half message")


def _check_names(message_id: str, group: str) -> None:
    """Raises INVALID_ARGUMENT if one of the texts is empty or too long."""
    for what, text in (("message id", message_id), ("producer group", group)):
        if not text or len(text) > ID_LENGTH:
            raise BrokerError(
                Condition.INVALID_ARGUMENT, f"the {what} of a half message must have 1 to {ID_LENGTH} characters"
            )

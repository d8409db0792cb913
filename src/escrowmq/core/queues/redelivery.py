"""Deliveries that return to their queues to be delivered again: their counts, their marks and the delivery limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.messages.marks import Marks, Modification
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.settlement import durable_positions, release
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.marking import encode_marked
from escrowmq.core.records.queue_state import encode_returned

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.dead_letters import DeadLetters
    from escrowmq.core.queues.queue import Queue

_FAILED: Final = Modification(failed=True)


class Host(Protocol):
    """The part of the engine that redelivery needs."""

    log: Log
    dead_letters: DeadLetters

    def leave(self, consumer: Consumer, count: int) -> Queue:
        """Note that the consumer has `count` unsettled deliveries fewer."""
        ...


class Redelivery:
    """Returns deliveries to their places. Those over the delivery limit of their queue are dead-lettered."""

    __slots__ = ("_host",)

    def __init__(self, host: Host) -> None:
        self._host = host

    def requeue(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Return failed deliveries to their places, marked as redelivered (ORD-2)."""
        queue = self._come_back(consumer, entries)
        if queue is None:
            return
        if queue.marks:
            marked = [entry for entry in entries if entry.position in queue.marks]
            entries = [entry for entry in entries if entry.position not in queue.marks]
            self._modify(queue, marked, _FAILED)
        limit = queue.options.delivery_limit
        if limit is not None:
            spent = [entry for entry in entries if entry.deliveries > limit]
            entries = [entry for entry in entries if entry.deliveries <= limit]
            if spent:
                self._host.dead_letters.send(queue, spent, Outcome.DELIVERY_LIMIT)
            self._record_returned(queue, entries)
        if entries:
            queue.put_back(entries)

    def modify(self, consumer: Consumer, entries: list[Entry], modification: Modification) -> None:
        """Return deliveries to their places, changed by `modification`."""
        queue = self._come_back(consumer, entries)
        if queue is not None:
            self._modify(queue, entries, modification)

    def put_back(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Return deliveries to their places as if they had not been delivered."""
        queue = self._come_back(consumer, entries, counts=False)
        if queue is not None:
            queue.put_back(entries)

    def _come_back(self, consumer: Consumer, entries: list[Entry], *, counts: bool = True) -> Queue | None:
        """Count the return of deliveries, and the deliveries if that `counts`. Return the queue that they return to, or
        None.
        """
        queue = self._host.leave(consumer, len(entries))
        if queue.is_stream:
            return None
        if queue.deleted:
            release(self._host.log, entries)
            return None
        if consumer.acquirer is not None:
            consumer.acquirer.given_back(queue, entries)
        if counts:
            for entry in entries:
                entry.deliveries += 1
        queue.counters.requeued += len(entries)
        return queue

    def _modify(self, queue: Queue, entries: list[Entry], modification: Modification) -> None:
        limit = queue.options.delivery_limit
        for entry in entries:
            # Without marks, every earlier return counts as a failed delivery.
            marks = queue.marks.get(entry.position) or Marks(entry.deliveries - 1)
            queue.marks[entry.position] = modification.applied(marks)
        if limit is not None:
            spent = [entry for entry in entries if queue.marks[entry.position].failures > limit]
            entries = [entry for entry in entries if queue.marks[entry.position].failures <= limit]
            if spent:
                self._host.dead_letters.send(queue, spent, Outcome.DELIVERY_LIMIT)
            self._record_returned(queue, entries)
        durable = [(position, queue.marks[position]) for position in durable_positions(queue, entries)]
        if durable:
            self._host.log.append(Kind.MARKED, encode_marked(queue.ident, durable))
        if entries:
            queue.put_back(entries)

    def _record_returned(self, queue: Queue, entries: list[Entry]) -> None:
        counts = [(entry.position, entry.deliveries) for entry in entries if entry.run.envelope.durable]
        if counts and queue.durable:
            self._host.log.append(Kind.RETURNED, encode_returned(queue.ident, counts))


def spent(queue: Queue, entries: list[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Split `entries` into those whose return would exceed the queue's delivery limit, and the others."""
    limit = queue.options.delivery_limit
    if limit is None or queue.is_stream or queue.deleted:
        return [], entries
    return [e for e in entries if queue.failures(e) >= limit], [e for e in entries if queue.failures(e) < limit]

"""Serving the consumers of a queue in turn. Consumers that get only some of the messages are in `selection.py`."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from escrowmq.core.queues.outcome import Outcome

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.ports import Receiver
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.host import Host
    from escrowmq.core.queues.queue import Queue

CHUNK: Final = 1000  # entries delivered to a consumer before its receiver is asked again whether it is writable
GROUP: Final = 50  # consumers that are served together
_ACCEPTED: Final = Outcome.ACCEPTED  # found sooner than a member of an enumeration


def serve_in_turn(queue: Queue, host: Host, *, whole: bool) -> bool:
    """Deliver entries of `queue`. Return False if the budget was used up before the entries or the consumers' room."""
    order, consumers, budget = queue.order, queue.consumers, host.budget
    while (waiting := len(order)) and not queue.fault:
        if budget.left <= 0 and not whole and not _passing(queue, host):
            return False
        group = consumers.next(min(waiting, GROUP))
        if len(group) > 1:
            _deal(queue, host, group, waiting)
        elif group:
            hand(queue, host, group[0], queue.take(min(group[0].room(), CHUNK)))
        else:
            budget.outpaced = budget.outpaced or (waiting > CHUNK and bool(consumers))
            break
    return True


def _passing(queue: Queue, host: Host) -> bool:
    """Return whether the first message has a TTL of 0, so that it cannot wait for the next turn."""
    head = queue.head() if queue.ttl_possible else None
    return head is not None and 0 < head.run.expires_at <= host.now


def _deal(queue: Queue, host: Host, group: list[Consumer], waiting: int) -> None:
    """Deliver one entry to each consumer in turn. Several such rounds are combined if no consumer gets less than its
    share.
    """
    if any(consumer.window and consumer.window.limit for consumer in group):
        for consumer in group:
            if consumer.room() > 0:
                hand(queue, host, consumer, queue.take(1))
        return
    size = len(group)
    share = -(-waiting // queue.consumers.in_line(group[0].priority))
    if share > 1:
        share = min(share, CHUNK // size, *(consumer.room() for consumer in group))
    entries = queue.take(share * size)
    if len(entries) % size:
        queue.consumers.defer(group, len(entries) % size)
    if not entries or host.deliveries is not None or any(consumer.auto_settle for consumer in group):
        for i, consumer in enumerate(group):
            hand(queue, host, consumer, entries[i::size])
        return
    host.budget.charge(entries, size)
    queue.note_delivered(entries)
    dealt = [(consumer, entries[i::size]) for i, consumer in enumerate(group[: len(entries)])]
    for consumer, some in dealt:
        consumer.spend(len(some))
    for receiver, deliveries in groupby(dealt, _receiver):
        if receiver is not None:
            receiver.deliver_each(list(deliveries))


def _receiver(delivery: tuple[Consumer, list[Entry]]) -> Receiver | None:
    return delivery[0].receiver


def hand(queue: Queue, host: Host, consumer: Consumer, entries: list[Entry]) -> None:
    """Deliver entries that were taken, if any."""
    if not entries:
        return
    receiver = consumer.receiver
    if receiver is None:
        raise AssertionError("a consumer without a receiver has no room")
    host.budget.charge(entries)
    if host.deliveries is not None and consumer.sight is None:  # the audit expects the order of the queue
        host.deliveries.note(queue, consumer.label, entries, settled=consumer.auto_settle)
    consumer.spend(len(entries), entries)
    if consumer.auto_settle:
        receiver.deliver(consumer, entries)
        queue.count_auto_settled(entries)
        if queue.is_stream:
            queue.counters.accepted += len(entries)
        else:
            host.settlements.add(queue, entries, _ACCEPTED)
        consumer.settled(len(entries))
        return
    queue.note_delivered(entries)
    receiver.deliver(consumer, entries)


def end_drains(queue: Queue) -> None:
    """End the drain of consumers for which no entry is left."""
    draining = queue.consumers.draining
    for consumer in list(draining):
        if consumer.draining and consumer.credit.left > 0 and queue.has_for(consumer):
            continue
        del draining[consumer]
        consumer.end_drain()

"""The state of the broker as records: what a snapshot holds, and what recovery starts from."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from escrowmq.core.message import Entry
from escrowmq.core.records import TRANSIENT, Kind, QueueState, Reference, encode_change, encode_queue_state

if TYPE_CHECKING:
    from escrowmq.core.broker import Broker
    from escrowmq.core.queue import Queue


def snapshot(broker: Broker) -> Iterator[tuple[Kind, list[bytes]]]:
    """Records that rebuild everything durable in `broker`, as (kind, parts of the payload)."""
    yield Kind.COUNTERS, [encode_change(**broker.counters())]
    for kind, fields in broker.topology_records():
        yield kind, [encode_change(**fields)]
    held = _held_by_clients(broker)
    for queue in broker.durable_queues():
        yield Kind.QUEUE_STATE, encode_queue_state(_state_of(queue, held.get(queue, [])))


def _held_by_clients(broker: Broker) -> dict[Queue, list[Entry]]:
    held: dict[Queue, list[Entry]] = {}
    for holder in broker.holders:
        for consumer, entry in holder.held():
            if not consumer.queue.keeps:
                held.setdefault(consumer.queue, []).append(entry)
    return held


def _state_of(queue: Queue, held: list[Entry]) -> QueueState:
    """References to every durable message of `queue`, in order of position."""
    entries = sorted([*held, *queue.order.in_memory()])
    references = list(_joined(entry for entry in entries if entry.run.envelope.durable))
    backlogs = queue.order.backlogs()
    for _, run, bodies in queue.escrow:
        if run.envelope.durable:
            references.append(Reference(run.first, len(bodies), run.lsn, run.index))
    deliveries = [(entry.position, entry.deliveries) for entry in entries if entry.deliveries]
    firsts, lsns, counts, indexes = array("Q"), array("Q"), array("I"), array("I")
    for backlog in backlogs:
        references.extend(reference for reference in backlog if not reference.start & TRANSIENT)
    references.sort()
    for reference in references:
        firsts.append(reference.first)
        lsns.append(reference.lsn)
        counts.append(reference.length)
        indexes.append(reference.start)
    below = queue.delivered_below
    return QueueState(queue.ident, queue.next_position, below, firsts, lsns, counts, indexes, deliveries)


def _joined(entries: Iterable[Entry]) -> Iterator[Reference]:
    """Entries in order of position, as references: neighbours in one block become one."""
    last: Reference | None = None
    for entry in entries:
        lsn, start, position = entry.run.lsn, entry.start, entry.position
        if (
            last is not None
            and last.lsn == lsn
            and last.first + last.length == position
            and last.start + last.length == start
        ):
            last = last._replace(length=last.length + 1)
            continue
        if last is not None:
            yield last
        last = Reference(position, 1, lsn, start)
    if last is not None:
        yield last

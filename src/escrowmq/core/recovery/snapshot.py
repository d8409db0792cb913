"""The state of the broker as records: what a snapshot holds, and what recovery starts from."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from escrowmq.core.messages.entry import Entry
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.marking import encode_marked
from escrowmq.core.records.queue_state import QueueState, encode_queue_state
from escrowmq.core.records.references import TRANSIENT, Reference
from escrowmq.core.records.reservations import encode_held
from escrowmq.core.reservations.reservation import ReservedColumns

if TYPE_CHECKING:
    from escrowmq.core.broker import Broker
    from escrowmq.core.queues.queue import Queue

Columns: TypeAlias = "tuple[array[int], array[int], array[int], array[int]]"
"""First positions, LSNs of blocks, counts, numbers in the blocks."""

_position = attrgetter("position")
_run = attrgetter("run")


def snapshot(broker: Broker) -> Iterator[tuple[Kind, list[bytes]]]:
    """Records that rebuild everything durable in `broker` as it is now, as (kind, parts of the payload).

    The state is taken at the call, which copies no more than it must. The records are made one by one as they are asked
    for, on any thread, while the broker goes on; only compaction must wait, since it changes where entries lie.
    """
    changes = [
        (Kind.COUNTERS, dict[str, Any](broker.directory.counters() | broker.transactions.counters())),
        *broker.directory.topology_records(),
    ]
    held = _held_by_clients(broker)
    queues = [_Taken(queue, held.get(queue, [])) for queue in broker.directory.durable_queues()]
    branches = list(broker.coordinator.records())
    return _records(changes, branches, queues)


def _records(
    changes: list[tuple[Kind, dict[str, Any]]], branches: list[tuple[Kind, list[bytes]]], queues: list[_Taken]
) -> Iterator[tuple[Kind, list[bytes]]]:
    for kind, fields in changes:
        yield kind, [encode_change(**fields)]
    yield from branches
    queues.reverse()
    while queues:
        taken = queues.pop()
        yield Kind.QUEUE_STATE, encode_queue_state(taken.state())
        if taken.marks:
            yield Kind.MARKED, [encode_marked(taken.ident, taken.marks.items())]
        for reservation in taken.reservations:
            yield Kind.HELD, encode_held(reservation.held())


def _held_by_clients(broker: Broker) -> dict[Queue, list[Entry]]:
    held: dict[Queue, list[Entry]] = {}
    for holder in broker.engine.holders:
        for consumer, entry in holder.held():
            if not consumer.queue.is_stream:
                held.setdefault(consumer.queue, []).append(entry)
    return held


class _Taken:
    """What there is of one queue."""

    def __init__(self, queue: Queue, held: list[Entry]) -> None:
        self.ident = queue.ident
        self._next_position = queue.next_position
        self._delivered_below = queue.delivered_below
        self._entries = queue.order.in_memory()
        self._held = held
        self.marks = queue.marks.copy()
        self._deliveries = queue.order.known_deliveries()
        self._unsynced = [(run, len(contents)) for _, run, contents in queue.unsynced if run.envelope.durable]
        self.reservations = [ReservedColumns(reservation) for reservation in queue.reservations.values()]
        parts = [part for reservation in queue.reservations.values() for part in reservation.parts]
        self._backlogs = [backlog.columns() for backlog in (*parts, *queue.order.backlogs())]

    def state(self) -> QueueState:
        """References to every durable message, in order of position."""
        entries = sorted((*self._held, *self._entries), key=_position)
        deliveries = [(entry.position, entry.deliveries) for entry in entries if entry.deliveries]
        deliveries.extend(self._deliveries.items())
        escrow = [Reference(run.first, count, run.lsn, run.index) for run, count in self._unsynced]
        parts = [_columns(_joined(entries)), *map(_without_transient, self._backlogs), _columns(escrow)]
        parts = [part for part in parts if part[0]]
        if self.reservations:
            parts.sort(key=lambda part: part[0][0])
        columns = _concatenated(parts)
        return QueueState(self.ident, self._next_position, self._delivered_below, *columns, deliveries)


def _columns(references: Iterable[Reference]) -> Columns:
    columns = array("Q"), array("Q"), array("I"), array("I")
    firsts, lsns, counts, indexes = columns
    for first, count, lsn, index in references:
        firsts.append(first)
        lsns.append(lsn)
        counts.append(count)
        indexes.append(index)
    return columns


def _references(columns: Columns) -> Iterator[Reference]:
    firsts, lsns, counts, indexes = columns
    return map(Reference, firsts, counts, lsns, indexes)


def _without_transient(columns: Columns) -> Columns:
    if not columns[3] or max(columns[3]) < TRANSIENT:
        return columns
    return _columns(reference for reference in _references(columns) if not reference.start & TRANSIENT)


def _concatenated(parts: list[Columns]) -> Columns:
    """One after the other if that is in order, which it is for all but priority queues; else merged."""
    if any(before[0][-1] > after[0][0] for before, after in pairwise(parts)):
        return _columns(sorted(reference for part in parts for reference in _references(part)))
    whole = _columns(())
    for part in parts:
        for column, more in zip(whole, part, strict=True):
            column.extend(more)
    return whole


def _joined(entries: list[Entry]) -> Iterator[Reference]:
    """Durable entries in order of position, as references: neighbours in one run become one."""
    for run, group in groupby(entries, _run):
        if not run.envelope.durable:
            continue
        members = list(group)
        begin = 0
        while begin < len(members):
            first = members[begin].position
            end = len(members)
            if members[-1].position - first != end - begin - 1:  # some of it is gone
                end = begin + 1
                while end < len(members) and members[end].position == first + end - begin:
                    end += 1
            yield Reference(first, end - begin, run.lsn, members[begin].start)
            begin = end

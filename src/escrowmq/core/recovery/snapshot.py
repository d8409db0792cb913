"""The state of the broker as records: the content of a snapshot, from which recovery starts."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from operator import attrgetter, sub
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from escrowmq.core.branches.branch import State
from escrowmq.core.branches.capture import BranchCaptures
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.groups.cursor import Cursor
from escrowmq.core.groups.group import Group
from escrowmq.core.groups.state_records import GroupCaptures
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.sealed import unsynced_references
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.marking import encode_marked
from escrowmq.core.records.queue_state import QueueState, encode_queue_state
from escrowmq.core.records.references import TRANSIENT, Reference
from escrowmq.core.records.reservations import encode_held
from escrowmq.core.recovery.sweep import Sweep
from escrowmq.core.reservations.reservation import ReservedColumns
from escrowmq.core.watch import ChangeWatch

if TYPE_CHECKING:
    from escrowmq.core.broker import Broker
    from escrowmq.core.ports import Holder
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.queue import Queue

Columns: TypeAlias = "tuple[array[int], array[int], array[int], array[int]]"
"""First positions, LSNs of blocks, counts, numbers in the blocks."""

PIECE: Final = 500
"""Queues in the first piece of a capture. One costs 3 to 6 microseconds."""
ENTRIES: Final = 1000
"""Entries or references that cost as much as a queue."""
VISITS: Final = 16
"""Copied runs of unacknowledged deliveries, or branches or cursors looked at, that cost as much as a queue."""
LONG: Final = 100_000
"""A queue with more messages is captured only in the last step, because each capture of it is expensive."""

_ident = attrgetter("ident")
_position = attrgetter("position")
_run = attrgetter("run")


def snapshot(broker: Broker) -> Iterator[tuple[Kind, list[bytes]]]:
    """Return records that rebuild the durable state of `broker` as of now, captured in one piece."""
    capture = Capture(broker)
    while not capture.step():
        pass
    return capture.records()


class Capture:
    """Captures the state of a broker in pieces, with turns in between. Only one capture may be active at a time.

    The result is the state at the end of the last step, as of one LSN. What changes after it was captured is captured
    again, so at the end every capture is current. This concerns queues, branches in doubt, unacknowledged deliveries
    and consumer groups. Names and termini are copied in the last step. Compaction must wait until the records have been
    written, because it changes the addresses of entries.
    """

    def __init__(self, broker: Broker, piece: int = PIECE) -> None:
        """`piece` is the size of the first piece, in queues."""
        self._broker = broker
        self._taken: dict[Queue, _Taken] = {}
        self._waiting = [queue for vhost in broker.directory.vhosts.values() for queue in vhost.every_queue()]
        self._long: list[Queue] = []
        self._piece = piece
        self._branches = BranchCaptures(broker.branches.by_xid)
        self._groups = GroupCaptures(broker.groups)
        self._sweeps: tuple[Sweep[XaBranch], Sweep[Holder], Sweep[Group | Cursor]] = (
            Sweep(self._branches.outdated, lambda branch, *_: (self._branches.take(branch), 0)),
            Sweep(self._holders, lambda holder, at, most: holder.copy_ahead(at, most)),
            Sweep(self._groups.outdated, lambda each, *_: (self._groups.take(each), 0)),
        )
        self._passes = 0
        self._records: Iterator[tuple[Kind, list[bytes]]] | None = None
        self._watch: ChangeWatch[Queue] = ChangeWatch()
        broker.engine.watches.append(self._watch)

    def step(self) -> bool:
        """Capture a piece, at the end of a turn. Return True if it was the last one.

        Pieces grow by a quarter whenever all queues, branches or deliveries have been captured and some have changed
        since. The capture therefore ends even if more change in each turn than the first piece can hold.
        """
        left = self._piece
        while left > 0 and self._more():
            queue = self._waiting.pop()
            if len(queue.order) > LONG:
                self._long.append(queue)
            else:
                left -= self._capture(queue)
        for sweep in self._sweeps:
            if left > 0:
                left -= -(-sweep.step(left * VISITS) // VISITS)
        if left <= 0:
            self._grow()
            return False
        for queue in self._long:
            self._capture(queue)
        self._finish()
        return True

    def records(self) -> Iterator[tuple[Kind, list[bytes]]]:
        """Return the records, after the last step. They are encoded one by one as they are iterated, on any thread,
        while the broker continues.
        """
        assert self._records is not None
        return self._records

    def _more(self) -> bool:
        """Return whether queues are still to be captured, including those that have changed since their capture."""
        if not self._waiting and (changed := self._watch.take()):
            self._waiting = changed
            self._piece += -(-self._piece // 4)
        return bool(self._waiting)

    def _holders(self) -> list[Holder]:
        """Return the holders of deliveries, without XA branches, which are copied otherwise."""
        return [holder for holder in self._broker.engine.holders if not isinstance(holder, XaBranch)]

    def _grow(self) -> None:
        passes = sum([max(sweep.passes - 1, 0) for sweep in self._sweeps])
        for _ in range(passes - self._passes):
            self._piece += -(-self._piece // 4)
        self._passes = passes

    def _capture(self, queue: Queue) -> int:
        """Capture a queue, and return the cost, in queues."""
        if queue.deleted or not queue.durable:
            self._taken.pop(queue, None)
            return 1
        queue.watched = True
        taken = self._taken[queue] = _Taken(queue)
        return 1 + taken.size // ENTRIES

    def _finish(self) -> None:
        broker = self._broker
        broker.engine.watches.remove(self._watch)
        behind = {"behind_ms": broker.engine.behind_ms} if broker.engine.behind_ms else {}
        numbers = broker.directory.counters() | broker.transactions.counters() | broker.termini.counters()
        numbers |= broker.groups.counters()
        counters = Kind.COUNTERS, dict[str, Any](numbers | behind)
        names = broker.directory.topology_records(_in_order(self._taken))
        branches = self._branches.finish()
        held = [copy.held for copy in branches.values() if copy.held]
        held += [
            holder.held()
            for holder in broker.engine.holders
            if not (isinstance(holder, XaBranch) and holder.state is State.PREPARED)  # their copies are in `branches`
        ]
        termini = broker.termini.captured().records()
        half = chain.from_iterable([each.records() for each in broker.half.captured()])
        self._records = _records(
            chain([counters], names),
            chain(list(broker.coordinator.progress.records()), (branch.record() for branch in branches.values())),
            self._taken,
            held,
            chain(termini, half, self._groups.finish()),
        )


def _records(
    changes: Iterable[tuple[Kind, dict[str, Any]]],
    branches: Iterable[tuple[Kind, list[bytes]]],
    queues: dict[Queue, _Taken],
    held: list[list[tuple[Consumer, list[Entry]]]],
    others: Iterable[tuple[Kind, list[bytes]]],
) -> Iterator[tuple[Kind, list[bytes]]]:
    for kind, fields in changes:
        yield kind, [encode_change(**fields)]
    yield from branches
    for consumer, entries in chain.from_iterable(held):
        taken = queues.get(consumer.queue)
        if taken is not None and not consumer.queue.is_stream:
            taken.held += entries
    for queue in _in_order(queues):
        taken = queues.pop(queue)
        yield Kind.QUEUE_STATE, encode_queue_state(taken.state())
        if taken.marks:
            yield Kind.MARKED, [encode_marked(taken.ident, taken.marks.items())]
        for reservation in taken.reservations:
            yield Kind.HELD, encode_held(reservation.held())
    yield from others


def _in_order(queues: Iterable[Queue]) -> Iterator[Queue]:
    yield from sorted(queues, key=_ident)


class _Taken:
    """The captured state of one queue."""

    def __init__(self, queue: Queue) -> None:
        self.ident = queue.ident
        self._next_position = queue.next_position
        self._delivered_below = queue.delivered_below
        self._entries = queue.order.in_memory()
        self.held: list[Entry] = []
        self.marks = queue.marks.copy()
        self._deliveries = queue.order.known_deliveries()
        self._unsynced = unsynced_references(queue)
        self.reservations = [ReservedColumns(reservation) for reservation in queue.reservations.values()]
        parts = [part for reservation in queue.reservations.values() for part in reservation.parts] + queue.locked
        self._locked = [
            (part.firsts[part.begin :], part.counts[part.begin :], part.deliveries[part.begin :])
            for part in queue.locked
        ]
        self._apart = bool(parts or self.reservations)
        self._backlogs = [backlog.columns() for backlog in (*parts, *queue.order.backlogs())]
        self.size = len(self._entries) + sum([len(columns[0]) for columns in self._backlogs])
        """The number of entries and references."""

    def state(self) -> QueueState:
        """Return references to every durable message, in order of position."""
        entries = sorted((*self.held, *self._entries), key=_position)
        deliveries = [(entry.position, entry.deliveries) for entry in entries if entry.deliveries]
        deliveries.extend(self._deliveries.items())
        for columns in self._locked:
            for first, length, count in zip(*columns, strict=True):
                if count:
                    deliveries += [(position, count) for position in range(first, first + length)]
        parts = [_entry_columns(entries), *map(_without_transient, self._backlogs), _columns(self._unsynced)]
        parts = [part for part in parts if part[0]]
        if self._apart:
            parts.sort(key=lambda part: part[0][0])
        whole = _concatenated(parts)
        return QueueState(self.ident, self._next_position, self._delivered_below, *whole, deliveries)


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
    """Concatenate the parts if that is in order, as for all queues except priority queues; otherwise merge them."""
    if any(before[0][-1] > after[0][0] for before, after in pairwise(parts)):
        return _sorted(_chained(parts))
    return _chained(parts)


def _chained(parts: list[Columns]) -> Columns:
    whole = _columns(())
    for part in parts:
        for column, more in zip(whole, part, strict=True):
            column.extend(more)
    return whole


def _sorted(columns: Columns) -> Columns:
    """In order of position. Column by column, since a priority queue may have millions of references."""
    firsts, lsns, counts, indexes = columns
    order = sorted(range(len(firsts)), key=firsts.__getitem__)
    return (
        array("Q", map(firsts.__getitem__, order)),
        array("Q", map(lsns.__getitem__, order)),
        array("I", map(counts.__getitem__, order)),
        array("I", map(indexes.__getitem__, order)),
    )


def _entry_columns(entries: list[Entry]) -> Columns:
    """References to the durable ones of `entries`, which are in order of position. Neighbours in one run become one."""
    entries = [entry for entry in entries if entry.run.envelope.durable]
    runs, positions = list(map(_run, entries)), list(map(_position, entries))
    neighbours = zip(runs, runs[1:], positions, positions[1:], strict=False)
    begins = [0] if entries else []
    begins += [
        i
        for i, (before, run, last, position) in enumerate(neighbours, 1)
        if run is not before or position != last + 1  # part of a run may be gone
    ]
    return (
        array("Q", [positions[i] for i in begins]),
        array("Q", [runs[i].lsn for i in begins]),
        array("I", map(sub, [*begins[1:], len(entries)], begins)),
        array("I", [runs[i].index + positions[i] - runs[i].first for i in begins]),
    )

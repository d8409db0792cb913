"""Recovery: the broker's state from a snapshot's records and the log's records after it (ORD-5, DUR-3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from escrowmq.core.branches.recovery import FoundBranches
from escrowmq.core.groups.recovery import FoundGroups
from escrowmq.core.half.recovery import FoundHalf
from escrowmq.core.messages.marks import MarkTable
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.records.branches import decode_decide, decode_heuristic, decode_number, decode_placed
from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.commits import decode_commit
from escrowmq.core.records.half_commits import HalfCommits
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.marking import decode_marked
from escrowmq.core.records.moves import Move, decode_moves, decode_readdressed
from escrowmq.core.records.publishing import decode_publish
from escrowmq.core.records.queue_state import decode_delivered, decode_queue_state, decode_returned
from escrowmq.core.records.references import Range, merged
from escrowmq.core.records.reservations import decode_held, decode_released
from escrowmq.core.records.settling import decode_settle
from escrowmq.core.reservations.recovery import FoundReservations
from escrowmq.core.termini.recovery import FoundTermini

if TYPE_CHECKING:
    from escrowmq.core.broker import Broker
    from escrowmq.core.messages.marks import Marks
    from escrowmq.core.queues.queue import Queue

Payload = bytes | memoryview


class RecoveryError(Exception):
    """The log holds a record that this version cannot apply. The text names the record and its LSN."""


class _Found:
    """The state of one queue as found in the records."""

    __slots__ = (
        "delivered_below",
        "deliveries",
        "marks",
        "moved",
        "next_position",
        "references",
        "reservations",
        "settled",
    )

    def __init__(self) -> None:
        self.references = Backlog()
        self.settled: list[Range] = []
        self.moved: dict[int, tuple[int, int]] = {}  # by position: LSN of the block, number in it
        self.deliveries: dict[int, int] = {}
        self.marks: dict[int, Marks] = {}
        self.delivered_below = 0
        self.next_position = 1
        self.reservations = FoundReservations()


class Recovery:
    """Applies records in order; `finish` hands the result to the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._found: dict[int, _Found] = {}
        self._branches = FoundBranches(broker)
        self._termini = FoundTermini(broker)
        self._half = FoundHalf(broker)
        self._half_commits = HalfCommits()
        self._groups = FoundGroups(broker)
        self._handlers: dict[int, Callable[[int, Payload], None]] = {
            Kind.PUBLISH: self._publish,
            Kind.SETTLE: self._settle,
            Kind.COMMIT: self._commit,
            Kind.RELOCATE: self._relocate,
            Kind.READDRESSED: self._readdressed,
            Kind.RETURNED: self._returned,
            Kind.MARKED: self._marked,
            Kind.DELIVERED: self._delivered,
            Kind.QUEUE_STATE: self._queue_state,
            Kind.HELD: self._held,
            Kind.RELEASED: self._released,
            Kind.PLACED: self._placed,
            Kind.PREPARE: self._branches.prepared,
            Kind.ROLLBACK: self._over,
            Kind.FORGET: self._over,
            Kind.HEURISTIC: self._heuristic,
            Kind.DECIDE: self._decide,
            Kind.TERMINUS_SET: self._termini.set,
            Kind.TERMINUS_DELETED: self._termini.deleted,
            Kind.ARRIVED: self._termini.arrived,
            Kind.FORGOTTEN: self._termini.forgotten,
            Kind.ACQUIRED: self._acquired,
            Kind.GIVEN_BACK: self._termini.given_back,
            Kind.HALF_STORED: self._half.stored,
            Kind.HALF_DECIDED: self._half.decided,
            Kind.HALF_CHECKED: self._half.checked,
            Kind.HALF_PARKED: self._half.parked,
            Kind.HALF_RESUMED: self._half.resumed,
            Kind.HALF_STATE: self._half.state,
            Kind.GROUP_SET: self._groups.set,
            Kind.GROUP_DELETED: self._groups.deleted,
            Kind.GROUP_LEASED: self._groups.leased,
            Kind.GROUP_SETTLED: self._groups.settled,
            Kind.GROUP_PROGRESS: self._groups.progress,
            Kind.GROUP_LOCKED: self._groups.locked,
            Kind.PROGRESS: self._progress,
            Kind.PROGRESS_OWNED: self._progress_owned,
            Kind.PROGRESS_RESET: self._progress_reset,
            Kind.COUNTERS: self._counters,
            Kind.QUEUE_DELETED: self._queue_deleted,
            Kind.VHOST_DELETED: self._vhost_deleted,
        }

    def apply(self, lsn: int, kind: int, payload: Payload) -> None:
        """Apply one record. Raises RecoveryError for an unknown kind."""
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(lsn, payload)
        elif kind in (Kind.PAGE, Kind.DELIVERIES, Kind.OPERATED, Kind.DIGEST, Kind.REMOVED):
            return
        elif kind in Kind._value2member_map_:
            self._broker.directory.restore(Kind(kind), decode_change(payload))
        else:
            raise RecoveryError(f"record at LSN {lsn} is of kind {kind}, which this version does not know")

    def _of(self, queue: int) -> _Found:
        found = self._found.get(queue)
        if found is None:
            found = self._found[queue] = _Found()
        return found

    def _publish(self, lsn: int, payload: Payload) -> None:
        publish = decode_publish(payload)
        for target in publish.targets:
            found = self._of(target.queue)
            found.references.append(target.first, publish.length, lsn + publish.block, 0)
            found.next_position = target.first + publish.length

    def _settle(self, lsn: int, payload: Payload) -> None:
        settle = decode_settle(payload)
        self._of(settle.queue).settled += settle.ranges

    def _commit(self, lsn: int, payload: Payload) -> None:
        half = self._half_commits.decode(payload)
        if half is not None:
            found = self._of(half.queue)
            found.references.append(half.number, 1, lsn + half.block, 0)
            found.next_position = half.number + 1
            self._half.add(half.queue, half.number, half.born, half.due, half.ident, half.origin)
            return
        branch, operations = decode_commit(payload)
        self._branches.over(branch)
        self._do(lsn, operations)

    def _do(self, lsn: int, operations: Iterable[tuple[Kind, int, Payload]]) -> None:
        published: Payload = b""
        for kind, offset, operation in operations:
            if kind == Kind.ARRIVED:
                self._termini.arrived(lsn + offset, operation, published)
                continue
            self._handlers[kind](lsn + offset, operation)
            if kind == Kind.PUBLISH:
                published = operation

    def _placed(self, lsn: int, payload: Payload) -> None:
        placed = decode_placed(payload)
        for target in placed.targets:
            found = self._of(target.queue)
            found.references.append(target.first, placed.length, placed.lsn, 0)
            found.next_position = target.first + placed.length

    def _over(self, lsn: int, payload: Payload) -> None:
        self._branches.over(decode_number(payload))

    def _heuristic(self, lsn: int, payload: Payload) -> None:
        commit, number, operations = decode_heuristic(payload)
        self._branches.forced(number, commit=commit)
        self._do(lsn, operations)

    def _decide(self, lsn: int, payload: Payload) -> None:
        decided = decode_decide(payload)
        self._broker.coordinator.progress.restore(decided.application, decided.epoch)
        for number in decided.rolled_back:
            self._branches.over(number)
        for number, operations in decided.committed:
            self._branches.over(number)
            self._do(lsn, operations)

    def _progress(self, lsn: int, payload: Payload) -> None:
        fields = decode_change(payload)
        self._broker.coordinator.progress.restore(fields["application"], fields["epoch"], fields.get("user", ""))

    def _progress_owned(self, lsn: int, payload: Payload) -> None:
        self._broker.coordinator.progress.restore_owner(**decode_change(payload))

    def _progress_reset(self, lsn: int, payload: Payload) -> None:
        self._broker.coordinator.progress.restore_reset(**decode_change(payload))

    def _counters(self, lsn: int, payload: Payload) -> None:
        fields = decode_change(payload)
        self._broker.transactions.seen(fields.pop("next_branch", 1) - 1)
        self._broker.termini.seen(fields.pop("next_terminus", 1) - 1)
        self._broker.groups.seen(fields.pop("next_group", 1) - 1)
        self._broker.engine.behind_ms = fields.pop("behind_ms", self._broker.engine.behind_ms)
        if fields:
            self._broker.directory.restore(Kind.COUNTERS, fields)

    def _relocate(self, lsn: int, payload: Payload) -> None:
        moves, offset = decode_moves(payload)
        self._move(moves, lsn + offset)

    def _readdressed(self, lsn: int, payload: Payload) -> None:
        self._move(*decode_readdressed(payload))

    def _move(self, moves: list[Move], block: int) -> None:
        for move in moves:
            moved = self._of(move.queue).moved
            for position, start in zip(move.positions, move.starts, strict=True):
                moved[position] = (block, start)

    def _returned(self, lsn: int, payload: Payload) -> None:
        queue, counts = decode_returned(payload)
        self._of(queue).deliveries.update(counts)

    def _marked(self, lsn: int, payload: Payload) -> None:
        queue, marks = decode_marked(payload)
        self._of(queue).marks.update(marks)

    def _delivered(self, lsn: int, payload: Payload) -> None:
        queue, below = decode_delivered(payload)
        found = self._of(queue)
        found.delivered_below = max(found.delivered_below, below)
        found.next_position = max(found.next_position, below)  # lost transient messages had positions too

    def _held(self, lsn: int, payload: Payload) -> None:
        held = decode_held(payload)
        found = self._of(held.queue)
        below = found.reservations.held(held)
        found.delivered_below = max(found.delivered_below, below)
        found.next_position = max(found.next_position, below)  # as in DELIVERED

    def _released(self, lsn: int, payload: Payload) -> None:
        released = decode_released(payload)
        found = self._of(released.queue)
        found.deliveries.update(found.reservations.released(released))

    def _acquired(self, lsn: int, payload: Payload) -> None:
        queue, below = self._termini.acquired(lsn, payload)
        found = self._of(queue)
        found.delivered_below = max(found.delivered_below, below)
        found.next_position = max(found.next_position, below)  # as in DELIVERED

    def _queue_state(self, lsn: int, payload: Payload) -> None:
        state = decode_queue_state(payload)
        found = self._of(state.queue)
        found.next_position = state.next_position
        found.delivered_below = state.delivered_below
        found.deliveries.update(state.deliveries)
        references = found.references
        references.firsts, references.lsns = state.firsts, state.lsns
        references.counts, references.indexes = state.counts, state.indexes
        references.messages = sum(state.counts)

    def _vhost_deleted(self, lsn: int, payload: Payload) -> None:
        fields = decode_change(payload)
        self._branches.vhost_deleted(fields["name"])
        self._groups.vhost_deleted(fields["name"])
        self._broker.coordinator.progress.restore_vhost_deleted(fields["name"])
        self._broker.directory.restore(Kind.VHOST_DELETED, fields)

    def _queue_deleted(self, lsn: int, payload: Payload) -> None:
        fields = decode_change(payload)
        self._found.pop(fields["id"], None)
        self._half.queue_deleted(fields)
        self._groups.queue_deleted(fields["id"])
        self._broker.directory.restore(Kind.QUEUE_DELETED, fields)

    def finish(self) -> None:
        """Fill the queues, and find the messages that branches in doubt lock in them."""
        self._branches.begin()
        self._broker.directory.policies.restored()
        for queue in self._broker.directory.durable_queues():
            found = self._found.get(queue.ident)
            if found is not None:
                self._fill(queue, found)
        self._branches.finish()
        self._termini.finish()
        self._half.finish()
        self._groups.finish()

    def _fill(self, queue: Queue, found: _Found) -> None:
        references = found.references
        found.reservations.complete(references)
        references.remove(merged(found.settled))
        if found.moved:
            references.move(found.moved)
        queue.next_position = queue.restored_below = found.next_position
        queue.delivered_below = queue.delivered_recorded = found.delivered_below
        queue.logged = True
        _, lsns, counts, _ = references.columns()
        self._broker.log.retain_each(lsns, counts)
        queue.marks = MarkTable({position: marks for position, marks in found.marks.items() if position in references})
        self._branches.lock(queue, references, found.deliveries)
        found.reservations.restore(queue, references, self._broker.engine.now)
        self._termini.lock(queue, references, found.deliveries)
        if queue.options.max_length_bytes is not None:
            self._broker.engine.unavailable.measure(queue, references)
        deliveries = {position: count for position, count in found.deliveries.items() if position in references}
        queue.order.restore(references, deliveries, found.delivered_below)
        queue.recovered()

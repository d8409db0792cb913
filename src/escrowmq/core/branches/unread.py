"""The work of prepared branches whose messages could not be read when the broker started (DTX-8, DUR-4).

Such a branch stays in doubt. Its messages stay locked or withheld, as references without content. The branch commits
as soon as they can be read. A rollback needs no content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from escrowmq.core.branches import preparation
from escrowmq.core.branches.branch import Settlement, State
from escrowmq.core.branches.preparation import promise_outcome, promise_room
from escrowmq.core.branches.resolution import BranchEffects
from escrowmq.core.branches.xa_branch import LoggedContents, PreparedRun
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.branches import ADDRESS, Item, SettlementItem, encode_route, encode_settlement, run_head
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.queue_state import encode_returned
from escrowmq.core.records.references import Range, Reference, merged
from escrowmq.core.records.termini import NumberedRange
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.reservations.reservation import Part
from escrowmq.core.termini.locks import locked_pieces

if TYPE_CHECKING:
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.queues.availability import Unavailable
    from escrowmq.core.queues.backlog import Backlog
    from escrowmq.core.queues.outcome import Disposition
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.records.branches import Prepared, RunItem


class UnreadHost(preparation.Host, Protocol):
    """The part of the engine that unread work needs."""

    unavailable: Unavailable


class _Locked(NamedTuple):
    """Messages of one queue that are settled in the branch, and the number of settlements before this one."""

    before: int
    queue: Queue
    part: Part
    disposition: Disposition
    deliveries: dict[int, int]


class _Withheld(NamedTuple):
    """Messages that the branch publishes, and the number of runs before this one."""

    before: int
    item: RunItem
    queues: tuple[Queue, ...]


class UnreadWork:
    """All work of one branch that could not be read. It is read together, or not at all."""

    def __init__(self, engine: UnreadHost, branch: XaBranch, found: Prepared) -> None:
        self._engine = engine
        self._branch = branch
        self._found = found
        self._locked: list[_Locked] = []
        self._withheld: list[_Withheld] = []
        self.queues: Mapping[int, Queue] = {}  # all durable ones, by id

    def reason(self, error: LogUnreadable) -> LogUnreadable:
        """Return the error with the name of the branch."""
        return LogUnreadable(f"{self._branch.title} is in doubt, and its messages cannot be read: {error}")

    def lock(
        self,
        queue: Queue,
        references: Backlog,
        ranges: Sequence[Range],
        disposition: Disposition,
        deliveries: dict[int, int],
    ) -> None:
        """Add settled messages of `queue`, those in `ranges`. `references` hold all messages of the queue, and
        `deliveries` tells, by position, how often messages were delivered.
        """
        part = Part()
        for first, length in ranges:
            for piece in locked_pieces(queue, NumberedRange(0, first, length), references, deliveries):
                part.append(*piece.reference)
                part.numbers.append(0)
                part.deliveries.append(piece.deliveries)
        queue.locked.append(part)
        queue.unsettled += len(part)
        known = {position: deliveries[position] for position in _positions(part) if position in deliveries}
        before = len(self._branch.settlements) + len(self._locked)
        self._locked.append(_Locked(before, queue, part, disposition, known))

    def withhold(self, item: RunItem, queues: tuple[Queue, ...]) -> None:
        """Add published messages. The log retains them."""
        self._withheld.append(_Withheld(len(self._branch.runs) + len(self._withheld), item, queues))

    @property
    def settled(self) -> list[tuple[Queue, int]]:
        """Return the queues of settled messages, with their numbers."""
        return [(locked.queue, len(locked.part)) for locked in self._locked]

    @property
    def published(self) -> list[tuple[Queue, int]]:
        """Return the queues of published messages, with their numbers."""
        return [(queue, withheld.item.length) for withheld in self._withheld for queue in withheld.queues]

    # -- reading

    def read(self) -> None:
        """Read everything, so that the branch can commit. Raises LogUnreadable; nothing has changed then."""
        engine, branch, found = self._engine, self._branch, self._found
        entries = [load_entries(engine, each.queue, list(each.part), each.deliveries) for each in self._locked]
        for each in self._withheld:
            engine.pager.load(Reference(0, each.item.length, each.item.lsn, 0))
        for locked, some in zip(self._locked, entries, strict=True):
            if not locked.queue.deleted:
                _unlock(locked)
                settlement = Settlement(locked.queue.getter, some, locked.disposition)
                branch.settlements.insert(locked.before, settlement)
                branch.settled_in[locked.queue] = None
        for each in self._withheld:
            load_run(engine, branch, found, each.item, each.queues, each.before)
        branch.unread = None
        complete(engine, branch, found, self.queues)

    def retry(self) -> None:
        """Read everything, unless that has happened or the branch is decided. Raises as `read`."""
        if self._branch.unread is self and self._branch.state is State.PREPARED:
            try:
                self.read()
            except LogUnreadable as error:
                raise self.reason(error) from error

    # -- rollback

    def drop(self) -> None:
        """Release the published messages in the log: the branch is rolled back."""
        for each in self._withheld:
            self._engine.log.release(each.item.lsn, each.item.length * max(len(each.queues), 1))
        self._withheld.clear()

    def give_back(self) -> None:
        """Return the settled messages to their places, without reading them. Each counts as delivered once more."""
        for locked in self._locked:
            queue, part = locked.queue, locked.part
            if queue.deleted:
                continue
            _unlock(locked)
            references = list(part)
            self._engine.leave(queue.getter, len(part))
            counts = {position: locked.deliveries.get(position, 0) + 1 for position in _positions(part)}
            if queue.options.delivery_limit is not None:
                self._engine.log.append(Kind.RETURNED, encode_returned(queue.ident, counts.items()))
            queue.take_back(references, counts, 0)
            if queue.limited:
                self._engine.unavailable.measure(queue, references)
        self._locked.clear()

    # -- snapshots

    def settlement_items(self) -> list[tuple[int, list[tuple[Item, Sequence[bytes]]]]]:
        """Return items for the settled messages, with the number of settlements before them."""
        found: list[tuple[int, list[tuple[Item, Sequence[bytes]]]]] = []
        for locked in self._locked:
            if not locked.queue.deleted:
                ranges = merged(Range(reference.first, reference.length) for reference in locked.part)
                requeue = locked.disposition.returns
                outcome = Outcome.REJECTED if requeue else Outcome[locked.disposition.name]
                item = SettlementItem(locked.queue.ident, outcome, ranges, requeue)
                routes = [encode_route(route) for route in self._found.routes if route.queue == locked.queue.ident]
                found.append((locked.before, [encode_settlement(item), *routes]))
        return found

    def run_items(self) -> list[tuple[int, tuple[Item, Sequence[bytes]]]]:
        """Return items for the published messages, each with the number of runs before it."""
        found: list[tuple[int, tuple[Item, Sequence[bytes]]]] = []
        for before, item, queues in self._withheld:
            head = run_head([queue.ident for queue in queues if not queue.deleted], mandatory=item.mandatory)
            found.append((before, (Item.ADDRESSED_RUN, [head, ADDRESS.pack(item.lsn, item.length)])))
        return found


def _positions(part: Part) -> Iterator[int]:
    return (position for first, length, _, _ in part for position in range(first, first + length))


def _unlock(locked: _Locked) -> None:
    locked.queue.change()
    locked.queue.locked.remove(locked.part)


def load_entries(
    engine: UnreadHost, queue: Queue, references: Sequence[Reference], deliveries: Mapping[int, int]
) -> list[Entry]:
    """Read messages of `queue`. Raises LogUnreadable."""
    entries: list[Entry] = []
    for reference in references:
        block = engine.pager.load(reference)
        expires_at = queue.expiry(block.envelope, block.time)
        run = Run(block.envelope, reference.first, block.time, reference.lsn, reference.start, expires_at)
        for position, content in enumerate(block.contents, reference.first):
            entry = Entry(position, content, run)
            entry.deliveries = deliveries.get(position, 0)  # the present delivery counts if the entry returns
            entries.append(entry)
    return entries


def load_run(
    engine: UnreadHost,
    branch: XaBranch,
    found: Prepared,
    item: RunItem,
    queues: tuple[Queue, ...],
    index: int | None = None,
) -> None:
    """Restore messages that the branch publishes to `queues`, as run number `index` (None: the last one). Raises
    LogUnreadable.
    """
    block = engine.pager.load(Reference(0, item.length, item.lsn, 0))
    retained = item.length * max(len(queues), 1)
    size = sum(map(len, block.contents))
    contents = LoggedContents(engine.pager, item.lsn, item.length)
    run = PreparedRun(block.envelope, contents, queues, item.mandatory, block.time, item.lsn, retained, size=size)
    branch.runs.insert(len(branch.runs) if index is None else index, run)
    promise_room(engine, run)
    if found.belongs is None:
        branch.concern(block.envelope.exchange, queues)


def complete(engine: UnreadHost, branch: XaBranch, found: Prepared, queues: Mapping[int, Queue]) -> None:
    """Restore what depends on the whole work of the branch: where its dead letters go, and the size of its outcome."""
    _restore_routes(branch, found, queues)
    if branch.state is State.PREPARED:
        settled = sum(len(settlement.entries) for settlement in branch.settlements) + len(branch.reservations)
        decision = BranchEffects(engine, branch, branch.runs).decision
        promise_outcome(engine, branch, decision.outcome_bytes(settled, read=False))


def _restore_routes(branch: XaBranch, found: Prepared, queues: Mapping[int, Queue]) -> None:
    """Restore where the branch's dead letters go. A branch that an older version prepared has not settled it."""
    for route in found.routes:
        targets = tuple(queues[ident] for ident in route.targets if ident in queues)
        positions = {position for first, length in route.ranges for position in range(first, first + length)}
        for settlement in branch.settlements:
            if settlement.consumer.queue.ident == route.queue:
                routes = settlement.routes = settlement.routes or {}
                routes.update({e.position: targets for e in settlement.entries if e.position in positions})

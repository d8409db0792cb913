"""The preparation of a large branch: one PREPARE record, but made and applied in pieces with turns in between (DTX-8).

As in `large_commit`, `gather` changes nothing and can be given up, `write` is one step, and `complete` does the rest.
The caller makes sure that the branch is the same when it is written as it was when it was gathered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from escrowmq.core.branches.branch import RETURN, Settlement, State
from escrowmq.core.branches.decision import OutcomeSize, check_totals
from escrowmq.core.branches.large_effects import PIECE
from escrowmq.core.branches.preparation import (
    KEEP_BYTES,
    check_outcome,
    check_record,
    head_of,
    items_of,
    lasting,
    owner_item,
    promise_outcome,
    reservation_items,
    routes_of,
)
from escrowmq.core.branches.resolution import divided
from escrowmq.core.branches.xa_branch import LoggedContents, Origin, PreparedRun
from escrowmq.core.leftover import freed
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.blocks import encode_block
from escrowmq.core.records.branches import ITEM, Item, encode_prepare, run_head
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import Publication
    from escrowmq.core.branches.preparation import Host
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.queue import Queue

_PART: int = 1024 * 1024
_ALIKE: int = 20  # messages of a run that cost one unit of the budget
_SETTLED: int = 4  # deliveries that do


class LargePreparation:
    """The step from an active to a prepared branch, which has much work."""

    def __init__(self, engine: Host, branch: XaBranch) -> None:
        self._engine = engine
        self._branch = branch
        self._time = engine.now
        self._origin = Origin()
        self._head = len(b"".join(encode_prepare(head_of(branch, State.PREPARED, 0), [])[0]))
        self._full: list[bytes] = []
        self._part = bytearray()
        self._size = self._head
        self._items = 0
        self._runs: list[PreparedRun] = []
        self._settlements: list[Settlement] = []
        self._left: list[tuple[Consumer, int]] = []
        self._outcome = OutcomeSize()
        self._wanted: dict[Queue, list[int]] = {}
        self._retained = 0
        self.kept_bytes = 0
        """Bytes of the published messages that stay in memory."""

    # -- the first phase

    def gather(self) -> Iterator[None]:
        """Encode the record, and yield whenever the turn's budget is used up."""
        requests = self._engine.requests
        for cost in self._pieces():
            requests.left -= cost
            if requests.left <= 0:
                yield

    def _pieces(self) -> Iterator[int]:
        for publication in self._branch.publications:
            yield self._publish(publication)
        for settlement in self._branch.settlements:
            yield from self._settle(settlement)

    def _publish(self, publication: Publication) -> int:
        envelope, contents, queues = publication.envelope, publication.contents, publication.queues
        if any(queue.persists_all for queue in queues):
            envelope = envelope.lasting()
        run = PreparedRun(envelope, contents, queues, publication.mandatory, self._time, size=sum(map(len, contents)))
        self._runs.append(run)
        for queue in queues:
            total = self._wanted.setdefault(queue, [0, 0])
            total[0] += len(contents)
            total[1] += run.size
        durable = [queue.ident for queue in lasting(run)]
        if durable or (run.mandatory and envelope.durable):  # the commit returns it, also after a restart
            head = run_head(durable, mandatory=run.mandatory)
            run.offset = self._add(Item.RUN, [head, *encode_block(run.time, envelope, contents)]) + len(head)
            run.origin = self._origin
            run.retained = len(contents) * max(len(durable), 1)
            self._retained += run.retained
            if run.size > KEEP_BYTES:
                run.contents = LoggedContents(self._engine.pager, run.offset, len(contents), self._origin)
        if run.size <= KEEP_BYTES:
            self.kept_bytes += run.size
        self._outcome.place(envelope, contents, queues)
        return 2 + len(queues) + len(contents) // _ALIKE

    def _settle(self, settlement: Settlement) -> Iterator[int]:
        engine, queue, all_entries = self._engine, settlement.consumer.queue, settlement.entries
        routes: dict[int, tuple[Queue, ...]] = {}
        prepared = Settlement(queue.getter, all_entries, settlement.disposition, RETURN, routes)
        prepared.modification = settlement.modification
        for begin in range(0, len(all_entries), PIECE):
            some = all_entries[begin : begin + PIECE]
            part = Settlement(queue.getter, some, settlement.disposition, RETURN, None, settlement.modification)
            part.routes = routes_of(engine, part)
            routes.update(part.routes)
            outcome, leaving, _ = divided(settlement, some)
            if outcome is not Outcome.ACCEPTED and leaving and not (queue.is_stream or queue.deleted):
                engine.dead_letters.place_routed(self._outcome, queue, leaving, outcome, part.routes)
            for kind, payload in items_of(part):
                self._add(kind, payload)
            yield 1 + (len(some) // _SETTLED if outcome is Outcome.ACCEPTED else len(some))
        self._settlements.append(prepared)
        self._left.append((settlement.consumer, len(all_entries)))

    def _add(self, kind: Item, payload: Sequence[bytes]) -> int:
        """Add an item. Return the offset of its payload in the record."""
        part = self._part
        if len(part) > _PART:
            self._full.append(bytes(part))
            part.clear()
        size = sum(map(len, payload))
        part += ITEM.pack(kind, size)
        for some in payload:
            part += some
        offset = self._size + ITEM.size
        self._size = offset + size
        self._items += 1
        return offset

    # -- the second phase

    def check(self) -> None:
        """Check everything that could prevent a commit. Raises as `Preparation.check`. `gather` must have ended in this
        turn.
        """
        branch = self._branch
        check_totals(self._wanted)
        for work in branch.reservations:
            work.check()
        self._outcome.check(branch.operations)
        check_outcome(self._engine, branch, self._outcome.bytes(branch.operations))
        for kind, payload in (*reservation_items(branch), owner_item(branch)):
            self._add(kind, payload)
        check_record(self._size)

    def write(self) -> int:
        """Write the record. Return the LSN up to which the log must be synced before the answer. `check` must have
        succeeded in this turn.
        """
        engine, branch, log = self._engine, self._branch, self._engine.log
        head = encode_prepare(head_of(branch, State.PREPARED, engine.now), [], self._items)[0]
        lsn = self._origin.lsn = log.append(Kind.PREPARE, *head, *self._full, bytes(self._part))
        if self._retained:
            log.retain(lsn, self._retained)
        promise_outcome(engine, branch, self._outcome.bytes(branch.operations))
        for queue, (count, size) in self._wanted.items():
            before = engine.promised.get(queue, (0, 0))
            engine.promised[queue] = (before[0] + count, before[1] + size)
        branch.prepared_at = engine.now
        branch.runs = self._runs
        engine.left_over.add(freed(branch.publications))
        branch.publications = []
        branch.settlements = self._settlements
        for work in branch.reservations:
            work.pledge(branch.number)
        return log.end_lsn

    def complete(self) -> Iterator[None]:
        """Restore the consumers' credit, and yield whenever the turn's budget is used up."""
        requests = self._engine.requests
        for consumer, count in self._left:
            queue = self._engine.leave(consumer, count)
            queue.unsettled += count
            requests.left -= 1
            if requests.left <= 0:
                yield

"""Recovery of branches in doubt, with their locked and their withheld messages (DTX-8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from escrowmq.core.branches.branch import Settlement, State
from escrowmq.core.branches.preparation import promise_outcome, promise_room
from escrowmq.core.branches.resolution import BranchEffects
from escrowmq.core.branches.xa_branch import LoggedContents, PreparedRun
from escrowmq.core.branches.xid import Xid
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.branches import Prepared, SettlementItem, decode_prepare
from escrowmq.core.records.references import Range, Reference, merged
from escrowmq.core.reservations.reservation import ReservationSettlement

if TYPE_CHECKING:
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.broker import Broker
    from escrowmq.core.queues.backlog import Backlog
    from escrowmq.core.queues.queue import Queue

Payload = bytes | memoryview


class FoundBranches:
    """Prepared branches found in the records, by number."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._found: dict[int, Prepared] = {}
        self._branches: dict[int, XaBranch] = {}
        self._locks: dict[int, list[tuple[int, SettlementItem]]] = {}

    # -- while records are applied

    def prepared(self, lsn: int, payload: Payload) -> None:
        """Apply a PREPARE record."""
        found = decode_prepare(payload, lsn)
        self._broker.transactions.seen(found.number)
        self._found[found.number] = found

    def over(self, number: int) -> None:
        """Remove a branch that was committed, rolled back or forgotten."""
        self._broker.transactions.seen(number)
        self._found.pop(number, None)

    def forced(self, number: int, *, commit: bool) -> None:
        """Note that an operator has decided the branch."""
        state = State.HEURISTIC_COMMITTED if commit else State.HEURISTIC_ROLLED_BACK
        self._found[number] = self._found[number]._replace(state=state, runs=[], settlements=[], reservations=())

    def vhost_deleted(self, vhost: str) -> None:
        """Remove the branches of a deleted virtual host. Older versions did not roll them back first."""
        for number in [number for number, found in self._found.items() if found.vhost == vhost]:
            del self._found[number]

    # -- at the end

    def begin(self) -> None:
        """Restore the branches, after all records have been applied."""
        for number, found in self._found.items():
            self._branches[number] = self._broker.branches.restore(found, Xid.decode(found.xid))
            for item in found.settlements:
                self._locks.setdefault(item.queue, []).append((number, item))

    def lock(self, queue: Queue, references: Backlog, deliveries: dict[int, int]) -> None:
        """Take the messages that branches have settled out of `references`, which hold all messages of the queue."""
        locks = self._locks.pop(queue.ident, ())
        for number, item in locks:
            entries: list[Entry] = []
            for reference in _within(references, item.ranges):
                block = self._broker.engine.pager.load(reference)
                expires_at = queue.expiry(block.envelope, block.time)
                run = Run(block.envelope, reference.first, block.time, reference.lsn, reference.start, expires_at)
                for position, content in enumerate(block.contents, reference.first):
                    entry = Entry(position, content, run)
                    entry.deliveries = deliveries.get(position, 0)  # the present delivery counts if the entry returns
                    entries.append(entry)
            queue.unsettled += len(entries)
            disposition = Disposition.MODIFIED if item.requeue else Disposition[item.outcome.name]
            self._branches[number].settlements.append(Settlement(queue.getter, entries, disposition))
        references.remove(merged(some for _, item in locks for some in item.ranges))

    def finish(self) -> None:
        """Find the queues of the branches' messages, after the queues have been filled."""
        broker = self._broker
        queues = {queue.ident: queue for queue in broker.directory.durable_queues()}
        for number, found in self._found.items():
            branch = self._branches[number]
            if found.belongs is None:
                _infer_concerns(branch, found, queues)
            for item in found.reservations:
                queue = queues.get(item.queue)
                reservation = None if queue is None else queue.reservations.get(item.group)
                if reservation is not None:
                    work = ReservationSettlement(reservation, item.first)
                    work.pledge(number)
                    branch.reservations.append(work)
            for run in found.runs:
                block = broker.engine.pager.load(Reference(0, run.length, run.lsn, 0))
                targets = tuple(queues[ident] for ident in run.queues if ident in queues)
                retained = run.length * max(len(targets), 1)
                broker.log.retain(run.lsn, retained)
                contents = LoggedContents(broker.engine.pager, run.lsn, run.length)
                size = sum(map(len, block.contents))
                branch.runs.append(
                    PreparedRun(
                        block.envelope, contents, targets, run.mandatory, block.time, run.lsn, retained, size=size
                    )
                )
                promise_room(broker.engine, branch.runs[-1])
                if found.belongs is None:
                    branch.concern(block.envelope.exchange, targets)
            _restore_routes(branch, found, queues)
            if branch.state is State.PREPARED:
                settled = sum(len(settlement.entries) for settlement in branch.settlements) + len(branch.reservations)
                decision = BranchEffects(broker.engine, branch, branch.runs).decision
                promise_outcome(broker.engine, branch, decision.outcome_bytes(settled, read=False))


def _infer_concerns(branch: XaBranch, found: Prepared, queues: Mapping[int, Queue]) -> None:
    """Note the queues that the branch settles, from a record of a version that did not name them."""
    for ident in (*(item.queue for item in found.settlements), *(item.queue for item in found.reservations)):
        if ident in queues:
            branch.concerns.add("queue", queues[ident].name, "read")


def _restore_routes(branch: XaBranch, found: Prepared, queues: Mapping[int, Queue]) -> None:
    """Restore where the branch's dead letters go. A branch that an older version prepared has not settled it."""
    for route in found.routes:
        targets = tuple(queues[ident] for ident in route.targets if ident in queues)
        positions = {position for first, length in route.ranges for position in range(first, first + length)}
        for settlement in branch.settlements:
            if settlement.consumer.queue.ident == route.queue:
                routes = settlement.routes = settlement.routes or {}
                routes.update({e.position: targets for e in settlement.entries if e.position in positions})


def _within(references: Backlog, ranges: list[Range]) -> list[Reference]:
    """Return the parts of `references` that lie in `ranges`, in order."""
    found: list[Reference] = []
    for first, length in ranges:
        i = references.find(first)
        while i is not None and i < references.end and references.at(i).first < first + length:
            begin, count, lsn, start = references.at(i)
            at, end = max(first, begin), min(first + length, begin + count)
            if at < end:
                found.append(Reference(at, end - at, lsn, start + at - begin))
            i += 1
    return found

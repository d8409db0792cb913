"""Recovery of branches in doubt, with their locked and their withheld messages (DTX-8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from escrowmq.core.branches.branch import Settlement, State
from escrowmq.core.branches.unread import UnreadWork, complete, load_entries, load_run
from escrowmq.core.branches.xid import Xid
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.records.branches import Prepared, SettlementItem, decode_prepare
from escrowmq.core.records.references import Range, Reference, merged
from escrowmq.core.records.unreadable import LogUnreadable
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
            branch = self._branches[number]
            found = _within(references, item.ranges)
            disposition = Disposition.MODIFIED if item.requeue else Disposition[item.outcome.name]
            try:
                entries = load_entries(self._broker.engine, queue, found, deliveries)
            except LogUnreadable as error:
                self._unread(branch, error, queue).lock(queue, references, item.ranges, disposition, deliveries)
                continue
            queue.unsettled += len(entries)
            branch.settlements.append(Settlement(queue.getter, entries, disposition))
            branch.settled_in[queue] = None
        references.remove(merged(some for _, item in locks for some in item.ranges))

    def _unread(self, branch: XaBranch, error: LogUnreadable, *queues: Queue) -> UnreadWork:
        """Return the part of the branch's work that cannot be read now. The queues are unavailable until it can."""
        work = branch.unread
        if work is None:
            work = branch.unread = UnreadWork(self._broker.engine, branch, self._found[branch.number])
        for queue in queues:
            self._broker.engine.unavailable.suspend(queue, work.reason(error), work.retry)
        return work

    def finish(self) -> None:
        """Find the queues of the branches' messages, after the queues have been filled."""
        broker, engine = self._broker, self._broker.engine
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
                targets = tuple(queues[ident] for ident in run.queues if ident in queues)
                broker.log.retain(run.lsn, run.length * max(len(targets), 1))
                try:
                    load_run(engine, branch, found, run, targets)
                except LogUnreadable as error:
                    self._unread(branch, error, *targets).withhold(run, targets)
            if branch.unread is None:
                complete(engine, branch, found, queues)
            else:
                branch.unread.queues = queues


def _infer_concerns(branch: XaBranch, found: Prepared, queues: Mapping[int, Queue]) -> None:
    """Note the queues that the branch settles, from a record of a version that did not name them."""
    for ident in (*(item.queue for item in found.settlements), *(item.queue for item in found.reservations)):
        if ident in queues:
            branch.concerns.add("queue", queues[ident].name, "read")


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

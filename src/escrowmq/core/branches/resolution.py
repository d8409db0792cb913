"""The commit of branches: gathers the effects of each, and applies all of them in one record (TX-5, ORD-4, DTX-9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from escrowmq.core.branches import decision
from escrowmq.core.branches.branch import CommitResult, Input, Publication
from escrowmq.core.branches.decision import Decision, check_room, decide, gather
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.marks import Modification
from escrowmq.core.queues.outcome import Disposition, Outcome
from escrowmq.core.queues.redelivery import spent
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import Settlement, TransactionBranch
    from escrowmq.core.branches.decision import Write
    from escrowmq.core.branches.xa_branch import PreparedRun, XaBranch
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.dead_letters import DeadLetters
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.settlement import Settlements


class Host(decision.Host, Protocol):
    """The part of the engine that a commit needs."""

    settlements: Settlements
    dead_letters: DeadLetters

    def leave(self, consumer: Consumer, count: int) -> Queue:
        """Note that the consumer has `count` unsettled deliveries fewer."""
        ...

    def settle(self, consumer: Consumer, entries: list[Entry], disposition: Disposition) -> None:
        """Settle deliveries: remove them, or return them to their places."""
        ...

    def modify(self, consumer: Consumer, entries: list[Entry], modification: Modification) -> None:
        """Return deliveries to their places, changed by `modification`."""
        ...


class BranchEffects:
    """The effects of committing one branch. Gathering them changes nothing. The caller writes and applies `decision`
    first, then calls `finish`.

    `returned` holds mandatory messages that have no queue left (TX-11). `bereft` is true if one of its queues was
    deleted; the answer then also waits until that deletion is on disk (TX-8).
    """

    __slots__ = ("_back", "_branch", "_engine", "_left", "_read", "bereft", "decision", "returned")

    def __init__(self, engine: Host, branch: TransactionBranch, prepared: Sequence[PreparedRun] | None = None) -> None:
        """Gather the effects. `prepared` holds the published runs of a prepared branch."""
        self._engine = engine
        self._branch = branch
        self._back: list[tuple[Consumer, list[Entry], Disposition | Modification]] = []
        self._left: list[tuple[Consumer, int]] = []
        self._read: list[tuple[Queue, int]] = []  # acknowledged messages of streams
        self.bereft = False
        self.returned: list[Publication] = []
        self.decision = Decision(engine, branch.number, short=prepared is not None)
        if prepared is None:
            self._publish()
        else:
            self._place(prepared)
        for work in branch.reservations:
            self.decision.settle_reservation(work)
            self.bereft = self.bereft or work.reservation.queue.deleted
        for arrival in branch.arrivals:
            self.decision.record(arrival)
        self._settle()

    def _publish(self) -> None:
        for publication in self._branch.publications:
            queues = self._living(publication.queues)
            if queues:
                self.decision.place(publication.envelope, publication.contents, queues)
            elif publication.mandatory:
                self.returned.append(publication)

    def _place(self, runs: Sequence[PreparedRun]) -> None:
        for run in runs:
            queues = self._living(run.queues)
            if queues:
                self.decision.place_prepared(run, queues)
            elif run.mandatory:
                self.returned.append(Publication(run.envelope, list(run.contents), (), mandatory=True))

    def _living(self, queues: tuple[Queue, ...]) -> tuple[Queue, ...]:
        for queue in queues:
            if queue.deleted:
                self.bereft = True
                return tuple(queue for queue in queues if not queue.deleted)
        return queues

    def _settle(self) -> None:
        engine = self._engine
        for settlement in self._branch.settlements:
            consumer, queue = settlement.consumer, settlement.consumer.queue
            outcome, entries, returning = divided(settlement, settlement.entries)
            if outcome is Outcome.DELIVERY_LIMIT:
                self._back.append((consumer, returning, settlement.modification or settlement.disposition))
                if not entries:
                    continue
            self._left.append((consumer, len(entries)))
            if queue.is_stream:
                self._read += [(queue, len(entries))] if outcome is Outcome.ACCEPTED else []
                continue
            if queue.deleted:
                self.bereft = True
            elif outcome is not Outcome.ACCEPTED:
                if settlement.routes is None:
                    engine.dead_letters.place(self.decision, queue, entries, outcome, settlement.modification)
                else:
                    engine.dead_letters.place_routed(self.decision, queue, entries, outcome, settlement.routes)
            self.decision.remove(queue, entries, outcome)

    def check(self) -> None:
        """Raises LIMIT_EXCEEDED if a queue that refuses messages at its limit (`reject-publish`) has no room for the
        published messages, or if the effects do not fit into one record. Raises PRECONDITION_FAILED if reserved
        messages to be settled are not reserved any more.
        """
        branch = self._branch
        if branch.publications:
            check_room((work.contents, self._living(work.queues)) for work in branch.publications)
        for work in branch.reservations:
            work.check()
        self.decision.check_size(branch.operations)

    def finish(self) -> None:
        """Restore the consumers' credit for settled deliveries, and return requeued entries to their places."""
        for consumer, count in self._left:
            self._engine.leave(consumer, count)
        for stream, count in self._read:
            stream.change()
            stream.counters.accepted += count
        for consumer, entries, change in self._back:
            give_back(self._engine, consumer, entries, change)


def divided(settlement: Settlement, entries: list[Entry]) -> tuple[Outcome, list[Entry], list[Entry]]:
    """Divide `entries` of a settlement into those that leave their queue, and those that return to it. Those over the
    delivery limit leave, which is also an effect of the branch.
    """
    disposition, modification = settlement.disposition, settlement.modification
    if disposition is Disposition.ACCEPTED:  # the common case
        return Outcome.ACCEPTED, entries, []
    if disposition is Disposition.REJECTED:
        return Outcome.REJECTED, entries, []
    if disposition is Disposition.RELEASED or (modification is not None and not modification.failed):
        return Outcome.DELIVERY_LIMIT, [], entries
    return Outcome.DELIVERY_LIMIT, *spent(settlement.consumer.queue, entries)


def give_back(engine: Host, consumer: Consumer, entries: list[Entry], change: Modification | Disposition) -> None:
    """Return deliveries of a branch to their places, as their settlement says."""
    if isinstance(change, Modification):
        engine.modify(consumer, entries, change)
    else:
        engine.settle(consumer, entries, change)


def commit(engine: Host, branch: TransactionBranch) -> CommitResult:
    """Commit a branch that is not prepared. Raises as `BranchEffects.check`; in that case nothing is applied."""
    effects = BranchEffects(engine, branch)
    effects.check()
    engine.settlements.flush()
    lsn = effects.decision.apply(sealed=True)
    branch.step(Input.COMMIT_ONE_PHASE)
    effects.finish()
    if effects.bereft:
        lsn = engine.log.end_lsn
    branch.end()
    return CommitResult(lsn, tuple(effects.returned))


def resolve(engine: Host, branches: Sequence[XaBranch], write: Write) -> list[Publication]:
    """Commit prepared branches: append one record with `write`, then apply their effects. Return the mandatory messages
    that have no queue left. Raises UNAVAILABLE, with nothing applied, if their content cannot be read from the log.
    """
    engine.settlements.flush()
    try:
        for branch in branches:
            if branch.unread is not None:
                branch.unread.read()
        found = [BranchEffects(engine, branch, branch.runs) for branch in branches]
        gathered = gather([effects.decision for effects in found])
    except LogUnreadable as error:
        raise BrokerError(Condition.UNAVAILABLE, f"the transaction stays prepared for now: {error}") from error
    decide(engine.log, gathered, write)
    for effects in found:
        effects.finish()
    return [publication for effects in found for publication in effects.returned]

"""Transactions that have no xid: begun, worked for, and committed in one phase by one client (TX rules)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from escrowmq.core.branches import resolution
from escrowmq.core.branches.branch import CommitResult, Input, State, TransactionBranch
from escrowmq.core.branches.decision import place_one
from escrowmq.core.queues.outcome import Disposition

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import Limits, Publication, Settlement
    from escrowmq.core.branches.watch import Watch
    from escrowmq.core.ports import Holder
    from escrowmq.core.reservations.reservation import ReservationSettlement


class Host(resolution.Host, Protocol):
    """What transactions need of the engine."""

    holders: dict[Holder, None]


class Transactions:
    """Begins branches, numbers them, and commits them or rolls them back."""

    __slots__ = ("_engine", "_last")

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self._last = 0

    # -- numbers

    def next_number(self) -> int:
        """A number for a branch, which no branch of this journal has had."""
        self._last += 1
        return self._last

    def seen(self, number: int) -> None:
        """A record names this branch: the number is not given out again."""
        self._last = max(self._last, number)

    def counters(self) -> dict[str, int]:
        """Numbers that must not be given out twice, for a snapshot."""
        return {"next_branch": self._last + 1}

    # -- branches

    def begin(self, limits: Limits, watch: Watch) -> TransactionBranch:
        """A new branch. Its age counts from its first work on (TX-13); `watch` may serve one branch after the other."""
        branch = TransactionBranch(self.next_number(), limits, watch, self.give_back)
        self._engine.holders[branch] = None
        return branch

    def begin_again(self, branch: TransactionBranch) -> None:
        """`branch`, which has ended, is the next one (TX-12)."""
        branch.renew(self.next_number())

    def enlist(self, branch: TransactionBranch, work: Publication | Settlement) -> None:
        """Add work to a branch. Raises LIMIT_EXCEEDED over its bounds (TX-13)."""
        if branch.watch.since is None:
            branch.watch.start(self._engine.now)
        branch.enlist(work)

    def settle_reservation(self, branch: TransactionBranch, work: ReservationSettlement) -> None:
        """Enlist the settlement of reserved messages (`reservations.settlement`). Raises as `enlist`."""
        if branch.watch.since is None:
            branch.watch.start(self._engine.now)
        branch.settle_reservation(work)

    def expire(self, branch: TransactionBranch) -> None:
        """A branch is over its age: nothing of it is applied (TX-13)."""
        branch.step(Input.EXPIRE)
        branch.undo()
        self._engine.holders.pop(branch, None)

    def commit(self, branch: TransactionBranch) -> CommitResult:
        """One-phase commit: all effects of the branch in one record (TX-5).

        Raises LIMIT_EXCEEDED, with nothing applied, when a queue that refuses at its limit (`reject-publish`) is full,
        and when it does not fit in one record.
        """
        if branch.empty or branch.state is not State.ACTIVE:
            branch.step(Input.COMMIT_ONE_PHASE)
            branch.undo()
            return CommitResult()
        only = branch.only_run
        if only is not None:
            (queue,) = only.queues
            if not queue.deleted and not queue.refuses:
                lsn = place_one(self._engine, branch.number, only.envelope, only.contents, queue, sealed=True)
                branch.step(Input.COMMIT_ONE_PHASE)
                branch.end()
                return CommitResult(lsn)
        return resolution.commit(self._engine, branch)

    def rollback(self, branch: TransactionBranch) -> None:
        """Drop what the branch published; its settlements never happened (TX-4)."""
        branch.step(Input.ROLLBACK)
        branch.undo()

    def close(self, branch: TransactionBranch) -> None:
        """The same, and no other branch follows."""
        self.rollback(branch)
        self._engine.holders.pop(branch, None)

    def give_back(self, settlement: Settlement) -> None:
        """Undo a settlement by RETURN."""
        self._engine.settle(settlement.consumer, settlement.entries, Disposition.MODIFIED)

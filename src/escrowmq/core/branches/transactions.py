"""Transactions without an xid: one client begins them and commits them in one phase (TX rules)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.branches import large_effects, resolution
from escrowmq.core.branches.branch import PIECE, CommitResult, Input, State, TransactionBranch
from escrowmq.core.branches.decision import place_one
from escrowmq.core.branches.large_commit import LargeCommit
from escrowmq.core.branches.undone import Undone
from escrowmq.core.leftover import freed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from escrowmq.core.branches.branch import Limits, Publication, Settlement
    from escrowmq.core.branches.watch import Watch
    from escrowmq.core.counters import BrokerCounters
    from escrowmq.core.leftover import LeftOver
    from escrowmq.core.ports import Holder
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.returning import Returnable
    from escrowmq.core.reservations.reservation import ReservationSettlement


LARGE: Final = 1000
"""Operations above which a branch is committed or rolled back in pieces. A message counts for each of its queues."""
_LOOKED_AT: Final = 5000  # settlements whose deliveries are counted; more than that are many in any case


class Host(large_effects.Host, Protocol):
    """The part of the engine that transactions need."""

    counters: BrokerCounters
    holders: dict[Holder, None]
    left_over: LeftOver

    def give_back(self, source: Returnable, count: int, queues: Iterable[Queue]) -> None:
        """Requeue deliveries, in order. The source belongs to the engine from now on."""
        ...


class Transactions:
    """Begins branches, numbers them, and commits them or rolls them back. Those with more than `large` operations are
    to be committed in pieces.
    """

    __slots__ = ("_engine", "_last", "large")

    def __init__(self, engine: Host) -> None:
        self._engine = engine
        self._last = 0
        self.large = LARGE

    # -- numbers

    def next_number(self) -> int:
        """Return a branch number that no branch of this journal has had."""
        self._last += 1
        return self._last

    def seen(self, number: int) -> None:
        """Note a branch number found in a record, so that it is not assigned again."""
        self._last = max(self._last, number)

    def counters(self) -> dict[str, int]:
        """Return the counters that a snapshot stores, so that no number is assigned twice."""
        return {"next_branch": self._last + 1}

    # -- branches

    def begin(self, limits: Limits, watch: Watch) -> TransactionBranch:
        """Begin a branch. Its age counts from its first work (TX-13). `watch` can be reused for one branch after
        another.
        """
        branch = TransactionBranch(self.next_number(), limits, watch, self.give_back, self._engine.counters.local)
        self._engine.holders[branch] = None
        return branch

    def begin_again(self, branch: TransactionBranch) -> None:
        """Reuse `branch`, which has ended, for the next transaction (TX-12)."""
        self._last += 1
        branch.renew(self._last)

    def enlist(self, branch: TransactionBranch, work: Publication | Settlement) -> None:
        """Add work to a branch. Raises LIMIT_EXCEEDED if the branch would exceed its limits (TX-13)."""
        if branch.watch.since is None:
            branch.watch.start(self._engine.now)
        branch.enlist(work)

    def settle_reservation(self, branch: TransactionBranch, work: ReservationSettlement) -> None:
        """Enlist the settlement of reserved messages (`reservations.settlement`). Raises as `enlist`."""
        if branch.watch.since is None:
            branch.watch.start(self._engine.now)
        branch.settle_reservation(work)

    def expire(self, branch: TransactionBranch) -> None:
        """Undo a branch that has exceeded its maximum age (TX-13). The client is told, and keeps no delivery of it."""
        branch.step(Input.EXPIRE)
        branch.abandon()
        self._over(branch)

    def commit(self, branch: TransactionBranch) -> CommitResult:
        """Commit in one phase: all effects of the branch go into one record (TX-5).

        Raises LIMIT_EXCEEDED, with nothing applied, if a queue that refuses messages at its limit (`reject-publish`)
        is full, or if the effects do not fit into one record.
        """
        only = branch.only_run
        if only is not None:
            (queue,) = only.queues
            if not queue.deleted and not queue.refuses:
                lsn = place_one(self._engine, branch.number, only.envelope, only.contents, queue, sealed=True)
                branch.step(Input.COMMIT_ONE_PHASE)
                branch.end()
                return CommitResult(lsn)
        elif branch.empty or branch.state is not State.ACTIVE:
            branch.step(Input.COMMIT_ONE_PHASE)
            branch.undo()
            return CommitResult()
        return resolution.commit(self._engine, branch)

    def is_large(self, branch: TransactionBranch) -> bool:
        """Return whether the branch is to be committed or rolled back in pieces."""
        return branch.operations + branch.copies > self.large and not branch.reservations

    def commit_in_pieces(self, branch: TransactionBranch) -> LargeCommit:
        """Return the commit of a large branch, to be carried out in pieces."""
        return LargeCommit(self._engine, branch)

    def rollback(self, branch: TransactionBranch) -> None:
        """Drop the messages that the branch published, and undo its settlements (TX-4)."""
        branch.step(Input.ROLLBACK)
        branch.undo()

    def close(self, branch: TransactionBranch) -> None:
        """Roll back the branch and close its watch: no further branch follows."""
        self.rollback(branch)
        self._over(branch)

    def abandon(self, branch: TransactionBranch) -> None:
        """Do `close` for a branch whose client is gone: its deliveries return to their queues."""
        branch.step(Input.ROLLBACK)
        branch.abandon()
        self._over(branch)

    def _over(self, branch: TransactionBranch) -> None:
        self._engine.holders.pop(branch, None)
        if branch.holding is not None:
            branch.holding.close()

    def give_back(
        self, settlements: list[Settlement], queues: Iterable[Queue], publications: list[Publication]
    ) -> None:
        """Undo settlements whose undo is RETURN: their deliveries return to their places, many of them in later turns.
        The memory of `publications`, which are dropped, is freed in the same way.
        """
        if settlements:
            count = sum([len(settlement.entries) for settlement in islice(settlements, _LOOKED_AT)])
            self._engine.give_back(Undone(settlements), count, queues)
        if len(publications) > PIECE:
            self._engine.left_over.add(freed(publications))

"""Distributed transactions: prepare, commit, rollback, forget and decide (DTX rules).

Two tables hold the states: `branch.TRANSITIONS` for branches, `association.ASSOCIATIONS` for channels. `preparation`
prepares a branch; `resolution` applies its outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from escrowmq.core.branches import preparation
from escrowmq.core.branches.branch import Input, State
from escrowmq.core.branches.preparation import Preparation, discard
from escrowmq.core.branches.progress import NOTHING_DECIDED, ProgressTable
from escrowmq.core.branches.registry import words
from escrowmq.core.branches.resolution import resolve
from escrowmq.core.branches.xa import XaResult, XaStatus
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.records.branches import encode_decide, encode_heuristic, encode_number
from escrowmq.core.records.commits import encode_commit
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import Publication
    from escrowmq.core.branches.registry import Registry
    from escrowmq.core.branches.shares import UserLimits
    from escrowmq.core.branches.transactions import Transactions
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.branches.xid import Xid
    from escrowmq.core.records.branches import Operations

HEURISTIC: Final = {
    State.HEURISTIC_COMMITTED: XaStatus.HEUR_COM,
    State.HEURISTIC_ROLLED_BACK: XaStatus.HEUR_RB,
}
"""What the transaction manager is told of a branch that an operator has decided."""
_RETURNED_AT_ONCE: Final = 50  # branches that are undone in one step
_PIECE: Final = 500  # branches that are divided in one step
T = TypeVar("T")


class Division:
    """A decision over the branches of a global transaction: all of them with their states, and their division into
    those to commit and those to roll back.

    `done` is the last epoch that was decided, and `lsn` is that for which an answer about it waits.
    """

    __slots__ = ("chosen", "done", "losers", "lsn", "states")

    def __init__(self, known: Sequence[XaBranch], done: int, lsn: int) -> None:
        self.states = {branch: branch.state for branch in known}
        self.chosen: list[XaBranch] = []
        self.losers: list[XaBranch] = []
        self.done = done
        self.lsn = lsn

    def divide(self, gtrid: bytes, winners: Sequence[bytes], epoch: int) -> Iterator[int]:
        """Divide them, and yield the number of branches in each piece. Raises NOT_FOUND for an unknown winner, and
        ILLEGAL_STATE for one that is not prepared.
        """
        by_name: dict[bytes, XaBranch] = {}
        for some in _pieces(self.states):
            for branch in some:
                by_name[branch.xid.bqual] = branch
            yield len(some)
        prepared = State.PREPARED  # looked up once, since there may be thousands
        for names in _pieces(dict.fromkeys(winners) if epoch > self.done else ()):
            for bqual in names:
                found = by_name.get(bqual)
                if found is None:
                    raise BrokerError(Condition.NOT_FOUND, f"no branch {bqual.hex()} of {gtrid.hex()} is known")
                if found.state is not prepared:
                    raise BrokerError(Condition.ILLEGAL_STATE, f"branch {found.xid} is {words(found)}, not prepared")
                self.chosen.append(found)
            yield len(names)
        winning = set(self.chosen)
        for some in _pieces(self.states):
            self.losers += [each for each in some if each not in winning and each.state not in HEURISTIC]
            yield len(some)


def _pieces(items: Iterable[T]) -> Iterator[list[T]]:
    remaining = iter(items)
    while some := list(islice(remaining, _PIECE)):
        yield some


class Host(preparation.Host, Protocol):
    """The part of the engine that the coordinator needs."""

    def at_each_sync(self, synced: Callable[[int], None]) -> None:
        """Call `synced` whenever more of the log is on disk."""
        ...


class Coordinator:
    """Prepares and decides branches. It raises the errors that `Registry` describes."""

    def __init__(self, engine: Host, registry: Registry, transactions: Transactions) -> None:
        self._engine = engine
        self._registry = registry
        self._transactions = transactions
        self.returning: deque[tuple[int, XaBranch]] = deque()
        """Prepared branches that were rolled back, with the LSN up to which the log must be synced before their
        deliveries return to the queues."""
        engine.at_each_sync(self.synced)
        self.progress = ProgressTable(engine.log)

    def limit(self, limits: UserLimits) -> None:
        """Set the limits of each user."""
        self._registry.limits = limits
        self.progress.limit = limits.applications

    def prepare(self, xid: Xid) -> XaResult:
        """Prepare a branch. Once the log is synced up to the result's `lsn`, its commit cannot fail any more (DTX-8).

        RDONLY: the branch had no work and is forgotten. RB_ROLLBACK, RB_TIMEOUT: the branch is rolled back and
        forgotten. This includes every branch whose commit is not certain to succeed, such as one that publishes to a
        full queue with `reject-publish`.
        """
        branch = self.ended(xid)
        before = branch.state
        if before is State.TIMED_OUT:
            return self._timed_out(branch)
        if branch.empty and before is State.ACTIVE:
            branch.step(Input.COMMIT_ONE_PHASE)
            self._registry.over(branch)
            return XaResult(XaStatus.RDONLY)
        if branch.after(Input.PREPARE) is not State.PREPARED:
            return self._rolled_back(branch, Input.PREPARE)
        if before is State.ACTIVE:
            work = Preparation(self._engine, branch)
            try:
                self._registry.check_prepare(branch)
                work.check()
            except BrokerError as full:
                return self.refuse(branch, Input.PREPARE, full)
            branch.lsn = work.apply()
            branch.step(Input.PREPARE)
            self._registry.prepared(branch)
        return XaResult(XaStatus.OK, branch.lsn)

    def commit(self, xid: Xid, *, one_phase: bool) -> XaResult:
        """Commit a prepared branch, or with `one_phase` a branch that is not prepared (DTX-9).

        HEUR_COM, HEUR_RB: an operator has already decided the branch. RB_ROLLBACK, RB_TIMEOUT: the branch is rolled
        back and forgotten.
        """
        branch = self.ended(xid)
        if branch.state is State.TIMED_OUT:
            return self._timed_out(branch)
        if one_phase:
            return self._commit_one_phase(branch)
        after = branch.after(Input.COMMIT)
        if after in HEURISTIC:
            return XaResult(HEURISTIC[after], branch.lsn)
        if after is not State.COMMITTED:
            return self._rolled_back(branch, Input.COMMIT)
        engine = self._engine

        def write(found: list[Operations]) -> list[list[int]]:
            (operations,) = found
            parts, offsets = encode_commit(branch.number, operations)
            lsn = engine.log.append(Kind.COMMIT, *parts)
            return [[lsn + offset for offset in offsets]]

        returned = resolve(engine, [branch], write)
        branch.step(Input.COMMIT)
        discard(engine, branch)
        self._registry.over(branch)
        return XaResult(XaStatus.OK, engine.log.end_lsn, tuple(returned))

    def _commit_one_phase(self, branch: XaBranch) -> XaResult:
        if branch.state is not State.ACTIVE:
            return self._rolled_back(branch, Input.COMMIT_ONE_PHASE)
        try:
            result = self._transactions.commit(branch)
        except BrokerError as full:  # nothing was applied
            return self.refuse(branch, Input.COMMIT_ONE_PHASE, full)
        self._registry.over(branch)
        return XaResult(XaStatus.OK, result.lsn, result.returned)

    def rollback(self, xid: Xid) -> XaResult:
        """Roll back a branch: drop its published messages, return its settled deliveries to their places (DTX-14)."""
        branch = self.ended(xid)
        before = branch.state
        if before is State.TIMED_OUT:
            return self._timed_out(branch)
        after = branch.after(Input.ROLLBACK)
        if after in HEURISTIC:
            return XaResult(HEURISTIC[after], branch.lsn)
        lsn = 0
        if before is State.PREPARED:
            self._engine.log.append(Kind.ROLLBACK, encode_number(branch.number))
            lsn = self._engine.log.end_lsn
            branch.step(Input.ROLLBACK)
            self._return_later(branch, lsn)
            self._registry.forget(branch)
        else:
            branch.step(Input.ROLLBACK)
            branch.undo()
            self._registry.over(branch)
        return XaResult(XaStatus.OK, lsn)

    def forget(self, xid: Xid) -> int:
        """Forget a heuristically decided branch. Return the LSN up to which the log must be synced before the answer
        (DTX-10).
        """
        branch = self._registry.find(xid)
        branch.after(Input.FORGET)  # raises if the branch cannot be forgotten
        self._engine.log.append(Kind.FORGET, encode_number(branch.number))
        branch.step(Input.FORGET)
        self._registry.forget(branch)
        return self._engine.log.end_lsn

    def force(self, xid: Xid, *, commit: bool) -> XaResult:
        """Decide a branch on an operator's order. The transaction manager learns the outcome from its next call
        (DTX-11).
        """
        branch = self._registry.find(xid)
        engine = self._engine
        given = Input.FORCE_COMMIT if commit else Input.FORCE_ROLLBACK
        branch.after(given)  # raises if the branch cannot be decided
        returned: list[Publication] = []

        def write(found: list[Operations]) -> list[list[int]]:
            operations = found[0] if found else []
            parts, offsets = encode_heuristic(branch.number, operations, commit=commit)
            lsn = engine.log.append(Kind.HEURISTIC, *parts)
            return [[lsn + offset for offset in offsets]]

        if commit:
            returned = resolve(engine, [branch], write)
        else:
            write([])
        branch.step(given)
        branch.lsn = engine.log.end_lsn
        if commit:
            discard(engine, branch)
            self._registry.let_go(branch)
        else:
            self._return_later(branch, branch.lsn)
        return XaResult(HEURISTIC[branch.state], branch.lsn, tuple(returned))

    def abandon(self, branch: XaBranch) -> None:
        """End a branch, whatever its state, because its virtual host is deleted. A branch that is not decided is rolled
        back.
        """
        if branch.state is State.PREPARED:
            self._engine.log.append(Kind.ROLLBACK, encode_number(branch.number))
            branch.step(Input.ROLLBACK)
            self._return_later(branch, self._engine.log.end_lsn)
            self._registry.forget(branch)
        elif branch.state in HEURISTIC:
            self.forget(branch.xid)
        else:
            branch.step(Input.ROLLBACK)
            branch.undo()
            self._registry.over(branch)

    def drop_vhost(self, vhost: str) -> None:
        """End all branches of a virtual host that is deleted, and forget the progress of its applications."""
        for branch in self._registry.of_vhost(vhost):
            self.abandon(branch)
        self.progress.drop_vhost(vhost)

    def ended(self, xid: Xid) -> XaBranch:
        """Return a branch that no channel is associated with any more, so that it can be decided (DTX-4)."""
        branch = self._registry.find(xid)
        if branch.state is not State.TIMED_OUT and branch.occupied:
            raise BrokerError(
                Condition.ILLEGAL_STATE, f"xid {xid} is still associated with a channel; end that association first"
            )
        return branch

    def _timed_out(self, branch: XaBranch) -> XaResult:
        """Report the timeout to the transaction manager, and end the branch."""
        branch.step(Input.ROLLBACK)
        self._registry.over(branch)
        return XaResult(XaStatus.RB_TIMEOUT)

    def refuse(self, branch: XaBranch, given: Input, error: BrokerError) -> XaResult:
        """Roll back a branch whose prepare or commit was refused, and end it."""
        self._registry.fail(branch)
        return self._rolled_back(branch, given, error.text)

    def _rolled_back(self, branch: XaBranch, given: Input, reason: str = "") -> XaResult:
        """Roll back a branch that could not be committed, and end it."""
        branch.step(given)
        self._registry.over(branch)
        return XaResult(XaStatus.RB_ROLLBACK, reason=reason)

    # -- several branches at once

    def decide(
        self,
        gtrid: bytes,
        format_id: int,
        winners: Sequence[bytes],
        *,
        application: str,
        epoch: int,
        user: str = "",
        permitted: Callable[[XaBranch], bool] | None = None,
    ) -> XaResult:
        """Decide all branches of a global transaction in one record (PIPE-2).

        Commits the prepared branches whose qualifiers are in `winners`, rolls back the others, and stores `epoch` as
        the progress of `application`. If the application's progress has already reached `epoch`, nothing is committed
        and the result is OK. An empty `application` stores no progress, for a transaction that happens once. The
        progress of a new application belongs to `user`. Branches that are not `permitted` count as unknown. Raises
        NOT_FOUND for an unknown winner, ILLEGAL_STATE for a winner that is not prepared, and LIMIT_EXCEEDED if the user
        has too many applications.
        """
        engine = self._engine
        known = self._registry.of_global(gtrid, format_id)
        if permitted is not None:
            known = list(filter(permitted, known))
        plan = self.plan(known, application)
        for _ in plan.divide(gtrid, winners, epoch):
            pass
        chosen, losers, done, lsn = plan.chosen, plan.losers, plan.done, plan.lsn
        prepared = [b for b in losers if b.state is State.PREPARED]
        if epoch <= done and not prepared:
            self._drop(losers, lsn)
            return XaResult(XaStatus.OK, lsn)
        self.claim(application, user)

        def write(found: list[Operations]) -> list[list[int]]:
            committed = [(branch.number, operations) for branch, operations in zip(chosen, found, strict=True)]
            numbers = [branch.number for branch in prepared]
            parts, offsets = encode_decide(application, max(epoch, done), numbers, committed)
            record = engine.log.append(Kind.DECIDE, *parts)
            return [[record + offset for offset in some] for some in offsets]

        returned = resolve(engine, chosen, write)
        lsn = engine.log.end_lsn
        if application:
            self.progress.reached(application, max(epoch, done), lsn)
        for branch in chosen:
            branch.step(Input.COMMIT)
            discard(engine, branch)
            self._registry.over(branch)
        self._drop(losers, lsn)
        return XaResult(XaStatus.OK, lsn, tuple(returned))

    def plan(self, known: Sequence[XaBranch], application: str) -> Division:
        """Begin to divide the branches of a global transaction into those to commit and those to roll back."""
        progress = self.progress.find(application)
        done, lsn = (NOTHING_DECIDED, 0) if progress is None else (progress.epoch, progress.lsn)
        return Division(known, done, lsn)

    def decided(self, application: str) -> int:
        """Return the last epoch that was decided for an application."""
        progress = self.progress.find(application)
        return NOTHING_DECIDED if progress is None else progress.epoch

    def claim(self, application: str, user: str) -> None:
        """Record that the progress of a new application belongs to `user`. Raises LIMIT_EXCEEDED."""
        if application:
            self.progress.check_claim(application, user)
            self.progress.claim(application, user)

    def _drop(self, losers: Sequence[XaBranch], lsn: int) -> None:
        """Roll back `losers`, whose rollback is in the record that ends at `lsn`.

        A worker that is still associated with one of them is told when it ends the association.
        """
        for branch in losers:
            if branch.occupied:
                self._registry.fail(branch)
                continue
            before = branch.state
            branch.step(Input.ROLLBACK)
            self.end_rolled_back(branch, before, lsn)

    def end_rolled_back(self, branch: XaBranch, before: State, lsn: int) -> None:
        """Undo a branch that was rolled back in the state `before`. The record that says so ends at `lsn`."""
        if before is State.PREPARED:
            self._return_later(branch, lsn)
            self._registry.forget(branch)
        else:
            branch.undo()
            self._registry.over(branch)

    # -- rolled-back branches

    def _return_later(self, branch: XaBranch, lsn: int) -> None:
        """Return the locked messages of a prepared branch once its rollback is on disk, which is when the log is synced
        up to `lsn`. A crash before that would lock them again, so no consumer may see them earlier.
        """
        discard(self._engine, branch)
        self.returning.append((lsn, branch))

    def synced(self, lsn: int) -> None:
        """Note that the log is on disk up to `lsn`."""
        rest = self._returned(lsn)
        for _ in rest:
            self._engine.left_over.add(rest)
            break

    def _returned(self, lsn: int) -> Iterator[None]:
        """Undo the branches whose rollback is on disk, and yield after each piece."""
        done = 0
        while self.returning and self.returning[0][0] <= lsn:
            branch = self.returning.popleft()[1]
            branch.undo()
            self._registry.let_go(branch)
            done += 1
            if done % _RETURNED_AT_ONCE == 0:
                yield

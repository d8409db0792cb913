"""Distributed transactions: what becomes of branches (DTX rules).

Who stands where is in two tables: `branch.TRANSITIONS` and `association.ASSOCIATIONS`. What a prepared branch is
made of is in `preparation`, what its outcome does in `resolution`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.branches import preparation
from escrowmq.core.branches.branch import Input, State
from escrowmq.core.branches.preparation import Preparation, captured, discard
from escrowmq.core.branches.registry import IN_DOUBT, words
from escrowmq.core.branches.resolution import resolve
from escrowmq.core.branches.xa import XaResult, XaStatus
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.records.branches import encode_decide, encode_heuristic, encode_number
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.commits import encode_commit
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import Publication
    from escrowmq.core.branches.registry import Registry
    from escrowmq.core.branches.transactions import Transactions
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.branches.xid import Xid
    from escrowmq.core.records.branches import Operations

_HEURISTIC: Final = {
    State.HEURISTIC_COMMITTED: XaStatus.HEUR_COM,
    State.HEURISTIC_ROLLED_BACK: XaStatus.HEUR_RB,
}


class Host(preparation.Host, Protocol):
    """What the coordinator needs of the engine."""

    def at_each_sync(self, synced: Callable[[int], None]) -> None:
        """Call `synced` whenever more of the log is on disk."""
        ...


class Coordinator:
    """The outcomes of branches. Errors as of `Registry`."""

    def __init__(self, engine: Host, registry: Registry, transactions: Transactions) -> None:
        self._engine = engine
        self._registry = registry
        self._transactions = transactions
        self.returning: deque[tuple[int, XaBranch]] = deque()
        """Rolled back, prepared branches: what they held goes back when the log is synced so far."""
        engine.at_each_sync(self.synced)
        self._progress: dict[str, tuple[int, int]] = {}  # epoch, and what an answer has to wait for that names it

    def prepare(self, xid: Xid) -> XaResult:
        """The branch is on disk when `lsn` is, and can be committed whatever happens (DTX-8).

        RDONLY: it had no work and is forgotten. RB_ROLLBACK, RB_TIMEOUT: it is rolled back and forgotten; so is one for
        which a queue that refuses at its limit has no room, and whatever else could not be committed for certain.
        """
        branch = self._ended(xid)
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
                work.check()
            except BrokerError as full:
                self._registry.fail(branch)
                return self._rolled_back(branch, Input.PREPARE, full.text)
            branch.lsn = work.apply()
            branch.step(Input.PREPARE)
            self._registry.disarm(branch)
        return XaResult(XaStatus.OK, branch.lsn)

    def commit(self, xid: Xid, *, one_phase: bool) -> XaResult:
        """The outcome of a prepared branch, or with `one_phase` of one that is not (DTX-9).

        HEUR_COM, HEUR_RB: an operator has decided before. RB_ROLLBACK, RB_TIMEOUT: it is rolled back and forgotten.
        """
        branch = self._ended(xid)
        if branch.state is State.TIMED_OUT:
            return self._timed_out(branch)
        if one_phase:
            return self._commit_one_phase(branch)
        after = branch.after(Input.COMMIT)
        if after in _HEURISTIC:
            return XaResult(_HEURISTIC[after], branch.lsn)
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
            self._registry.fail(branch)
            return self._rolled_back(branch, Input.COMMIT_ONE_PHASE, full.text)
        self._registry.over(branch)
        return XaResult(XaStatus.OK, result.lsn, result.returned)

    def rollback(self, xid: Xid) -> XaResult:
        """What was published is dropped, what was settled goes back to its place (DTX-14)."""
        branch = self._ended(xid)
        before = branch.state
        if before is State.TIMED_OUT:
            return self._timed_out(branch)
        after = branch.after(Input.ROLLBACK)
        if after in _HEURISTIC:
            return XaResult(_HEURISTIC[after], branch.lsn)
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
        """An operator's decision has been taken note of; what the answer has to wait for (DTX-10)."""
        branch = self._registry.find(xid)
        branch.after(Input.FORGET)  # which raises
        self._engine.log.append(Kind.FORGET, encode_number(branch.number))
        branch.step(Input.FORGET)
        self._registry.forget(branch)
        return self._engine.log.end_lsn

    def force(self, xid: Xid, *, commit: bool) -> XaResult:
        """An operator decides for the transaction manager, which is told when it asks (DTX-11)."""
        branch = self._registry.find(xid)
        engine = self._engine
        given = Input.FORCE_COMMIT if commit else Input.FORCE_ROLLBACK
        branch.after(given)  # which raises
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
        return XaResult(_HEURISTIC[branch.state], branch.lsn, tuple(returned))

    def _ended(self, xid: Xid) -> XaBranch:
        """A branch whose outcome may be asked for (DTX-4)."""
        branch = self._registry.find(xid)
        if branch.state is not State.TIMED_OUT and branch.occupied:
            raise BrokerError(
                Condition.ILLEGAL_STATE, f"xid {xid} is still associated with a channel, which has to end it first"
            )
        return branch

    def _timed_out(self, branch: XaBranch) -> XaResult:
        """Who asks is told, and it is over."""
        branch.step(Input.ROLLBACK)
        self._registry.over(branch)
        return XaResult(XaStatus.RB_TIMEOUT)

    def _rolled_back(self, branch: XaBranch, given: Input, reason: str = "") -> XaResult:
        """It could only be rolled back, and it is."""
        branch.step(given)
        self._registry.over(branch)
        return XaResult(XaStatus.RB_ROLLBACK, reason=reason)

    # -- many at once

    def decide(
        self,
        gtrid: bytes,
        format_id: int,
        winners: Sequence[bytes],
        *,
        application: str,
        epoch: int,
        vhost: str | None = None,
    ) -> XaResult:
        """Commit the prepared branches of a global transaction that `winners` names by their qualifiers, roll back its
        others, and note `epoch` as the progress of `application`: all in one record (PIPE-2).

        OK at once, without committing anything, if the application is as far already. Without an application's name no
        progress is noted: that is for a transaction that happens once. With `vhost`, branches of other virtual hosts
        are unknown. Raises NOT_FOUND and ILLEGAL_STATE for a winner that is unknown, or not prepared.
        """
        engine = self._engine
        known = [b for b in self._registry.by_xid.values() if b.xid.gtrid == gtrid and b.xid.format_id == format_id]
        if vhost is not None:
            known = [branch for branch in known if branch.vhost == vhost]
        by_name = {branch.xid.bqual: branch for branch in known}
        done, lsn = self._progress.get(application, (-1, 0))
        chosen: list[XaBranch] = []
        if epoch > done:
            for bqual in dict.fromkeys(winners):
                branch = by_name.get(bqual)
                if branch is None:
                    raise BrokerError(Condition.NOT_FOUND, f"no branch {bqual.hex()} of {gtrid.hex()} is known")
                if branch.state is not State.PREPARED:
                    raise BrokerError(Condition.ILLEGAL_STATE, f"branch {branch.xid} is {words(branch)}, not prepared")
                chosen.append(branch)
        losers = [b for b in known if b not in chosen and b.state not in _HEURISTIC]
        prepared = [b for b in losers if b.state is State.PREPARED]
        if epoch <= done and not prepared:
            self._drop(losers, lsn)
            return XaResult(XaStatus.OK, lsn)

        def write(found: list[Operations]) -> list[list[int]]:
            committed = [(branch.number, operations) for branch, operations in zip(chosen, found, strict=True)]
            numbers = [branch.number for branch in prepared]
            parts, offsets = encode_decide(application, max(epoch, done), numbers, committed)
            record = engine.log.append(Kind.DECIDE, *parts)
            return [[record + offset for offset in some] for some in offsets]

        returned = resolve(engine, chosen, write)
        lsn = engine.log.end_lsn
        if application:
            self._progress[application] = (max(epoch, done), lsn)
        for branch in chosen:
            branch.step(Input.COMMIT)
            discard(engine, branch)
            self._registry.over(branch)
        self._drop(losers, lsn)
        return XaResult(XaStatus.OK, lsn, tuple(returned))

    def _drop(self, losers: Sequence[XaBranch], lsn: int) -> None:
        """Roll back, as the record that ends at `lsn` says; whoever still works for one is told when he ends."""
        for branch in losers:
            if branch.occupied:
                self._registry.fail(branch)
                continue
            before = branch.state
            branch.step(Input.ROLLBACK)
            if before is State.PREPARED:
                self._return_later(branch, lsn)
                self._registry.forget(branch)
            else:
                branch.undo()
                self._registry.over(branch)

    def progress(self, application: str) -> int | None:
        """The last epoch that was decided; who answers with it waits for `log.end_lsn`."""
        found = self._progress.get(application)
        return None if found is None else found[0]

    # -- what is rolled back

    def _return_later(self, branch: XaBranch, lsn: int) -> None:
        """What a prepared branch locked goes back when the log is synced up to `lsn`, where its rollback stands: after
        a crash before that it would be locked again, so nobody may have seen it.
        """
        discard(self._engine, branch)
        self.returning.append((lsn, branch))

    def synced(self, lsn: int) -> None:
        """The log is on disk up to `lsn`."""
        while self.returning and self.returning[0][0] <= lsn:
            branch = self.returning.popleft()[1]
            branch.undo()
            self._registry.let_go(branch)

    # -- recovery and snapshots

    def restore_progress(self, application: str, epoch: int) -> None:
        """It has come so far, as a record says."""
        if application:
            self._progress[application] = (epoch, 0)

    def records(self) -> Iterator[tuple[Kind, list[bytes]]]:
        """Records that rebuild what is to survive a restart, for a snapshot."""
        for application, (epoch, _) in self._progress.items():
            yield Kind.PROGRESS, [encode_change(application=application, epoch=epoch)]
        for branch in self._registry.by_xid.values():
            if branch.state in IN_DOUBT:
                yield Kind.PREPARE, captured(branch)

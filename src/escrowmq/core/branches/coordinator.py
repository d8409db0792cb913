"""Distributed transactions: what becomes of branches (DTX rules).

Who stands where is in two tables: `branch.TRANSITIONS` and `association.ASSOCIATIONS`. What a prepared branch is
made of is in `preparation`, what its outcome does in `resolution`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.core.branches.association import Worker
from escrowmq.core.branches.branch import Input, Limits, State
from escrowmq.core.branches.demarcation import DemarcatedBranches
from escrowmq.core.branches.preparation import Preparation, captured, discard
from escrowmq.core.branches.registry import IN_DOUBT, MAX_BRANCHES, words
from escrowmq.core.branches.resolution import resolve
from escrowmq.core.branches.xa import XaResult, XaStatus
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.records.branches import encode_decide, encode_heuristic, encode_number
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.commits import encode_commit
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import Publication
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.branches.xid import Xid
    from escrowmq.core.broker import Broker
    from escrowmq.core.records.branches import Operations, Prepared

__all__ = ["Coordinator", "Worker"]

_HEURISTIC: Final = {
    State.HEURISTIC_COMMITTED: XaStatus.HEUR_COM,
    State.HEURISTIC_ROLLED_BACK: XaStatus.HEUR_RB,
}


class Coordinator(DemarcatedBranches):
    """Branches and their outcomes. Errors as of `Branches`."""

    def __init__(self, broker: Broker, *, max_branches: int = MAX_BRANCHES) -> None:
        super().__init__(broker, max_branches=max_branches)
        self.returning: deque[tuple[int, XaBranch]] = deque()
        """Rolled back, prepared branches: what they held goes back when the log is synced so far."""
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
            self._over(branch)
            return XaResult(XaStatus.RDONLY)
        preparation = None
        if before is State.ACTIVE:
            preparation = Preparation(self._broker, branch)
            try:
                preparation.check()
            except BrokerError as full:
                self._fail(branch)
                branch.step(Input.PREPARE)
                self._over(branch)
                return XaResult(XaStatus.RB_ROLLBACK, reason=full.text)
        if branch.step(Input.PREPARE) is not State.PREPARED:
            self._over(branch)
            return XaResult(XaStatus.RB_ROLLBACK)
        if preparation is not None:
            self._disarm(branch)
            branch.lsn = preparation.apply()
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
        after = branch.step(Input.COMMIT)
        if after in _HEURISTIC:
            return XaResult(_HEURISTIC[after], branch.lsn)
        if after is not State.COMMITTED:
            self._over(branch)
            return XaResult(XaStatus.RB_ROLLBACK)
        broker = self._broker

        def write(found: list[Operations]) -> list[list[int]]:
            (operations,) = found
            parts, offsets = encode_commit(branch.number, operations)
            lsn = broker.log.append(Kind.COMMIT, *parts)
            return [[lsn + offset for offset in offsets]]

        (outcome,) = resolve(broker, [branch], write)
        discard(broker, branch)
        self._over(branch)
        return XaResult(XaStatus.OK, broker.log.end_lsn, tuple(outcome.returned))

    def _commit_one_phase(self, branch: XaBranch) -> XaResult:
        if branch.state is not State.ACTIVE:
            branch.step(Input.COMMIT_ONE_PHASE)
            self._over(branch)
            return XaResult(XaStatus.RB_ROLLBACK)
        try:
            result = self._broker.commit(branch)
        except BrokerError as full:  # nothing was applied
            self._fail(branch)
            branch.step(Input.COMMIT_ONE_PHASE)
            self._over(branch)
            return XaResult(XaStatus.RB_ROLLBACK, reason=full.text)
        self._over(branch)
        return XaResult(XaStatus.OK, result.lsn, result.returned)

    def rollback(self, xid: Xid) -> XaResult:
        """What was published is dropped, what was settled goes back to its place (DTX-14)."""
        branch = self._ended(xid)
        before = branch.state
        if before is State.TIMED_OUT:
            return self._timed_out(branch)
        after = branch.step(Input.ROLLBACK)
        if after in _HEURISTIC:
            return XaResult(_HEURISTIC[after], branch.lsn)
        lsn = 0
        if before is State.PREPARED:
            self._broker.log.append(Kind.ROLLBACK, encode_number(branch.number))
            lsn = self._broker.log.end_lsn
            self._return_later(branch, lsn)
            self._forget(branch)
        else:
            self._undo(branch)
            self._over(branch)
        return XaResult(XaStatus.OK, lsn)

    def forget(self, xid: Xid) -> int:
        """An operator's decision has been taken note of; what the answer has to wait for (DTX-10)."""
        branch = self._find(xid)
        branch.step(Input.FORGET)
        self._broker.log.append(Kind.FORGET, encode_number(branch.number))
        self._forget(branch)
        return self._broker.log.end_lsn

    def force(self, xid: Xid, *, commit: bool) -> XaResult:
        """An operator decides for the transaction manager, which is told when it asks (DTX-11)."""
        branch = self._find(xid)
        broker = self._broker
        branch.step(Input.FORCE_COMMIT if commit else Input.FORCE_ROLLBACK)
        returned: tuple[Publication, ...] = ()

        def write(found: list[Operations]) -> list[list[int]]:
            operations = found[0] if found else []
            parts, offsets = encode_heuristic(branch.number, operations, commit=commit)
            lsn = broker.log.append(Kind.HEURISTIC, *parts)
            return [[lsn + offset for offset in offsets]]

        if commit:
            (outcome,) = resolve(broker, [branch], write)
            returned = tuple(outcome.returned)
        else:
            write([])
        branch.lsn = broker.log.end_lsn
        if commit:
            discard(broker, branch)
            self._let_go(branch)
        else:
            self._return_later(branch, branch.lsn)
        return XaResult(_HEURISTIC[branch.state], branch.lsn, returned)

    def _ended(self, xid: Xid) -> XaBranch:
        """A branch whose outcome may be asked for (DTX-4)."""
        branch = self._find(xid)
        if branch.state is not State.TIMED_OUT and branch.occupied:
            raise BrokerError(
                Condition.ILLEGAL_STATE, f"xid {xid} is still associated with a channel, which has to end it first"
            )
        return branch

    def _timed_out(self, branch: XaBranch) -> XaResult:
        """Who asks is told, and it is over."""
        branch.step(Input.ROLLBACK)
        self._over(branch)
        return XaResult(XaStatus.RB_TIMEOUT)

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
        broker = self._broker
        known = [b for x, b in self._branches.items() if x.gtrid == gtrid and x.format_id == format_id]
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
            record = broker.log.append(Kind.DECIDE, *parts)
            return [[record + offset for offset in some] for some in offsets]

        outcomes = resolve(broker, chosen, write)
        lsn = broker.log.end_lsn
        if application:
            self._progress[application] = (max(epoch, done), lsn)
        for branch in chosen:
            branch.step(Input.COMMIT)
            discard(broker, branch)
            self._over(branch)
        self._drop(losers, lsn)
        return XaResult(XaStatus.OK, lsn, tuple(p for outcome in outcomes for p in outcome.returned))

    def _drop(self, losers: Sequence[XaBranch], lsn: int) -> None:
        """Roll back, as the record that ends at `lsn` says; whoever still works for one is told when he ends."""
        for branch in losers:
            if branch.occupied:
                self._fail(branch)
                continue
            before = branch.state
            branch.step(Input.ROLLBACK)
            if before is State.PREPARED:
                self._return_later(branch, lsn)
                self._forget(branch)
            else:
                self._undo(branch)
                self._over(branch)

    def progress(self, application: str) -> int | None:
        """The last epoch that was decided; who answers with it waits for `log.end_lsn`."""
        found = self._progress.get(application)
        return None if found is None else found[0]

    # -- what is rolled back

    def _return_later(self, branch: XaBranch, lsn: int) -> None:
        """What a prepared branch locked goes back when the log is synced up to `lsn`, where its rollback stands: after
        a crash before that it would be locked again, so nobody may have seen it.
        """
        discard(self._broker, branch)
        self.returning.append((lsn, branch))

    def synced(self, lsn: int) -> None:
        """The log is on disk up to `lsn`."""
        while self.returning and self.returning[0][0] <= lsn:
            branch = self.returning.popleft()[1]
            self._undo(branch)
            self._let_go(branch)

    # -- recovery and snapshots

    def restore(self, found: Prepared, xid: Xid) -> XaBranch:
        """A branch comes back, without its work, as a PREPARE record has it."""
        branch = self._branch(found.number, xid, Limits(), found.started, found.owner, found.vhost)
        branch.state = State(found.state)
        branch.timeout = found.timeout
        branch.prepared_at = found.time
        if branch.state in _HEURISTIC:
            self._let_go(branch)
        return branch

    def restore_progress(self, application: str, epoch: int) -> None:
        """It has come so far, as a record says."""
        if application:
            self._progress[application] = (epoch, 0)

    def records(self) -> Iterator[tuple[Kind, list[bytes]]]:
        """Records that rebuild what is to survive a restart, for a snapshot."""
        for application, (epoch, _) in self._progress.items():
            yield Kind.PROGRESS, [encode_change(application=application, epoch=epoch)]
        for branch in self._branches.values():
            if branch.state in IN_DOUBT:
                yield Kind.PREPARE, captured(branch)

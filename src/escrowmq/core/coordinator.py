"""Distributed transactions: which branches there are, who works for them, and what becomes of them (DTX rules).

Who stands where is in two tables: `branch.TRANSITIONS` and `association.ASSOCIATIONS`. What a prepared branch is
made of is in `preparation`, what its outcome does in `resolution`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.core.association import Association, Demarcation, Worker, associated
from escrowmq.core.branch import Input, Limits, Settlement, State
from escrowmq.core.branch_records import encode_decide, encode_heuristic, encode_number
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.preparation import Preparation, captured, discard
from escrowmq.core.records import Kind, encode_change, encode_commit
from escrowmq.core.resolution import resolve
from escrowmq.core.watch import Watch
from escrowmq.core.xa import BranchView, XaResult, XaStatus
from escrowmq.core.xa_branch import DEFAULT_TIMEOUT, UNDONE, XaBranch
from escrowmq.core.xa_views import view_of

if TYPE_CHECKING:
    from escrowmq.core.branch import Publication
    from escrowmq.core.branch_records import Operations, Prepared
    from escrowmq.core.broker import Broker
    from escrowmq.core.xid import Xid

__all__ = ["Coordinator", "Worker"]

MAX_BRANCHES: Final = 10_000
"""Branches that are not over; more are refused."""
MAX_OVERDUE: Final = 10_000
"""Branches that have timed out and whose transaction manager has not asked since; the oldest are forgotten."""
REMEMBER_MS: Final = 30 * 60_000
"""How long one that has timed out is known."""
_IN_DOUBT: Final = frozenset((State.PREPARED, State.HEURISTIC_COMMITTED, State.HEURISTIC_ROLLED_BACK))
_TOLD: Final = {State.ROLLBACK_ONLY: XaStatus.RB_ROLLBACK, State.TIMED_OUT: XaStatus.RB_TIMEOUT}
_HEURISTIC: Final = {
    State.HEURISTIC_COMMITTED: XaStatus.HEUR_COM,
    State.HEURISTIC_ROLLED_BACK: XaStatus.HEUR_RB,
}


class Coordinator:
    """All branches that have an xid. Errors are BrokerError; a call that raises has changed nothing.

    NOT_FOUND: the xid, or the association, is unknown. NOT_ALLOWED: the xid is known. COMMAND_INVALID: flags or calls
    that do not go together. ILLEGAL_STATE: the branch is where this cannot be done, or a worker has not ended.
    """

    def __init__(self, broker: Broker, *, max_branches: int = MAX_BRANCHES) -> None:
        self.max_branches = max_branches
        self._broker = broker
        self._branches: dict[Xid, XaBranch] = {}
        self._overdue: dict[Xid, None] = {}
        self._workers: dict[Worker, dict[XaBranch, None]] = {}
        self.returning: deque[tuple[int, XaBranch]] = deque()
        """Rolled back, prepared branches: what they held goes back when the log is synced so far."""
        self._progress: dict[str, tuple[int, int]] = {}  # epoch, and what an answer has to wait for that names it

    # -- demarcation

    def start(
        self,
        worker: Worker,
        xid: Xid,
        *,
        join: bool = False,
        resume: bool = False,
        limits: Limits,
        owner: str = "",
        vhost: str = "",
    ) -> tuple[XaResult, XaBranch | None]:
        """`worker` works for `xid` from now on; what it does is enlisted in the branch that is returned.

        RB_TIMEOUT, and no branch, when one that is joined has timed out. Raises, besides those of the class,
        LIMIT_EXCEEDED when there are too many branches. A branch belongs to the virtual host that it began in.
        """
        if join and resume:
            raise BrokerError(Condition.COMMAND_INVALID, "join and resume do not go together")
        given = Demarcation.JOIN if join else Demarcation.RESUME if resume else Demarcation.START
        at_work = self._at_work(worker)
        branch = self._branches.get(xid)
        if branch is None:
            if join:
                raise _unknown(xid)
            self._check_free(at_work, xid)
            after = associated(Association.NOT_ASSOCIATED, given, str(xid))
            branch = self._begin(xid, limits, owner, vhost)
        else:
            if given is Demarcation.START:
                raise BrokerError(Condition.NOT_ALLOWED, f"xid {xid} is known already; join it, or resume")
            if at_work is not branch:
                self._check_free(at_work, xid)
            if branch.state in _IN_DOUBT:
                raise BrokerError(Condition.COMMAND_INVALID, f"xid {xid} is {_words(branch)}, nobody can work for it")
            if branch.state is State.TIMED_OUT and join:
                return XaResult(XaStatus.RB_TIMEOUT), None
            before = branch.associations.get(worker, Association.NOT_ASSOCIATED)
            if branch.state is State.TIMED_OUT:
                before = Association.NOT_ASSOCIATED
            after = associated(before, given, str(xid))
        branch.associations[worker] = after
        self._workers.setdefault(worker, {})[branch] = None
        return XaResult(XaStatus.OK), branch

    def end(self, worker: Worker, xid: Xid, *, fail: bool = False, suspend: bool = False) -> XaResult:
        """`worker` works for `xid` no longer, or not for now. RB_ROLLBACK, RB_TIMEOUT: all of it can only be rolled
        back.
        """
        if fail and suspend:
            raise BrokerError(Condition.COMMAND_INVALID, "fail and suspend do not go together")
        branch = self._find(xid)
        given = Demarcation.FAIL if fail else Demarcation.SUSPEND if suspend else Demarcation.END
        before = branch.associations.get(worker, Association.NOT_ASSOCIATED)
        branch.associations[worker] = associated(before, given, str(xid))
        if fail:
            self._fail(branch)
        if branch.state in UNDONE:
            return XaResult(_TOLD[branch.state])
        return XaResult(XaStatus.OK)

    def leave(self, worker: Worker) -> None:
        """`worker` is gone: branches that it has not ended are rolled back (DTX-7); whoever asks is told so."""
        for branch in self._workers.pop(worker, {}):
            before = branch.associations.pop(worker)
            if before is not Association.ENDED:
                self._fail(branch)

    def _at_work(self, worker: Worker) -> XaBranch | None:
        """The branch that it works for just now."""
        for branch in self._workers.get(worker, ()):
            if branch.associations[worker] is Association.ACTIVE:
                return branch
        return None

    def _check_free(self, at_work: XaBranch | None, xid: Xid) -> None:
        if at_work is not None:
            raise BrokerError(
                Condition.COMMAND_INVALID, f"the channel works for xid {at_work.xid}; end that before it starts {xid}"
            )

    def _begin(self, xid: Xid, limits: Limits, owner: str, vhost: str) -> XaBranch:
        if len(self._branches) - len(self._overdue) >= self.max_branches:
            raise BrokerError(Condition.LIMIT_EXCEEDED, f"there are {self.max_branches} transaction branches already")
        broker = self._broker
        branch = self._branch(broker.next_branch(), xid, limits, broker.now, owner, vhost)
        branch.timeout = branch.bounded(DEFAULT_TIMEOUT)
        self._arm(branch)
        return branch

    def _branch(self, number: int, xid: Xid, limits: Limits, started: int, owner: str, vhost: str) -> XaBranch:
        watch = Watch(self._broker.deadlines, 0, _never)  # its age counts from its start, not from its first work
        watch.start(started)
        branch = XaBranch(
            number, xid, limits, watch, started=started, owner=owner, vhost=vhost, give_back=self._give_back
        )
        self._branches[xid] = branch
        self._broker.holders[branch] = None
        return branch

    # -- coordination

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

    def check_vhost(self, xid: Xid, vhost: str) -> None:
        """Raises NOT_FOUND for a branch of another virtual host: there it is as good as unknown."""
        branch = self._branches.get(xid)
        if branch is not None and branch.vhost != vhost:
            raise _unknown(xid)

    def recover(self, vhost: str | None = None) -> list[Xid]:
        """Every branch (of a virtual host) that is in doubt, or was completed by an operator and is not forgotten
        (DTX-10).
        """
        return [
            xid for xid, branch in self._branches.items() if branch.state in _IN_DOUBT and vhost in {None, branch.vhost}
        ]

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

    # -- timeouts

    def set_timeout(self, xid: Xid, seconds: int) -> None:
        """The branch may be active for so long, from now on; 0: as long as its bounds allow (DTX-12, TX-13)."""
        branch = self._find(xid)
        if branch.state is State.TIMED_OUT:
            raise BrokerError(Condition.ILLEGAL_STATE, f"xid {xid} has timed out")
        branch.timeout = branch.bounded(seconds)
        if branch.state not in _IN_DOUBT:
            self._arm(branch)

    def get_timeout(self, xid: Xid) -> int:
        """In seconds."""
        return self._find(xid).timeout

    def _arm(self, branch: XaBranch) -> None:
        self._disarm(branch)
        if branch.timeout:
            broker = self._broker
            at = broker.now + 1000 * branch.timeout
            branch.deadline = broker.deadlines.set(at, lambda: self._expire(branch))

    def _disarm(self, branch: XaBranch) -> None:
        if branch.deadline is not None:
            branch.deadline.cancel()
            branch.deadline = None

    def _expire(self, branch: XaBranch) -> None:
        """It is older than its timeout: undone at once, and remembered for those who will ask."""
        branch.step(Input.EXPIRE)
        self._undo(branch)
        broker = self._broker
        branch.deadline = broker.deadlines.set(broker.now + REMEMBER_MS, lambda: self._over(branch))
        self._overdue[branch.xid] = None
        if len(self._overdue) > MAX_OVERDUE:
            self._over(self._branches[next(iter(self._overdue))])
        for worker, association in list(branch.associations.items()):
            if association is Association.ACTIVE:
                worker.branch_expired(branch)

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
                    raise BrokerError(Condition.ILLEGAL_STATE, f"branch {branch.xid} is {_words(branch)}, not prepared")
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
            if branch.state in _IN_DOUBT:
                yield Kind.PREPARE, captured(branch)

    # -- looking

    def branches(self) -> list[BranchView]:
        """Every branch that is not over, in the order in which they began."""
        return [view_of(branch, self._broker.now) for branch in self._branches.values()]

    # -- what all of them need

    def _find(self, xid: Xid) -> XaBranch:
        branch = self._branches.get(xid)
        if branch is None:
            raise _unknown(xid)
        return branch

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

    def _fail(self, branch: XaBranch) -> None:
        if branch.state is State.TIMED_OUT:
            return
        branch.step(Input.FAIL)
        self._undo(branch)
        if branch.deadline is None and branch.state is State.ROLLBACK_ONLY:
            branch.timeout = branch.timeout or DEFAULT_TIMEOUT
            self._arm(branch)  # nobody need ask for it

    def _undo(self, branch: XaBranch) -> None:
        settlements = list(branch.settlements)
        branch.end()
        for settlement in settlements:
            self._give_back(settlement)

    def _give_back(self, settlement: Settlement) -> None:
        self._broker.requeue(settlement.consumer, settlement.entries)

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

    def _over(self, branch: XaBranch) -> None:
        """Nothing is left of it."""
        self._let_go(branch)
        self._forget(branch)

    def _let_go(self, branch: XaBranch) -> None:
        branch.end()
        self._broker.holders.pop(branch, None)

    def _forget(self, branch: XaBranch) -> None:
        """Its xid is unknown from now on."""
        self._disarm(branch)
        del self._branches[branch.xid]
        self._overdue.pop(branch.xid, None)
        for worker in branch.associations:
            engaged = self._workers[worker]
            del engaged[branch]
            if not engaged:
                del self._workers[worker]
        branch.associations.clear()


def _never() -> None:
    raise AssertionError("a watch without a limit does not expire")


def _words(branch: XaBranch) -> str:
    return branch.state.name.lower().replace("_", " ")


def _unknown(xid: Xid) -> BrokerError:
    return BrokerError(Condition.NOT_FOUND, f"no transaction branch with xid {xid}")

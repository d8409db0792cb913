"""The branches that have an xid: lookup, timeouts and removal (DTX-12, DTX-13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.access.holdings import Holdings
from escrowmq.core.access.owned import Concerns
from escrowmq.core.branches.association import Association, Worker
from escrowmq.core.branches.branch import Input, Limits, State
from escrowmq.core.branches.preparation import KEEP_BYTES
from escrowmq.core.branches.shares import Shares, UserLimits
from escrowmq.core.branches.watch import Watch
from escrowmq.core.branches.xa import BranchView
from escrowmq.core.branches.xa_branch import DEFAULT_TIMEOUT, XaBranch
from escrowmq.core.branches.xa_views import view_of
from escrowmq.core.conditions import BrokerError, Condition, check_growth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from escrowmq.core.branches.transactions import Transactions
    from escrowmq.core.branches.xid import Xid
    from escrowmq.core.counters import BrokerCounters
    from escrowmq.core.deadlines import Deadlines
    from escrowmq.core.ports import Holder
    from escrowmq.core.records.branches import Prepared

MAX_OVERDUE: Final = 10_000
"""Maximum number of timed-out branches of one user that are kept for its transaction manager; the oldest are forgotten
first."""
REMEMBER_MS: Final = 30 * 60_000
"""How long a timed-out branch stays known."""
OVER: Final = frozenset((State.COMMITTED, State.ROLLED_BACK, State.FORGOTTEN))
"""The states of branches that are decided, while the rest of their work is done. They are unknown to clients."""
IN_DOUBT: Final = frozenset((State.PREPARED, State.HEURISTIC_COMMITTED, State.HEURISTIC_ROLLED_BACK))


class Host(Protocol):
    """The part of the engine that the registry needs."""

    now: int
    scarcity: str
    counters: BrokerCounters
    deadlines: Deadlines
    holders: dict[Holder, None]


class Registry:
    """All branches that have an xid. Errors are BrokerError; a call that raises has changed nothing.

    NOT_FOUND: the xid, or the association, is unknown. NOT_ALLOWED: the xid is already known. COMMAND_INVALID: the
    flags or calls exclude each other. ILLEGAL_STATE: the branch's state does not allow the call, or a worker has not
    ended its association.
    """

    def __init__(self, engine: Host, transactions: Transactions, holdings: Holdings | None = None) -> None:
        self.limits = UserLimits()
        self.holdings = holdings or Holdings()
        self.workers: dict[Worker, dict[XaBranch, None]] = {}
        self._engine = engine
        self._transactions = transactions
        self._branches: dict[Xid, XaBranch] = {}
        self._shares = Shares()

    @property
    def by_xid(self) -> Mapping[Xid, XaBranch]:
        """Every branch that has not ended, in the order in which they began. The caller must not change the mapping."""
        return self._branches

    def find(self, xid: Xid) -> XaBranch:
        """Return the branch with this xid. Raises NOT_FOUND."""
        branch = self._branches.get(xid)
        if branch is None or branch.state in OVER:
            raise unknown(xid)
        return branch

    def views(self) -> list[BranchView]:
        """Return a view of every branch that has not ended, in the order in which they began."""
        return [view_of(branch, self._engine.now) for branch in self._branches.values()]

    def check_vhost(self, xid: Xid, vhost: str) -> None:
        """Raises NOT_FOUND for a branch of another virtual host, as for an unknown xid."""
        branch = self._branches.get(xid)
        if branch is not None and branch.vhost != vhost:
            raise unknown(xid)

    def in_doubt(self, vhost: str | None = None) -> list[XaBranch]:
        """Return all branches (of a virtual host) that are in doubt, or that an operator decided and that are not
        forgotten yet (DTX-10).
        """
        return [
            branch for branch in self._branches.values() if branch.state in IN_DOUBT and vhost in {None, branch.vhost}
        ]

    def of_vhost(self, vhost: str) -> list[XaBranch]:
        """Return all branches of a virtual host."""
        return [branch for branch in self._branches.values() if branch.vhost == vhost and branch.state not in OVER]

    def of_global(self, gtrid: bytes, format_id: int) -> list[XaBranch]:
        """Return all branches of a global transaction that are not decided."""
        return [
            branch
            for branch in self._branches.values()
            if branch.xid.gtrid == gtrid and branch.xid.format_id == format_id and branch.state not in OVER
        ]

    def recover(self, vhost: str | None = None) -> list[Xid]:
        """Return the xids of `in_doubt`."""
        return [branch.xid for branch in self.in_doubt(vhost)]

    def begin(self, xid: Xid, limits: Limits, owner: str, vhost: str, user: str = "") -> XaBranch:
        """Begin a branch of `user`. Raises LIMIT_EXCEEDED if the user has too many, or while memory or disk space is
        scarce. `owner` is for operators.
        """
        check_growth(self._engine.scarcity, f"transaction branch {xid}")
        self._shares.check_open(user, self.limits.branches)
        number, now = self._transactions.next_number(), self._engine.now
        branch = self._branch(number, xid, limits, now, owner, vhost, user)
        self._shares.begin(branch)
        branch.timeout = branch.bounded(DEFAULT_TIMEOUT)
        self._arm(branch)
        return branch

    def restore(self, found: Prepared, xid: Xid) -> XaBranch:
        """Restore a branch from a PREPARE record, without its work."""
        user = found.belongs.user if found.belongs is not None else ""
        branch = self._branch(
            found.number, xid, Limits(), min(found.started, self._engine.now), found.owner, found.vhost, user
        )
        if found.belongs is not None:
            branch.concerns = Concerns.restored(found.belongs.concerns, complete=found.belongs.complete)
        branch.counters.begun -= 1  # it began before the restart
        branch.state = State(found.state)
        self._shares.prepare(branch)
        branch.timeout = found.timeout
        branch.prepared_at = min(found.time, self._engine.now)  # the machine's time may have been set back
        if branch.state is not State.PREPARED:
            self.let_go(branch)
        return branch

    def _branch(
        self, number: int, xid: Xid, limits: Limits, started: int, owner: str, vhost: str, user: str
    ) -> XaBranch:
        watch = Watch(self._engine.deadlines, 0, _never)  # its age counts from the branch's start, not its first work
        watch.start(started)
        branch = XaBranch(
            number,
            xid,
            limits,
            watch,
            started=started,
            owner=owner,
            user=user,
            vhost=vhost,
            give_back=self._transactions.give_back,
            counters=self._engine.counters.xa,
        )
        branch.holding = self.holdings.begin(user, vhost)
        self._branches[xid] = branch
        self._engine.holders[branch] = None
        return branch

    # -- timeouts

    def set_timeout(self, xid: Xid, seconds: int) -> None:
        """Set the time, in seconds from now, that the branch may be active. 0: as long as its limits allow (DTX-12,
        TX-13).
        """
        branch = self.find(xid)
        if branch.state is State.TIMED_OUT:
            raise BrokerError(Condition.ILLEGAL_STATE, f"xid {xid} has timed out")
        branch.timeout = branch.bounded(seconds)
        if branch.state not in IN_DOUBT:
            self._arm(branch)

    def get_timeout(self, xid: Xid) -> int:
        """Return the branch's timeout in seconds."""
        return self.find(xid).timeout

    def _arm(self, branch: XaBranch) -> None:
        self.disarm(branch)
        if branch.timeout:
            engine = self._engine
            at = engine.now + 1000 * branch.timeout
            branch.deadline = engine.deadlines.set(at, lambda: self._expire(branch))

    def disarm(self, branch: XaBranch) -> None:
        """Cancel the branch's timeout."""
        if branch.deadline is not None:
            branch.deadline.cancel()
            branch.deadline = None

    def _expire(self, branch: XaBranch) -> None:
        """Undo a branch that has exceeded its timeout, and keep it so that the transaction manager can learn the
        reason.
        """
        branch.step(Input.EXPIRE)
        branch.undo()
        engine = self._engine
        branch.deadline = engine.deadlines.set(engine.now + REMEMBER_MS, lambda: self.over(branch))
        if self._shares.expire(branch) > MAX_OVERDUE:
            self.over(next(iter(self._shares.overdue[branch.user])))
        for worker, association in list(branch.associations.items()):
            if association is Association.ACTIVE:
                worker.branch_expired(branch)

    # -- prepared branches

    def check_prepare(self, branch: XaBranch) -> None:
        """Raises LIMIT_EXCEEDED if the branch's user has too many branches in doubt."""
        self._shares.check_in_doubt(branch.user, self.limits.prepared_branches)

    def prepared(self, branch: XaBranch, kept_bytes: int | None = None) -> None:
        """Note that the branch is prepared. Its timeout no longer applies. `kept_bytes` are those of its published
        messages that are still in memory; they are counted if that is None.
        """
        self._shares.prepare(branch)
        self.disarm(branch)
        if branch.holding is not None:  # most of its messages are only in the log now
            if kept_bytes is None:
                kept_bytes = sum([run.size for run in branch.runs if run.size <= KEEP_BYTES])
            branch.holding.follow(branch.kept_bytes + kept_bytes)

    # -- the end

    def fail(self, branch: XaBranch) -> None:
        """Mark the branch as rollback-only, and undo its work at once (DTX-14)."""
        if branch.state is State.TIMED_OUT:
            return
        branch.step(Input.FAIL)
        branch.undo()
        if branch.deadline is None and branch.state is State.ROLLBACK_ONLY:
            branch.timeout = branch.timeout or DEFAULT_TIMEOUT
            self._arm(branch)  # the transaction manager may never call again

    def over(self, branch: XaBranch) -> None:
        """Drop the branch's work and forget its xid."""
        self.let_go(branch)
        self.forget(branch)

    def let_go(self, branch: XaBranch) -> None:
        """Drop the branch's work, which is applied or undone."""
        branch.end()
        self._engine.holders.pop(branch, None)

    def forget(self, branch: XaBranch) -> None:
        """Forget the branch's xid."""
        self.disarm(branch)
        del self._branches[branch.xid]
        self._shares.end(branch)
        if branch.holding is not None:
            branch.holding.close()
        for worker in branch.associations:
            engaged = self.workers[worker]
            del engaged[branch]
            if not engaged:
                del self.workers[worker]
        branch.associations.clear()


def _never() -> None:
    raise AssertionError("a watch without a limit does not expire")


def words(branch: XaBranch) -> str:
    """Return the branch's state in words, for error texts."""
    return branch.state.name.lower().replace("_", " ")


def unknown(xid: Xid) -> BrokerError:
    """Return the error for an unknown xid."""
    return BrokerError(Condition.NOT_FOUND, f"no transaction branch with xid {xid}")

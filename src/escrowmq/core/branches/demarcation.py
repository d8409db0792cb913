"""Demarcation: associates channels with branches, by the table in `association` (DTX-2 to DTX-5, DTX-7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.branches.association import Association, Demarcation, Worker, associated
from escrowmq.core.branches.branch import Limits, State
from escrowmq.core.branches.registry import IN_DOUBT, unknown, words
from escrowmq.core.branches.xa import XaResult, XaStatus
from escrowmq.core.branches.xa_branch import UNDONE
from escrowmq.core.conditions import BrokerError, Condition

if TYPE_CHECKING:
    from escrowmq.core.branches.registry import Registry
    from escrowmq.core.branches.xa_branch import XaBranch
    from escrowmq.core.branches.xid import Xid

_TOLD: Final = {State.ROLLBACK_ONLY: XaStatus.RB_ROLLBACK, State.TIMED_OUT: XaStatus.RB_TIMEOUT}


class Demarcations:
    """Associates workers with branches. It raises the errors that `Registry` describes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

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
        user: str = "",
    ) -> tuple[XaResult, XaBranch | None]:
        """Associate `worker` with `xid`. Its work is enlisted in the branch that is returned.

        If the branch to join has timed out, the result is RB_TIMEOUT without a branch. Raises LIMIT_EXCEEDED when
        the user has too many branches, and the errors of the class. A branch belongs to the virtual host in which it
        began, and to the user that began it.
        """
        if join and resume:
            raise BrokerError(Condition.COMMAND_INVALID, "join and resume do not go together")
        given = Demarcation.JOIN if join else Demarcation.RESUME if resume else Demarcation.START
        at_work = self._at_work(worker)
        branch = self._registry.by_xid.get(xid)
        if branch is None:
            if join:
                raise unknown(xid)
            self._check_free(at_work, xid)
            after = associated(Association.NOT_ASSOCIATED, given, str(xid))
            branch = self._registry.begin(xid, limits, owner, vhost, user)
        else:
            if given is Demarcation.START:
                raise BrokerError(Condition.NOT_ALLOWED, f"xid {xid} is already known; join or resume it")
            if at_work is not branch:
                self._check_free(at_work, xid)
            if branch.state in IN_DOUBT:
                raise BrokerError(Condition.COMMAND_INVALID, f"xid {xid} is {words(branch)}: work for it cannot start")
            if branch.state is State.TIMED_OUT and join:
                return XaResult(XaStatus.RB_TIMEOUT), None
            before = branch.associations.get(worker, Association.NOT_ASSOCIATED)
            if branch.state is State.TIMED_OUT:
                before = Association.NOT_ASSOCIATED
            after = associated(before, given, str(xid))
        branch.associations[worker] = after
        self._registry.workers.setdefault(worker, {})[branch] = None
        return XaResult(XaStatus.OK), branch

    def end(self, worker: Worker, xid: Xid, *, fail: bool = False, suspend: bool = False) -> XaResult:
        """End or suspend the association of `worker` with `xid`. RB_ROLLBACK, RB_TIMEOUT: the branch can only be rolled
        back.
        """
        if fail and suspend:
            raise BrokerError(Condition.COMMAND_INVALID, "fail and suspend do not go together")
        branch = self._registry.find(xid)
        given = Demarcation.FAIL if fail else Demarcation.SUSPEND if suspend else Demarcation.END
        before = branch.associations.get(worker, Association.NOT_ASSOCIATED)
        branch.associations[worker] = associated(before, given, str(xid))
        if fail:
            self._registry.fail(branch)
        if branch.state in UNDONE:
            return XaResult(_TOLD[branch.state])
        return XaResult(XaStatus.OK)

    def leave(self, worker: Worker) -> None:
        """Remove `worker`, which is closed. Branches that it has not ended can only be rolled back, and the transaction
        manager is told so (DTX-7).
        """
        for branch in self._registry.workers.pop(worker, {}):
            before = branch.associations.pop(worker)
            if before is not Association.ENDED:
                self._registry.fail(branch)

    def _at_work(self, worker: Worker) -> XaBranch | None:
        """Return the branch that `worker` is working for, or None."""
        for branch in self._registry.workers.get(worker, ()):
            if branch.associations[worker] is Association.ACTIVE:
                return branch
        return None

    def _check_free(self, at_work: XaBranch | None, xid: Xid) -> None:
        if at_work is not None:
            raise BrokerError(
                Condition.COMMAND_INVALID, f"the channel works for xid {at_work.xid}; end that before starting {xid}"
            )

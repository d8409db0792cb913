"""A channel or session that works for XA branches: the branch to which its publishes and settlements belong (DTX-1,
DTX-2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import Limits, TransactionBranch
    from escrowmq.core.branches.xa import XaStatus
    from escrowmq.core.branches.xid import Xid
    from escrowmq.core.broker import Broker
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.vhost import VirtualHost


class Workplace(Protocol):
    """The channel or session."""

    broker: Broker
    vhost: VirtualHost[Queue]
    branch: TransactionBranch | None
    """The branch with which it is associated."""


class Demarcation:
    """The state that `select` gives a channel or session: a worker of the coordinator (`core.branches.association`).

    While the place is associated with a branch, that branch is its `branch`, as a local transaction would be.
    """

    __slots__ = ("_limits", "_owner", "_place", "_user")

    def __init__(self, place: Workplace, limits: Limits, user: str, owner: str) -> None:
        """New branches have these `limits` and belong to `user`. `owner` names the place for operators."""
        self._place = place
        self._limits = limits
        self._user = user
        self._owner = owner

    def start(self, xid: Xid, *, join: bool, resume: bool) -> XaStatus:
        """Work for a branch from now on, unless it is rolled back already. Raises the coordinator's errors."""
        place = self._place
        result, branch = place.broker.demarcations.start(
            self,
            xid,
            join=join,
            resume=resume,
            limits=self._limits,
            vhost=place.vhost.name,
            user=self._user,
            owner=self._owner,
        )
        place.branch = branch
        return result.status

    def end(self, xid: Xid, *, fail: bool, suspend: bool) -> XaStatus:
        """Stop working for the branch: later publishes and settlements are not in it. Raises the coordinator's
        errors.
        """
        result = self._place.broker.demarcations.end(self, xid, fail=fail, suspend=suspend)
        self._place.branch = None
        return result.status

    def branch_expired(self, branch: TransactionBranch) -> None:
        """Do nothing: the place works for the branch until its end, and later publishes are dropped with it."""

    def leave(self) -> None:
        """Undo the work for branches that the place has not ended, because it is closed (DTX-7)."""
        self._place.broker.demarcations.leave(self)
        self._place.branch = None

"""A channel that works for XA branches: the branch to which its publishes and settlements belong (DTX-1, DTX-2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import TransactionBranch
    from escrowmq.core.branches.xa import XaStatus
    from escrowmq.core.branches.xid import Xid
    from escrowmq.wire.amqp091.channel import Channel


class Demarcation:
    """The state that `dtx-demarcation.select` gives a channel: a worker of the coordinator (`core.coordinator.Worker`).

    While the channel is associated with a branch, that branch is the channel's `branch`, as a `tx` transaction would
    be.
    """

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def start(self, xid: Xid, *, join: bool, resume: bool) -> XaStatus:
        """Work for a branch from now on, unless it is rolled back already. Raises the coordinator's errors."""
        channel = self._channel
        connection = channel.connection
        result, branch = channel.broker.demarcations.start(
            self,
            xid,
            join=join,
            resume=resume,
            limits=connection.limits.transaction,
            vhost=channel.vhost.name,
            user=connection.user,
            owner=f"{connection.user} from {connection.label}, channel {channel.number}",
        )
        channel.branch = branch
        return result.status

    def end(self, xid: Xid, *, fail: bool, suspend: bool) -> XaStatus:
        """Stop working for the branch: later publishes and settlements are not in it. Raises the coordinator's
        errors.
        """
        channel = self._channel
        result = channel.broker.demarcations.end(self, xid, fail=fail, suspend=suspend)
        channel.branch = None
        return result.status

    def branch_expired(self, branch: TransactionBranch) -> None:
        """Do nothing: the channel works for the branch until its end, and later publishes are dropped with it."""

    def leave(self) -> None:
        """Undo the channel's work for branches that it has not ended, because the channel is closed (DTX-7)."""
        self._channel.broker.demarcations.leave(self)
        self._channel.branch = None

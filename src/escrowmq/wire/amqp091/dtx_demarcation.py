"""A channel that works for XA branches: which branch its publishes and settlements go into (DTX-1, DTX-2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import TransactionBranch
    from escrowmq.core.branches.xa import XaStatus
    from escrowmq.core.branches.xid import Xid
    from escrowmq.wire.amqp091.channel import Channel


class Demarcation:
    """What `dtx-demarcation.select` gives a channel: a worker of the coordinator (`core.coordinator.Worker`).

    While the channel is associated with a branch, that is the channel's `branch`, as the one of a transaction is.
    """

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def start(self, xid: Xid, *, join: bool, resume: bool) -> XaStatus:
        """Work for a branch from now on; not if it is rolled back already. Raises what the coordinator does."""
        channel = self._channel
        connection = channel.connection
        result, branch = channel.broker.demarcations.start(
            self,
            xid,
            join=join,
            resume=resume,
            limits=connection.limits.transaction,
            vhost=channel.vhost.name,
            owner=f"{connection.user} from {connection.label}, channel {channel.number}",
        )
        channel.branch = branch
        return result.status

    def end(self, xid: Xid, *, fail: bool, suspend: bool) -> XaStatus:
        """Work for it no longer: what comes now is not transactional. Raises what the coordinator does."""
        channel = self._channel
        result = channel.broker.demarcations.end(self, xid, fail=fail, suspend=suspend)
        channel.branch = None
        return result.status

    def branch_expired(self, branch: TransactionBranch) -> None:
        """The branch has timed out. It stays the channel's until its end: what comes meanwhile is dropped with it."""

    def leave(self) -> None:
        """The channel is gone, and with it what it has done for branches that it has not ended (DTX-7)."""
        self._channel.broker.demarcations.leave(self)
        self._channel.branch = None

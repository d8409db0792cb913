"""Exclusive queues belong to a session, and some of them outlive it.

AMQP 0-10 deletes an exclusive queue at the end only if it is also auto-delete. Others are then free for the next
client: durable subscriptions of JMS are such queues. The core's exclusive queues always end with their owner, so these
are ordinary queues for the core, with a lock here. The lock excludes other sessions of AMQP 0-10. Clients of other
protocols are excluded by permissions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.queue import Session as Owner

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue


class SessionOwner(Owner):
    """A session as the owner of exclusive queues. It stays the same when the session is attached again.

    `connection` stands for the session's connection, or the last one if it has none now.
    """

    __slots__ = ("connection",)

    def __init__(self) -> None:
        super().__init__("")
        self.connection: object = None


class QueueLocks:
    """The locks of all sessions, which share it through `Host.common`."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: dict[Queue, SessionOwner] = {}

    def owner_of(self, queue: Queue) -> SessionOwner | None:
        """Return the session that has the lock, if there is one."""
        return self._owners.get(queue)

    def check(self, queue: Queue, owner: SessionOwner) -> None:
        """Raises RESOURCE_LOCKED if a session other than `owner` has the lock."""
        if self._owners.get(queue, owner) is not owner:
            raise BrokerError(
                Condition.RESOURCE_LOCKED,
                f"queue '{queue.name}' in vhost '{queue.vhost}' is exclusive to another session",
            )

    def lock(self, queue: Queue, owner: SessionOwner) -> bool:
        """Give the lock to `owner`. Return whether it had it not yet. Raises RESOURCE_LOCKED as `check`, and if
        `queue` has consumers, since they would be excluded.
        """
        self.check(queue, owner)
        if queue in self._owners:
            return False
        if queue.consumers:
            raise BrokerError(
                Condition.RESOURCE_LOCKED,
                f"queue '{queue.name}' in vhost '{queue.vhost}' has consumers, so it cannot become exclusive",
            )
        self._owners[queue] = owner
        return True

    def release(self, queue: Queue) -> None:
        """Give up the lock."""
        self._owners.pop(queue, None)

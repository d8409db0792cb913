"""Exclusive queues that outlive their session.

AMQP 0-10 deletes an exclusive queue at the end only if it is also auto-delete. Others are then free for the next
client: durable subscriptions of JMS are such queues. The core's exclusive queues always end with their connection, so
these are ordinary queues for the core, with a lock here. The lock excludes other connections of AMQP 0-10. Clients of
other protocols are excluded by permissions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.conditions import BrokerError, Condition

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.queue import Session as Owner


class QueueLocks:
    """The locks of all connections, which share it through `Host.common`."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: dict[Queue, Owner] = {}

    def owner_of(self, queue: Queue) -> Owner | None:
        """Return the connection that has the lock, if there is one."""
        return self._owners.get(queue)

    def check(self, queue: Queue, owner: Owner) -> None:
        """Raises RESOURCE_LOCKED if a connection other than `owner` has the lock."""
        if self._owners.get(queue, owner) is not owner:
            raise BrokerError(
                Condition.RESOURCE_LOCKED,
                f"queue '{queue.name}' in vhost '{queue.vhost}' is exclusive to another connection",
            )

    def lock(self, queue: Queue, owner: Owner) -> bool:
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

    def move(self, queue: Queue, owner: Owner) -> None:
        """Give the lock of a session that is attached again to its new connection."""
        self._owners[queue] = owner

    def release(self, queue: Queue) -> None:
        """Give up the lock."""
        self._owners.pop(queue, None)

"""Lifetime policies of dynamic nodes (section 3.5.10): what deletes a queue that was created for a link.

| policy | the queue is deleted |
|---|---|
| delete-on-close | with the link that created it, or with the connection |
| delete-on-no-links | when no link is attached to it by its name |
| delete-on-no-messages | when it had messages and has none any more |
| delete-on-no-links-or-messages | when it has neither links nor messages |

The last three are looked at once in a second, and their queues outlive the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from escrowmq.wire.amqp10.codec.termini import (
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
)

if TYPE_CHECKING:
    from escrowmq.core.broker import Broker
    from escrowmq.core.queues.queue import Queue

Policy: TypeAlias = DeleteOnClose | DeleteOnNoLinks | DeleteOnNoMessages | DeleteOnNoLinksOrMessages
POLICIES: Final = (DeleteOnClose, DeleteOnNoLinks, DeleteOnNoMessages, DeleteOnNoLinksOrMessages)
LOOK_MS: Final = 1000


class NodeLifetime:
    """Looks at one queue from time to time, until it is deleted."""

    __slots__ = ("_broker", "_policy", "_queue")

    def __init__(self, broker: Broker, queue: Queue, policy: Policy) -> None:
        self._broker = broker
        self._queue = queue
        self._policy = policy
        self._wait()

    def _wait(self) -> None:
        engine = self._broker.engine
        engine.deadlines.set(engine.now + LOOK_MS, self._look)

    def _look(self) -> None:
        if self._queue.deleted:
            return
        if self._is_over():
            self._broker.directory.delete_queue(self._queue)
        else:
            self._wait()

    def _is_over(self) -> bool:
        queue = self._queue
        linked = bool(queue.consumers or queue.browsers or queue.producers)
        filled = bool(queue.ready or queue.unsettled or queue.unsynced)
        match self._policy:
            case DeleteOnNoLinks():
                return not linked
            case DeleteOnNoMessages():
                return not filled and queue.next_position > 1
            case _:
                return not linked and not filled

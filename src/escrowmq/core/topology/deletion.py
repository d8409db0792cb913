"""The deletion of queues. The name of one is free at once; its messages, consumers and bindings follow in pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from escrowmq.core.budget import DELETED
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.emptying import EmptyingHost, cancelling, emptying, withdraw

if TYPE_CHECKING:
    from escrowmq.core.counters import BrokerCounters
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.recording import Recording
    from escrowmq.core.topology.vhost import VirtualHost


class DeletionHost(EmptyingHost, Protocol):
    """The part of the engine that is needed here."""

    counters: BrokerCounters


def check_unneeded(queue: Queue, *, if_unused: bool, if_empty: bool) -> None:
    """Raises PRECONDITION_FAILED if a queue has consumers or messages and the flags forbid that. As in RabbitMQ,
    unacknowledged messages do not count, because clients delete a queue this way just after they have read it.
    """
    where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    if if_unused and queue.consumers:
        raise BrokerError(Condition.PRECONDITION_FAILED, f"{where} in use")
    if if_empty and (queue.ready or queue.unsynced or any(map(len, queue.reservations.values()))):
        raise BrokerError(Condition.PRECONDITION_FAILED, f"{where} not empty")


class QueueDeletion:
    """Deletes queues. Each one is given to all of `observers`, for objects that refer to it."""

    def __init__(self, engine: DeletionHost, vhosts: dict[str, VirtualHost[Queue]], recording: Recording) -> None:
        self._engine = engine
        self._vhosts = vhosts
        self._recording = recording
        self.observers: list[Callable[[Queue], None]] = []

    def delete(self, queue: Queue) -> int:
        """Delete a queue, and return the number of its messages."""
        self._engine.settlements.flush()
        count = queue.ready
        self._remove(queue)
        withdraw(self._engine, queue)
        if queue.consumers or queue.browsers:
            self._engine.left_over.begin(cancelling(self._engine, queue))
        return count

    def delete_streams(self, streams: Sequence[Queue]) -> None:
        """Delete the streams of a topic in one call, so that their records become durable together."""
        self._engine.settlements.flush()
        for stream in streams:
            self._remove(stream)
        if streams:
            self._engine.left_over.begin(emptying(self._engine, streams))

    def _remove(self, queue: Queue) -> None:
        """Delete a queue, apart from its messages and consumers: its name is free, and nothing is routed to it."""
        vhost = self._vhosts[queue.vhost]
        self._engine.requests.left -= DELETED
        queue.change()
        queue.retire()
        self._engine.counters.queue_deleted(queue)
        for drop in self.observers:
            drop(queue)
        if queue.owner is not None:
            queue.owner.exclusive.pop(queue, None)
        removal = vhost.remove_queue(queue.name)
        if queue.durable:
            self._recording.queue_deleted(queue)
        self._recording.removed(vhost, removal)

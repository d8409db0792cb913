"""Direct reply-to: replies go straight to the requesting channel, through no queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.arguments.queue import QueueOptions

if TYPE_CHECKING:
    from escrowmq.wire.amqp091.channel import Channel


class ReplyAddress(Queue):
    """The destination with a name `amq.rabbitmq.reply-to.…`: a queue that stores nothing.

    A reply is delivered at once. It is lost if the channel cannot take it, like a reply to a disconnected client.
    """

    __slots__ = ("_consumer", "encoded")

    def __init__(self, channel: Channel, name: str) -> None:
        super().__init__(channel.broker.engine, _stays, 0, channel.vhost.name, name, QueueOptions())
        self.encoded = bytes((len(name),)) + name.encode()
        """The name as a short string."""
        self._consumer: Consumer | None = None

    def attach(self, consumer: Consumer) -> None:
        """Deliver the replies to `consumer`."""
        self._consumer = consumer

    def close(self) -> None:
        """Drop all further replies, and the reference to the channel."""
        self.deleted = True
        self._consumer = None

    def _admit(self, run: Run, bodies: Sequence[bytes]) -> None:
        consumer = self._consumer
        if consumer is None or consumer.receiver is None:
            return
        entries = [Entry(run.first + i, body, run) for i, body in enumerate(bodies)]
        consumer.receiver.deliver(consumer, entries)


def _stays(queue: Queue) -> int:
    """Remove nothing: the address ends with its channel, and stores no messages."""
    return 0

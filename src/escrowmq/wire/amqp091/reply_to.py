"""Direct reply-to: answers go straight to the channel that asked, through no queue."""

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
    """The place behind a name `amq.rabbitmq.reply-to.…`: a queue that keeps nothing.

    What arrives is delivered at once, or lost if the channel cannot take it, as a reply to somebody who has gone is.
    """

    __slots__ = ("_channel", "_consumer")

    def __init__(self, channel: Channel, name: str) -> None:
        super().__init__(channel.broker.engine, _stays, 0, channel.vhost.name, name, QueueOptions())
        self._channel = channel
        self._consumer: Consumer | None = None

    def attach(self, consumer: Consumer) -> None:
        """`consumer` gets the replies."""
        self._consumer = consumer

    def _admit(self, run: Run, bodies: Sequence[bytes]) -> None:
        if self._consumer is None or self.deleted:
            return
        entries = [Entry(run.first + i, body, run) for i, body in enumerate(bodies)]
        self._channel.deliver(self._consumer, entries)


def _stays(queue: Queue) -> int:
    """The address goes with its channel, and has nothing that could go."""
    return 0

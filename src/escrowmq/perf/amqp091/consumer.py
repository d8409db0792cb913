"""A connection that consumes: it counts deliveries and acknowledges them in groups."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, unpack_from

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.content import Ids, ids_of
from escrowmq.perf.amqp091.counting import CONSUMER_TAG, DeliveryCounter
from escrowmq.perf.amqp091.signals import take_signal
from escrowmq.perf.messages import STAMP_SIZE
from escrowmq.perf.peer import Consumer
from escrowmq.perf.sampling import PublishedContents
from escrowmq.perf.totals import Totals

CHANNEL = 1
_STAMP = Struct(">Q")

Reply = Callable[[Ids], bytes]
"""Makes the publish that answers a message with these ids."""


class CountingConsumer(Consumer):
    """Consumes from one or more queues on one channel."""

    def __init__(
        self,
        connection: Connection,
        totals: Totals,
        label: str,
        queues: list[str],
        contents: PublishedContents,
        ack_every: int,
        prefetch: int,
        stamped: bool,
        reply: Reply | None = None,
    ) -> None:
        """Subscribe once for each entry of `queues`; a queue may occur several times.

        `ack_every` 0: auto-ack; 1: each delivery on its own; more: one acknowledgement for this many deliveries or a
        few more. `prefetch` applies to each subscription; 0: no limit. `stamped`: bodies begin with the time of
        publishing. `reply` makes an answer to each message.
        """
        super().__init__(connection.socket, totals, label)
        self.connection = connection
        self.queues = queues
        self.ack_every = ack_every
        self.prefetch = prefetch
        self._contents = contents
        self._stamped = stamped
        self._acked = 0
        self._accepted = 0
        self._reply = reply
        self._replies: list[bytes] = []
        self._every = stamped or reply is not None
        # Deliveries may come between the answers to the subscriptions, and no answer may be overlooked.
        self.counter = DeliveryCounter(self._on_frame, self._on_content, every=True)

    def prepare(self) -> None:
        """Open the channel and set the prefetch limit. Must be called before the load starts."""
        self.connection.call(CHANNEL, frames.channel_open(CHANNEL), frames.CHANNEL_OPEN_OK)
        if self.prefetch:
            self.connection.call(CHANNEL, frames.basic_qos(CHANNEL, self.prefetch), frames.BASIC_QOS_OK)

    @property
    def subscribed(self) -> bool:
        return self._accepted == len(self.queues)

    def start(self, now: int) -> None:
        width = max(len(str(len(self.queues) - 1)), 4)
        requests = [
            frames.basic_consume(CHANNEL, queue, f"{CONSUMER_TAG}{number:0{width}d}", self.ack_every == 0)
            for number, queue in enumerate(self.queues)
        ]
        self._append(b"".join(requests), now)

    def parse(self, data: bytearray, end: int) -> int:
        before = self.counter.count
        used = self.counter.feed(data, end)
        count = self.counter.count
        if count > before:
            self.totals.consumed += count - before
            self.totals.consumed_at = self.now
            self._answer(count - count % self.ack_every if self.ack_every else 0)
        return used

    def _answer(self, acked: int) -> None:
        """Acknowledge all deliveries up to a tag that are not acknowledged yet, and send the replies collected so
        far.
        """
        replies, self._replies = self._replies, []
        if acked > self._acked:
            first, self._acked = self._acked + 1, acked
            if self.ack_every == 1:
                replies.append(frames.single_acks(CHANNEL, first, acked))
            else:
                replies.append(frames.basic_ack(CHANNEL, acked, multiple=True))
        if replies:
            self._append(b"".join(replies), self.now)

    def finish(self, now: int) -> None:
        self.now = now
        self._answer(self.counter.count if self.ack_every else 0)

    def pump(self, now: int) -> None:
        self.now = now
        if self._unsent:
            self._send(self._unsent)

    def _on_frame(self, kind: int, payload: memoryview) -> None:
        if kind == frames.METHOD and unpack_from(">I", payload)[0] == frames.BASIC_CONSUME_OK:
            self._accepted += 1
            self.counter.every = self._every or not self.subscribed
        else:
            take_signal(self, kind, payload)

    def _on_content(self, header: bytes, size: int, begin: bytes) -> None:
        if self._stamped and size >= STAMP_SIZE:
            self.totals.delivery.record(self.now - _STAMP.unpack_from(begin)[0])
        ids = ids_of(header)
        self._contents.check(ids.message_id, ids.correlation_id, size, begin)
        if self._reply is not None:
            self._replies.append(self._reply(ids))

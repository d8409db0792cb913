"""A connection that fetches messages with basic.get, one by one or pipelined."""

from __future__ import annotations

from struct import unpack_from

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.content import ids_of
from escrowmq.perf.amqp091.counting import DeliveryCounter
from escrowmq.perf.amqp091.signals import take_signal
from escrowmq.perf.peer import Consumer
from escrowmq.perf.sampling import PublishedContents
from escrowmq.perf.totals import Totals

CHANNEL = 1
_SAMPLE_EVERY = 16


class Getter(Consumer):
    """Keeps a number of basic.get requests outstanding on one channel; its queues take turns."""

    def __init__(
        self,
        connection: Connection,
        totals: Totals,
        label: str,
        queues: list[str],
        contents: PublishedContents,
        ack_every: int,
        outstanding: int,
    ) -> None:
        """`ack_every` 0: auto-ack; 1: each message on its own; more: one acknowledgement for this many."""
        super().__init__(connection.socket, totals, label)
        self.connection = connection
        self._requests = [frames.basic_get(CHANNEL, queue, ack_every == 0) for queue in queues]
        self._contents = contents
        self._ack_every = ack_every
        self._outstanding = outstanding
        self._asked = 0
        self._acked = 0
        self._empty = 0
        self.counter = DeliveryCounter(self._on_frame, self._on_content, every=True, method=frames.BASIC_GET_OK)

    def prepare(self) -> None:
        """Open the channel. Must be called before the load starts."""
        self.connection.call(CHANNEL, frames.channel_open(CHANNEL), frames.CHANNEL_OPEN_OK)

    @property
    def subscribed(self) -> bool:
        return True  # basic.get needs no subscription

    def start(self, now: int) -> None:
        self._append(self._ask(self._outstanding), now)

    def parse(self, data: bytearray, end: int) -> int:
        counter = self.counter
        before, empty = counter.count, self._empty
        used = counter.feed(data, end)
        fetched = counter.count - before
        if fetched:
            self.totals.consumed += fetched
            self.totals.consumed_at = self.now
        answered = fetched + self._empty - empty
        if answered:
            self._append(self._acks(counter.count) + self._ask(answered), self.now)
        return used

    def _ask(self, number: int) -> bytes:
        """Return the next requests."""
        requests = self._requests
        first, self._asked = self._asked, self._asked + number
        return b"".join([requests[n % len(requests)] for n in range(first, first + number)])

    def _acks(self, count: int) -> bytes:
        every = self._ack_every
        tag = count - count % every if every else 0
        if tag <= self._acked:
            return b""
        first, self._acked = self._acked + 1, tag
        return frames.single_acks(CHANNEL, first, tag) if every == 1 else frames.basic_ack(CHANNEL, tag, multiple=True)

    def finish(self, now: int) -> None:
        count = self.counter.count
        if self._ack_every and count > self._acked:
            self._append(frames.basic_ack(CHANNEL, count, multiple=True), now)

    def pump(self, now: int) -> None:
        self.now = now
        if self._unsent:
            self._send(self._unsent)

    def _on_frame(self, kind: int, payload: memoryview) -> None:
        if kind == frames.METHOD and unpack_from(">I", payload)[0] == frames.BASIC_GET_EMPTY:
            self._empty += 1
        else:
            take_signal(self, kind, payload)

    def _on_content(self, header: bytes, size: int, begin: bytes) -> None:
        if self.counter.count % _SAMPLE_EVERY == 0:
            ids = ids_of(header)
            self._contents.check(ids.message_id, ids.correlation_id, size, begin)

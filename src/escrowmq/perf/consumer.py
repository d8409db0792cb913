"""A connection that consumes: counts what comes, and acknowledges every so many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from escrowmq.perf import frames
from escrowmq.perf.connection import Connection
from escrowmq.perf.counting import DeliveryCounter
from escrowmq.perf.peer import Peer
from escrowmq.perf.totals import Totals

CHANNEL = 1


class Consumer(Peer):
    """Consumes from one or more queues on one channel."""

    def __init__(
        self,
        connection: Connection,
        totals: Totals,
        label: str,
        queues: list[str],
        ack_every: int,
        prefetch: int,
        stamped: bool,
    ) -> None:
        """`ack_every` 0: auto-ack; 1: each delivery on its own; more: one acknowledgement for as many or a few more.

        `prefetch` 0: no limit. `stamped`: the bodies begin with the time of publishing.
        """
        super().__init__(connection, totals, label)
        self.queues = queues
        self.ack_every = ack_every
        self.prefetch = prefetch
        self._acked = 0
        self.counter = DeliveryCounter(self.on_frame, self._measure if stamped else None)

    def prepare(self) -> None:
        """Open the channel and set the prefetch limit; to be called before the load."""
        self.connection.call(CHANNEL, frames.channel_open(CHANNEL), frames.CHANNEL_OPEN_OK)
        if self.prefetch:
            self.connection.call(CHANNEL, frames.basic_qos(CHANNEL, self.prefetch), frames.BASIC_QOS_OK)

    def start(self, now: int) -> None:
        """Ask for the deliveries."""
        requests = [
            frames.basic_consume(CHANNEL, queue, f"perf-{number:04d}", self.ack_every == 0)
            for number, queue in enumerate(self.queues)
        ]
        self._append(b"".join(requests), now)

    def parse(self, data: memoryview) -> int:
        before = self.counter.count
        used = self.counter.feed(data)
        count = self.counter.count
        if count > before:
            self.totals.consumed += count - before
            self.totals.consumed_at = self.now
            if self.ack_every and count - self._acked >= self.ack_every:
                self._acknowledge(count - count % self.ack_every)
        return used

    def finish(self, now: int) -> None:
        """Acknowledge what is left over."""
        if self.ack_every and self.counter.count > self._acked:
            self.now = now
            self._acknowledge(self.counter.count)

    def _acknowledge(self, tag: int) -> None:
        if self.ack_every == 1:
            pack = frames.ACK_FRAME.pack
            acks = b"".join(
                [
                    pack(frames.METHOD, CHANNEL, 13, frames.BASIC_ACK, one, 0, frames.FRAME_END)
                    for one in range(self._acked + 1, tag + 1)
                ]
            )
        else:
            acks = frames.basic_ack(CHANNEL, tag, multiple=True)
        self._acked = tag
        self._append(acks, self.now)

    def _append(self, data: bytes, now: int) -> None:
        self._unsent = memoryview(b"".join((self._unsent, data)))
        self.pump(now)

    def pump(self, now: int) -> None:
        self.now = now
        if self._unsent:
            self._send(self._unsent)

    def _measure(self, times: Iterable[int]) -> None:
        now = self.now
        record = self.totals.delivery.record
        for time, number in Counter(times).items():
            record(now - time, number)

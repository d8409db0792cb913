"""Requests and replies over the queue `amq.rabbitmq.reply-to`, which needs no declaration."""

from __future__ import annotations

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.consumer import CHANNEL, Reply
from escrowmq.perf.amqp091.content import Ids, body_frames, ids_of, properties, publish_head
from escrowmq.perf.amqp091.counting import CONSUMER_TAG, DeliveryCounter
from escrowmq.perf.amqp091.signals import take_signal
from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.pace import Pace
from escrowmq.perf.peer import Producer
from escrowmq.perf.publisher import ConfirmingPublisher
from escrowmq.perf.totals import Totals

REPLY_TO = "amq.rabbitmq.reply-to"


class Requester(Producer):
    """Publishes requests, each with its own correlation-id, and takes the replies; they count as confirms.

    The publisher's window is the number of requests without a reply.
    """

    def __init__(self, connection: Connection, totals: Totals, label: str, publisher: ConfirmingPublisher) -> None:
        super().__init__(connection.socket, totals, label)
        self.connection = connection
        self.publisher = publisher
        self._waiting: set[str] = set()
        self._next = 0
        self._correlation_ids: list[str] = []
        self._counter = DeliveryCounter(self._on_frame, self._on_reply, every=True, tagged=False)

    def prepare(self, correlation_ids: list[str]) -> None:
        """Open the channel and listen for replies. `correlation_ids`: those of the publisher's block, in order."""
        self._correlation_ids = correlation_ids
        self.connection.call(CHANNEL, frames.channel_open(CHANNEL), frames.CHANNEL_OPEN_OK)
        consume = frames.basic_consume(CHANNEL, REPLY_TO, f"{CONSUMER_TAG}reply", auto_ack=True)
        self.connection.call(CHANNEL, consume, frames.BASIC_CONSUME_OK)

    @property
    def finished(self) -> bool:
        return not self._unsent and self.publisher.finished

    def due_at(self) -> int | None:
        return None if self._unsent else self.publisher.due_at()

    def set_pace(self, rate: float, starts: list[int]) -> None:
        self.publisher.pace = Pace(rate, starts[0])

    def stop(self) -> None:
        self.publisher.stop()

    def wake(self, now: int) -> None:
        self.pump(now)

    def pump(self, now: int) -> None:
        self.now = now
        if self._unsent and not self._send(self._unsent):
            return
        self.wants_write = False
        while (data := self._take(now)) is not None:
            if not self._send(data):
                return

    def _take(self, now: int) -> memoryview | None:
        before = self.publisher.published
        data = self.publisher.take(now)
        ids = self._correlation_ids
        self._waiting.update(ids[number % len(ids)] for number in range(before, self.publisher.published))
        return data

    def parse(self, data: bytearray, end: int) -> int:
        before = self._counter.count
        used = self._counter.feed(data, end)
        if self._counter.count > before:
            self.totals.confirmed += self._counter.count - before
            self.totals.confirmed_at = self.now
            self.wake(self.now)
        return used

    def _on_frame(self, kind: int, payload: memoryview) -> None:
        take_signal(self, kind, payload)

    def _on_reply(self, header: bytes, _size: int, _begin: bytes) -> None:
        name = ids_of(header).correlation_id
        if name not in self._waiting:
            raise PerfError(f"a reply has the correlation-id {name!r}, but no open request has it")
        self._waiting.remove(name)
        self._next += 1
        self.publisher.on_confirm(self._next, multiple=False, now=self.now)


def replies(frame_max: int, size: int) -> Reply:
    """Makes transient replies of `size` bytes, each with the correlation-id of its request."""
    body = body_frames(CHANNEL, bytes(size), frame_max)
    templates: dict[tuple[str, int], list[bytes]] = {}
    """The bytes before and after the correlation-id, by the reply queue and the length of the id."""

    def template(reply_to: str, length: int) -> list[bytes]:
        placeholder = "-" * length
        listed = properties(LoadMessage(b"", correlation_id=placeholder), delivery_mode=1)
        before, _, after = publish_head(CHANNEL, "", reply_to, size, listed).rpartition(placeholder.encode())
        return [before, after + body]

    def reply(ids: Ids) -> bytes:
        if not ids.reply_to or not ids.correlation_id:
            raise PerfError("the broker delivered a request without reply-to or correlation-id")
        name = ids.correlation_id.encode()
        parts = templates.get((ids.reply_to, len(name)))
        if parts is None:
            parts = templates[ids.reply_to, len(name)] = template(ids.reply_to, len(name))
        return name.join(parts)

    return reply

"""A connection that sends on one link."""

from __future__ import annotations

from typing import Any

from escrowmq.perf.amqp10.connection import LinkConnection, raise_if_closed
from escrowmq.perf.amqp10.publishers import LinkPublisher, Permits
from escrowmq.perf.amqp10.reading import TransferWalk
from escrowmq.perf.errors import PerfError
from escrowmq.perf.pace import Pace
from escrowmq.perf.peer import Producer
from escrowmq.perf.totals import Totals
from escrowmq.wire.amqp10.codec.performatives import Disposition, Flow

_WRITES_A_TURN = 4


class SendingProducer(Producer):
    """Sends the transfers of its publisher as credit, window and outcomes permit."""

    def __init__(
        self,
        connection: LinkConnection,
        totals: Totals,
        label: str,
        publisher: LinkPublisher,
        permits: dict[int, Permits],
    ) -> None:
        """`permits` are those of each link, by the broker's handle."""
        super().__init__(connection.socket, totals, label)
        self.connection = connection
        self.publisher = publisher
        self._permits = permits
        self._answers: list[bytes] = []
        self._walk = TransferWalk(self._on_frame, self._on_payload, every=False)
        for each in permits.values():
            each.open(connection.window)
        early, connection.early = connection.early, []
        for performative in early:
            self._on_frame(performative)
        rest = connection.rest
        used = self._walk.feed(bytearray(rest), len(rest))
        self._filled = len(rest) - used
        self._buffer[: self._filled] = rest[used:]

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
        for _ in range(_WRITES_A_TURN):
            data = self.publisher.take(now)
            if data is None:
                self.wants_write = False
                return
            if not self._send(data):
                return
        self.wants_write = True

    def parse(self, data: bytearray, end: int) -> int:
        used = self._walk.feed(data, end)
        answers, self._answers = self._answers, []
        if answers:
            self._append(b"".join(answers), self.now)
        elif used:
            self.pump(self.now)
        return used

    def _on_frame(self, performative: Any) -> None:
        if isinstance(performative, Disposition):
            answer = self.publisher.on_disposition(performative, self.now)
            if answer:
                self._answers.append(answer)
        elif isinstance(performative, Flow):
            for handle, permits in self._permits.items():
                permits.on_flow(performative, own=performative.handle == handle)
        else:
            raise_if_closed(performative)

    def _on_payload(self, payload: bytes) -> None:
        raise PerfError(f"the broker sent a message to a producer ({self.label})")

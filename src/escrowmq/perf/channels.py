"""A connection that publishes on one or more channels (of AMQP 0-10: sessions)."""

from __future__ import annotations

import socket
from typing import Generic, TypeVar

from escrowmq.perf.errors import PerfError
from escrowmq.perf.pace import Pace
from escrowmq.perf.peer import Producer
from escrowmq.perf.publisher import Publisher
from escrowmq.perf.totals import Totals

_WRITES_A_TURN = 4
"""The most large writes of a producer before the loop serves the other connections."""
P = TypeVar("P", bound=Publisher)


class ChannelProducer(Producer, Generic[P]):
    """Sends the publishes of its publishers, in one write for all channels that are ready."""

    def __init__(self, connected: socket.socket, totals: Totals, label: str, publishers: list[P]) -> None:
        super().__init__(connected, totals, label)
        self.publishers = {publisher.channel: publisher for publisher in publishers}
        self._ready: list[P] = []

    @property
    def finished(self) -> bool:
        return not self._unsent and all(publisher.finished for publisher in self.publishers.values())

    def due_at(self) -> int | None:
        if self._unsent:
            return None
        return min((due for p in self.publishers.values() if (due := p.due_at()) is not None), default=None)

    def set_pace(self, rate: float, starts: list[int]) -> None:
        for publisher, start in zip(self.publishers.values(), starts, strict=True):
            publisher.pace = Pace(rate, start)

    def stop(self) -> None:
        for publisher in self.publishers.values():
            publisher.stop()

    def wake(self, now: int) -> None:
        self._wake(list(self.publishers.values()), now)

    def _wake(self, publishers: list[P], now: int) -> None:
        for publisher in publishers:
            self._queue(publisher)
        self.pump(now)

    def _queue(self, publisher: P) -> None:
        if not publisher.queued:
            publisher.queued = True
            self._ready.append(publisher)

    def pump(self, now: int) -> None:
        self.now = now
        if self._unsent and not self._send(self._unsent):
            return
        for _ in range(_WRITES_A_TURN):
            data = self._gather(now)
            if data is None:
                self.wants_write = False
                return
            if not self._send(data):
                return
        self.wants_write = True

    def _gather(self, now: int) -> memoryview | None:
        ready, self._ready = self._ready, []
        parts: list[memoryview] = []
        for publisher in ready:
            publisher.queued = False
            data = publisher.take(now)
            if data is not None:
                parts.append(data)
                if publisher.room(now) > 0:
                    self._queue(publisher)
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _publisher(self, channel: int) -> P:
        try:
            return self.publishers[channel]
        except KeyError:
            raise PerfError(f"the broker answered on channel {channel}, which is not open") from None

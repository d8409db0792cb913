"""A second connection whose latency shows the effect of the first connection's load."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from bench.brokers import Broker, TimedEscrowMQ
from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.content import body_frames, properties, publish_head
from escrowmq.perf.histogram import Histogram
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.url import parse_url

EVERY_SECONDS = 0.005
_QUEUE = "bench-probe"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """The effects of a load on other connections."""

    turn_ms: float
    """The longest turn of the broker's event loop, in CPU time; 0 if the broker does not record it."""
    latency_ms: float
    """The longest time from a probe's publish to the answer to its get."""
    probes: int


class Probe:
    """Publishes a message and gets it back every few milliseconds until the context ends."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._latencies = Histogram()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._connection = Connection(parse_url(broker.url), "bench probe", timeout=120.0)
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        call = self._connection.call
        call(1, frames.channel_open(1), frames.CHANNEL_OPEN_OK)
        call(1, frames.queue_declare(1, _QUEUE, durable=True), frames.QUEUE_DECLARE_OK)
        if isinstance(self._broker, TimedEscrowMQ):
            self._broker.longest.seconds = 0.0
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._connection.close()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        listed = properties(LoadMessage(b""), delivery_mode=1)
        publish = publish_head(1, "", _QUEUE, 5, listed) + body_frames(1, b"probe", 0)
        request = publish + frames.basic_get(1, _QUEUE, auto_ack=True)
        try:
            while not self._stop.wait(EVERY_SECONDS):
                begin = time.monotonic_ns()
                self._connection.call(1, request, frames.BASIC_GET_OK)
                self._latencies.record(time.monotonic_ns() - begin)
        except Exception as error:  # noqa: BLE001 (raised again in the thread that waits)
            self._error = error

    def result(self) -> Disturbance:
        """Return the effects so far."""
        broker = self._broker
        turn = broker.longest.seconds if isinstance(broker, TimedEscrowMQ) else 0.0
        return Disturbance(turn * 1000, self._latencies.maximum / 1e6, self._latencies.count)

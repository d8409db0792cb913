"""The cost of delivering a lone message to one of many idle consumers, and its growth with their number."""

from __future__ import annotations

import select
import socket
from contextlib import ExitStack

from bench.brokers import Broker
from bench.measure import MeasureError, Measurement
from bench.scenario import Figure, Scenario, Settings
from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.content import body_frames, properties, publish_head
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.url import parse_url

CONSUMERS = 10_000
_CONNECTIONS = 10
_QUEUE = "bench-lone"
_MESSAGES = 1000
_TIMEOUT = 60.0
_BODY = bytes(100)
_END = _BODY + b"\xce"


class LoneMessage(Scenario):
    """Messages are published one at a time, each after the previous one was delivered."""

    def __init__(self) -> None:
        super().__init__(
            "lone",
            (
                Figure("lone.one", "a lone message to one idle consumer, broker CPU", "µs"),
                Figure("lone.many", "— to one of 10,000", "µs", below=150),
                Figure("lone.growth", "— divided by that for one", "", below=1.5),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        one = cpu_of_lone_messages(broker, 1, _MESSAGES)
        many = cpu_of_lone_messages(broker, max(int(CONSUMERS * settings.scale), 100), _MESSAGES)
        return Measurement({"lone.one": one, "lone.many": many, "lone.growth": many / one})

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        cpu_of_lone_messages(broker, 1, 300)


def cpu_of_lone_messages(broker: Broker, consumers: int, messages: int) -> float:
    """Return the broker's CPU time (µs) per message with `consumers` consumers on the queue."""
    with ExitStack() as stack:

        def connect() -> Connection:
            connection = stack.enter_context(Connection(parse_url(broker.url), "bench", _TIMEOUT))
            connection.call(1, frames.channel_open(1), frames.CHANNEL_OPEN_OK)
            return connection

        publisher = connect()
        publisher.call(1, frames.queue_declare(1, _QUEUE, durable=True), frames.QUEUE_DECLARE_OK)
        sockets: list[socket.socket] = []
        for number in range(min(_CONNECTIONS, consumers)):
            connection = connect()
            subscribe = [
                frames.basic_consume(1, _QUEUE, f"lone-{consumer}", auto_ack=True)
                for consumer in range(number, consumers, _CONNECTIONS)
            ]
            connection.calls(1, subscribe, frames.BASIC_CONSUME_OK)
            sockets.append(connection.socket)
        broker.settle()
        listed = properties(LoadMessage(b""), delivery_mode=1)
        publish = publish_head(1, "", _QUEUE, len(_BODY), listed) + body_frames(1, _BODY, 0)
        before = broker.thread_seconds()
        for _ in range(messages):
            publisher.socket.sendall(publish)
            _take_one(sockets)
        spent = broker.thread_seconds() - before
        publisher.call(1, frames.queue_delete(1, _QUEUE), frames.QUEUE_DELETE_OK)
        return spent / messages * 1e6


def _take_one(sockets: list[socket.socket]) -> None:
    """Read one delivery from any of the connections. Raises MeasureError if none arrives."""
    ready, _, _ = select.select(sockets, [], [], _TIMEOUT)
    if not ready:
        raise MeasureError(f"no message arrived within {_TIMEOUT:g} s")
    received = b""
    while not received.endswith(_END):
        data = ready[0].recv(4096)
        if not data:
            raise MeasureError("the broker closed the connection")
        received += data

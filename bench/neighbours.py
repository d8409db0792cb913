"""Neighbours: the latency of one client's steady traffic while another client asks for much at once."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from types import TracebackType
from typing import Final, Protocol, Self

from bench import hostile, operations
from bench.brokers import Broker
from bench.measure import MeasureError, Measurement
from bench.operations import Operation
from bench.scenario import Figure, Scenario, Settings
from bench.stalls import channel_of
from escrowmq import amqp10
from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.content import body_frames, publish_head
from escrowmq.perf.amqp091.counting import CONSUMER_TAG, DeliveryCounter
from escrowmq.perf.errors import PerfError
from escrowmq.perf.histogram import Histogram
from escrowmq.perf.peer import RECEIVE_SIZE
from escrowmq.perf.url import parse_url

P99_MS = 20.0
WORST_MS = 100.0
_BATCH = 25
EVERY_SECONDS = 0.005  # so 5000 messages per second
_EVERY_SECONDS_10 = 0.05  # so 500 messages per second: the client is in Python, and must not take time from the other
_SWITCH_SECONDS = 0.0005
"""The time after which a thread of the benchmark gives way to another one. With Python's 5 ms, the clients that are
measured would wait for the third one in their own process, several times for each batch.
"""
_QUEUE = "bench-neighbour"
_QUEUE_10 = "bench-neighbour-amqp10"


class Trip(Protocol):
    """A batch of messages that a client publishes and consumes, again and again."""

    def make(self) -> None:
        """Publish a batch, and wait until all of it has been delivered."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Trip091:
    """Transient messages over AMQP 0-9-1, to a queue of its own, or to each of `queues` in turn."""

    def __init__(self, broker: Broker, queues: Sequence[str] = ()) -> None:
        self._connection = Connection(parse_url(broker.url), "bench neighbour", operations.TIMEOUT)
        self._counter = DeliveryCounter(lambda *_: None, lambda *_: None)
        heads = [publish_head(1, "", name, 5, operations.LISTED) for name in queues or (_QUEUE,)]
        publishes = cycle([head + body_frames(1, b"hello", 0) for head in heads])
        batches = [b"".join(islice(publishes, _BATCH)) for _ in range(-(-len(heads) // _BATCH))]
        self._batches = cycle(batches)
        self._data = bytearray(RECEIVE_SIZE)
        self._filled = self._sent = 0
        call = self._connection.call
        call(1, frames.channel_open(1), frames.CHANNEL_OPEN_OK)
        if not queues:
            call(1, frames.queue_declare(1, _QUEUE, durable=False), frames.QUEUE_DECLARE_OK)
            call(1, frames.basic_consume(1, _QUEUE, "t", auto_ack=True), frames.BASIC_CONSUME_OK)
        for number, name in enumerate(queues):
            tag = f"{CONSUMER_TAG}{number:04d}"
            call(1, frames.basic_consume(1, name, tag, auto_ack=True), frames.BASIC_CONSUME_OK)

    def make(self) -> None:
        data = self._data
        self._connection.socket.sendall(next(self._batches))
        self._sent += _BATCH
        while self._counter.count < self._sent:
            self._filled += self._connection.socket.recv_into(memoryview(data)[self._filled :])
            used = self._counter.feed(data, self._filled)
            data[: self._filled - used] = data[used : self._filled]
            self._filled -= used

    def close(self) -> None:
        self._connection.socket.close()


class _Trip10:
    """Presettled messages over AMQP 1.0."""

    def __init__(self, broker: Broker) -> None:
        self._client = amqp10.connect(broker.url, timeout=operations.TIMEOUT)
        with channel_of(broker) as connection:
            operations.declared(connection, [_QUEUE_10])
        self._sender = self._client.sender(f"/queues/{_QUEUE_10}", mode="presettled")
        self._receiver = self._client.receiver(f"/queues/{_QUEUE_10}", mode="presettled", credit=10 * _BATCH)
        self._batch = [amqp10.Message(b"hello").encode()] * _BATCH

    def make(self) -> None:
        self._sender.send_many(self._batch)
        left = _BATCH
        while left:
            left -= len(self._receiver.receive_many(left))

    def close(self) -> None:
        self._client.close()


class Neighbour:
    """Makes a trip every few seconds until the context ends, and measures the latency of its messages, in a histogram
    of its own or in `latencies`. It `closes` the client at the end.
    """

    def __init__(
        self, trip: Trip, every_seconds: float, latencies: Histogram | None = None, *, closes: bool = True
    ) -> None:
        self._closes = closes
        self.latencies = Histogram() if latencies is None else latencies
        self._trip = trip
        self._every_seconds = every_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self._closes:
            self._trip.close()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while not self._stop.is_set():
                begin = time.monotonic_ns()
                self._trip.make()
                self.latencies.record(time.monotonic_ns() - begin)
                due = max(due + self._every_seconds, time.monotonic() - 1)
                self._stop.wait(max(due - time.monotonic(), 0))
        except Exception as error:  # noqa: BLE001 (raised again in the thread that waits)
            self._error = error


@contextmanager
def _threads_in_turn() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


OPERATIONS: Final[dict[str, tuple[str, int, Operation]]] = {
    "fanout": ("2,000 publishes to 1,000 queues each", 1000, operations.fanout),
    "exchanges": ("2,000 publishes through 300 exchanges bound to each other", 300, operations.exchanges),
    "headers": ("3,000 bindings of a headers exchange and 200 publishes through them", 3000, operations.headers),
    "list": ("100 lists of 20,000 queues", 20_000, operations.list_queues),
    "consumers": ("10,000 consumers on one queue", 10_000, operations.consumers),
    "commit": ("a commit of 300,000 messages", 300_000, operations.commit),
    "commit-apart": ("a commit of 300,000 messages, each with its own time to live", 300_000, operations.commit_apart),
    "commit-amqp10": ("a commit of 100,000 messages over AMQP 1.0", 100_000, operations.commit_amqp10),
    "decide": ("a decision over 9,000 branches", 9000, operations.decide),
    "reject": ("300,000 deliveries are rejected into another queue at once", 300_000, operations.reject),
    "stream": ("a stream of 60,000 messages that were published singly is read", 60_000, operations.stream),
    "delete": ("a queue with 300,000 messages, and one with 20,000 bindings, are deleted", 20_000, operations.delete),
    "lost": ("a connection with 300,000 unacknowledged is lost", 300_000, operations.lost),
    "lost-links": ("an AMQP 1.0 connection with 4,000 links is lost", 4000, hostile.lost_links),
    "patterns": ("1,000 declarations are checked against a pattern of 25 characters", 1000, hostile.patterns),
    "sockets": ("10,050 connections that never log in", 10_050, hostile.sockets),
    "logins": ("500 wrong logins from as many addresses", 500, hostile.logins),
    "uploads": ("300 uploads of 4 MiB that a user without permissions breaks off", 300, hostile.uploads),
    "held": ("253 MiB of unacknowledged deliveries and 60 MiB in an idle transaction", 253, hostile.held),
    "hung": ("a consumer that reads nothing of 64 MiB", 64, hostile.hung),
    "declares": ("6,000 declarations with arguments of 15 kB", 6000, hostile.declares),
}


class Neighbours(Scenario):
    """One client sends and receives 5,000 messages per second, and another one 500 over AMQP 1.0, while a third does
    one of `OPERATIONS`.
    """

    fresh = True
    peers = ()
    alternations = 1

    def __init__(self, name: str) -> None:
        title, self._size, self._operation = OPERATIONS[name]
        super().__init__(
            f"neighbours-{name}",
            (
                Figure(f"neighbours-{name}", f"latency p99 at 5,000/s beside {title}", "ms", below=P99_MS),
                Figure(f"neighbours-{name}.worst", "— the longest", "ms", below=WORST_MS),
                Figure(f"neighbours-{name}.amqp10", "— p99 at 500/s over AMQP 1.0", "ms", below=P99_MS),
                Figure(f"neighbours-{name}.amqp10-worst", "— the longest", "ms", below=WORST_MS),
            ),
        )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        try:
            first, second = self._beside(broker, settings)
        except PerfError as error:
            raise MeasureError(f"the operation failed: {error}") from error
        figures = {}
        for suffix, worst, found in (("", ".worst", first), (".amqp10", ".amqp10-worst", second)):
            figures[self.name + suffix] = found.percentile(99) / 1e6
            figures[self.name + worst] = found.maximum / 1e6
        return Measurement(figures)

    def _beside(self, broker: Broker, settings: Settings) -> tuple[Histogram, Histogram]:
        """Carry the operation out, and return the latencies of both clients."""
        with channel_of(broker) as connection:
            operation = self._operation(broker, connection, max(int(self._size * settings.scale), 10))
            with (
                _threads_in_turn(),
                Neighbour(Trip091(broker), EVERY_SECONDS) as first,
                Neighbour(_Trip10(broker), _EVERY_SECONDS_10) as second,
            ):
                time.sleep(0.5)
                operation()
                time.sleep(0.5)
        return first.latencies, second.latencies


NEIGHBOURS: tuple[Scenario, ...] = tuple(Neighbours(name) for name in OPERATIONS)

"""Neighbours: the latency of one client's steady traffic while another client asks for much at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from struct import pack
from types import TracebackType
from typing import Final, Protocol, Self

from bench.brokers import Broker
from bench.measure import Measurement
from bench.scenario import BACKLOG, Figure, Scenario, Settings, fill
from bench.stalls import channel_of, lose, take
from escrowmq import amqp10
from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.content import body_frames, properties, publish_head
from escrowmq.perf.amqp091.counting import DeliveryCounter
from escrowmq.perf.histogram import Histogram
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.peer import RECEIVE_SIZE
from escrowmq.perf.url import parse_url

P99_MS = 20.0
WORST_MS = 100.0
_BATCH = 25
EVERY_SECONDS = 0.005  # so 5000 messages per second
_EVERY_SECONDS_10 = 0.05  # so 500 messages per second: the client is in Python, and must not take time from the other
_TIMEOUT = 300.0
_QUEUE = "bench-neighbour"
_QUEUE_10 = "bench-neighbour-amqp10"
_WITH_EXPIRATION = pack(">HB", 0x1100, 1)  # properties with a delivery mode of 1 and an expiration, which follows
_LISTED = properties(LoadMessage(b""), delivery_mode=1)
_NACK = frames.method_id(60, 120)
_EXCHANGE_BIND, _EXCHANGE_BIND_OK = frames.method_id(40, 30), frames.method_id(40, 31)
_LIST, _LIST_OK = frames.method_id(240, 80), frames.method_id(240, 81)


class Trip(Protocol):
    """A batch of messages that a client publishes and consumes, again and again."""

    def make(self) -> None:
        """Publish a batch, and wait until all of it has been delivered."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Trip091:
    """Transient messages over AMQP 0-9-1."""

    def __init__(self, broker: Broker) -> None:
        self._connection = Connection(parse_url(broker.url), "bench neighbour", _TIMEOUT)
        self._counter = DeliveryCounter(lambda *_: None, lambda *_: None)
        self._batch = (publish_head(1, "", _QUEUE, 5, _LISTED) + body_frames(1, b"hello", 0)) * _BATCH
        self._data = bytearray(RECEIVE_SIZE)
        self._filled = self._sent = 0
        call = self._connection.call
        call(1, frames.channel_open(1), frames.CHANNEL_OPEN_OK)
        call(1, frames.queue_declare(1, _QUEUE, durable=False), frames.QUEUE_DECLARE_OK)
        call(1, frames.basic_consume(1, _QUEUE, "t", auto_ack=True), frames.BASIC_CONSUME_OK)

    def make(self) -> None:
        data = self._data
        self._connection.socket.sendall(self._batch)
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
        self._client = amqp10.connect(broker.url, timeout=_TIMEOUT)
        with channel_of(broker) as connection:
            _declared(connection, [_QUEUE_10])
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
    """Makes a trip every few seconds until the context ends, and measures the latency of its messages."""

    def __init__(self, trip: Trip, every_seconds: float) -> None:
        self.latencies = Histogram()
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


def _names(count: int, kind: str) -> list[str]:
    return [f"{kind}-{number:06d}" for number in range(count)]


def _batches(size: int) -> list[int]:
    """Divide `size` messages into numbers that fit into the buffers of the sockets."""
    return [min(1000, size - first) for first in range(0, size, 1000)]


def _publishes(count: int, exchange: str) -> bytes:
    """Return messages with a routing key of their own each."""
    return b"".join(publish_head(1, exchange, f"k{i}", 5, _LISTED) + body_frames(1, b"hello", 0) for i in range(count))


def _declared(connection: Connection, names: list[str], arguments: dict[str, frames.TableValue] | None = None) -> None:
    requests = [frames.queue_declare(1, name, durable=False, arguments=arguments) for name in names]
    connection.calls(1, requests, frames.QUEUE_DECLARE_OK)


def _after(connection: Connection, request: bytes) -> None:
    """Send a request, and wait until the broker has handled it."""
    connection.call(1, request + frames.basic_qos(1, 0), frames.BASIC_QOS_OK)


Operation = Callable[[Broker, Connection, int], Callable[[], object]]
"""Prepares an operation of a size on channel 1 of a connection, and returns the function that carries it out."""


def _fanout(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    names = _names(size, "fanout")
    _declared(connection, names)
    connection.calls(1, [frames.queue_bind(1, name, "amq.fanout") for name in names], frames.QUEUE_BIND_OK)
    return lambda: _after(connection, _publishes(2000, "amq.fanout"))


def _exchanges(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    names = _names(size, "exchange")
    declares = [frames.exchange_declare(1, name, "fanout", durable=False) for name in names]
    connection.calls(1, declares, frames.EXCHANGE_DECLARE_OK)
    binds = [
        frames.method(1, _EXCHANGE_BIND, b"\0\0" + frames.shortstr(a) + frames.shortstr(b) + b"\0\0" + frames.table({}))
        for a in names
        for b in names
    ]
    connection.calls(1, binds, _EXCHANGE_BIND_OK)
    return lambda: _after(connection, _publishes(2000, names[0]))


def _list(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    _declared(connection, _names(size, "list"))
    request = frames.method(1, _LIST, frames.shortstr("a"))
    return lambda: connection.calls(1, [request] * 100, _LIST_OK)


def _consumers(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    _declared(connection, ["consumed"])
    requests = [frames.basic_consume(1, "consumed", name, auto_ack=False) for name in _names(size, "tag")]
    return lambda: connection.calls(1, requests, frames.BASIC_CONSUME_OK)


def _commit(
    broker: Broker, connection: Connection, size: int, props: Callable[[int], bytes] = lambda _: _LISTED
) -> Callable[[], object]:
    _declared(connection, _names(10, "commit"))
    connection.call(1, frames.tx_select(1), frames.TX_SELECT_OK)
    for number, count in enumerate(_batches(size)):
        heads = [publish_head(1, "", f"commit-{i % 10:06d}", 8, props(1000 * number + i)) for i in range(count)]
        _after(connection, b"".join(head + body_frames(1, pack(">Q", number), 0) for head in heads))
    return lambda: connection.call(1, frames.tx_commit(1), frames.TX_COMMIT_OK)


def _commit_apart(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Commit messages of which no two are alike to the broker, because each has its own time to live."""

    def props(number: int) -> bytes:
        return _WITH_EXPIRATION + frames.shortstr(str(3_600_000 + number))

    return _commit(broker, connection, size, props)


def _commit_amqp10(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Commit messages that a client of AMQP 1.0 has posted in a transaction."""
    _declared(connection, ["commit-amqp10"])
    client = amqp10.connect(broker.url, timeout=_TIMEOUT)
    transaction = client.begin()
    sender = client.sender("/queues/commit-amqp10")
    sender.send_many((amqp10.Message(f"hello {number}") for number in range(size)), transaction=transaction)

    def commit() -> None:
        client.commit(transaction)
        client.close()

    return commit


def _reject(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    dead: dict[str, frames.TableValue] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    _declared(connection, ["dead"])
    connection.call(1, frames.queue_declare(1, BACKLOG, durable=True, arguments=dead), frames.QUEUE_DECLARE_OK)
    for count in _batches(size):
        _after(connection, (publish_head(1, "", BACKLOG, 5, _LISTED) + body_frames(1, b"hello", 0)) * count)
    take(connection, size)
    return lambda: _after(connection, frames.method(1, _NACK, pack(">QB", 0, 1)))


def _lost(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    fill(broker, size, load="varied-backlog")
    take(connection, size)
    return lambda: lose(broker, connection, size)


OPERATIONS: Final[dict[str, tuple[str, int, Operation]]] = {
    "fanout": ("2,000 publishes to 1,000 queues each", 1000, _fanout),
    "exchanges": ("2,000 publishes through 300 exchanges bound to each other", 300, _exchanges),
    "list": ("100 lists of 20,000 queues", 20_000, _list),
    "consumers": ("10,000 consumers on one queue", 10_000, _consumers),
    "commit": ("a commit of 300,000 messages", 300_000, _commit),
    "commit-apart": ("a commit of 300,000 messages, each with its own time to live", 300_000, _commit_apart),
    "commit-amqp10": ("a commit of 100,000 messages over AMQP 1.0", 100_000, _commit_amqp10),
    "reject": ("300,000 deliveries are rejected into another queue at once", 300_000, _reject),
    "lost": ("a connection with 300,000 unacknowledged is lost", 300_000, _lost),
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
        with channel_of(broker) as connection:
            operation = self._operation(broker, connection, max(int(self._size * settings.scale), 10))
            with (
                Neighbour(Trip091(broker), EVERY_SECONDS) as first,
                Neighbour(_Trip10(broker), _EVERY_SECONDS_10) as second,
            ):
                time.sleep(0.5)
                operation()
                time.sleep(0.5)
        figures = {}
        for suffix, worst, found in (("", ".worst", first.latencies), (".amqp10", ".amqp10-worst", second.latencies)):
            figures[self.name + suffix] = found.percentile(99) / 1e6
            figures[self.name + worst] = found.maximum / 1e6
        return Measurement(figures)


NEIGHBOURS: tuple[Scenario, ...] = tuple(Neighbours(name) for name in OPERATIONS)

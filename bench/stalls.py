"""Stalls: the longest time for which one client's work keeps the broker from serving all others."""

from __future__ import annotations

import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from bench.brokers import Broker, EscrowMQ
from bench.measure import MeasureError, Measurement, perf
from bench.probe import Probe
from bench.scenario import BACKLOG, Figure, Scenario, Settings, fill
from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.counting import CONSUMER_TAG, DeliveryCounter
from escrowmq.perf.peer import RECEIVE_SIZE
from escrowmq.perf.url import parse_url

LONGEST_MS = 10.0
"""The maximum length of a turn."""
_TIMEOUT = 120.0
_IDLE_SECONDS = 5.0


class Stalls(Scenario):
    """Several situations on one broker, with the longest turn and the longest latency of a probe in each."""

    fresh = True
    peers = ()
    timed = True
    alternations = 1

    def __init__(self, name: str, situations: dict[str, str]) -> None:
        """`situations` are pairs of a short name and a description."""
        figures: list[Figure] = []
        for short, title in situations.items():
            figures.append(Figure(f"{name}.{short}", f"longest turn: {title}", "ms", below=LONGEST_MS))
            figures.append(Figure(f"{name}.{short}-probe", "— longest latency of a probe", "ms"))
        super().__init__(name, tuple(figures))
        self._figures: dict[str, float] = {}

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        self._figures = {}
        self._measure(broker, settings)
        return Measurement(self._figures)

    @abstractmethod
    def _measure(self, broker: Broker, settings: Settings) -> None:
        """Bring about the situations, each within `_watched`."""

    def _watched(self, broker: Broker, short: str, situation: Callable[[], object]) -> None:
        """Probe the broker during a situation, until it is idle again."""
        broker.settle()
        with Probe(broker) as probe:
            situation()
            time.sleep(0.1)
        seen = probe.result()
        self._figures[f"{self.name}.{short}"] = seen.turn_ms
        self._figures[f"{self.name}.{short}-probe"] = seen.latency_ms


class DrainedBacklog(Stalls):
    """5,000,000 varied persistent messages are published, then consumed."""

    def __init__(self) -> None:
        super().__init__(
            "stalls-drain",
            {"fill": "5,000,000 varied persistent are published", "drain": "they are consumed"},
        )

    def _measure(self, broker: Broker, settings: Settings) -> None:
        count = int(5_000_000 * settings.scale)
        self._watched(broker, "fill", lambda: fill(broker, count, load="varied-backlog"))
        drain = ("--producers", "0", "--queue", BACKLOG, "--deadline", "1500")
        self._watched(broker, "drain", lambda: perf(broker, *drain))


class DrainedQueues(Stalls):
    """1,000 queues with 500 varied messages each are drained at once."""

    def __init__(self) -> None:
        super().__init__("stalls-queues", {"drain": "1,000 queues of 500 messages are consumed at once"})

    def _measure(self, broker: Broker, settings: Settings) -> None:
        queues = max(int(1000 * settings.scale), 10)
        load = ("--queues", str(queues), "--random")
        fill(broker, 500 * queues, *load, load="varied-backlog")
        drain = ("--producers", "0", "--queue", BACKLOG, "--queues", str(queues), "--deadline", "1500")
        self._watched(broker, "drain", lambda: perf(broker, *drain))


class RemovedBacklog(Stalls):
    """A backlog is purged; another is deleted with its queue."""

    def __init__(self) -> None:
        super().__init__(
            "stalls-purge",
            {"purge": "1,000,000 varied persistent are purged", "delete": "they are deleted with their queue"},
        )

    def _measure(self, broker: Broker, settings: Settings) -> None:
        count = int(1_000_000 * settings.scale)
        for short, request, answer in (
            ("purge", frames.queue_purge(1, BACKLOG), frames.QUEUE_PURGE_OK),
            ("delete", frames.queue_delete(1, BACKLOG), frames.QUEUE_DELETE_OK),
        ):
            fill(broker, count, load="varied-backlog")
            with channel_of(broker) as connection:
                self._watched(broker, short, partial(connection.call, 1, request, answer))


class ManyQueues(Stalls):
    """Operators inspect a broker with 50,000 queues, and it takes a snapshot."""

    def __init__(self) -> None:
        super().__init__(
            "stalls-many-queues",
            {
                "declare": "50,000 queues are declared",
                "snapshot": "a snapshot with 50,000 queues",
                "status": "escrowmq status with 50,000 queues",
                "list": "escrowmq queues with 50,000 queues",
            },
        )

    def _measure(self, broker: Broker, settings: Settings) -> None:
        count = int(50_000 * settings.scale)
        requests = [frames.queue_declare(1, f"many-{number:06d}", durable=True) for number in range(count)]
        command(broker, "vhost", "limits", "/", "--max-queues", str(2 * count))
        with channel_of(broker) as connection:
            self._watched(broker, "declare", lambda: connection.calls(1, requests, frames.QUEUE_DECLARE_OK))
        self._watched(broker, "snapshot", lambda: command(broker, "journal", "snapshot"))
        self._watched(broker, "status", lambda: command(broker, "status"))
        self._watched(broker, "list", lambda: command(broker, "queues"))


class Unacknowledged(Stalls):
    """One connection has 500,000 unacknowledged messages: a snapshot is taken, then the connection is lost."""

    def __init__(self) -> None:
        super().__init__(
            "stalls-unacked",
            {
                "snapshot": "a snapshot with 500,000 unacknowledged",
                "lost": "a connection with 500,000 unacknowledged is lost",
            },
        )

    def _measure(self, broker: Broker, settings: Settings) -> None:
        count = int(500_000 * settings.scale)
        fill(broker, count, load="varied-backlog")
        with channel_of(broker) as connection:
            take(connection, count)
            self._watched(broker, "snapshot", lambda: command(broker, "journal", "snapshot"))
            self._watched(broker, "lost", lambda: lose(broker, connection, count))


class Connections(Stalls):
    """5,000 connections are idle, and then closed at once."""

    def __init__(self) -> None:
        super().__init__(
            "stalls-connections",
            {
                "idle": f"5,000 idle connections, {_IDLE_SECONDS:g} s",
                "close": "5,000 connections are lost at once",
            },
        )

    def _measure(self, broker: Broker, settings: Settings) -> None:
        target = parse_url(broker.url)
        with ExitStack() as stack:
            connections = [
                stack.enter_context(Connection(target, f"idle {number}", _TIMEOUT))
                for number in range(int(5000 * settings.scale))
            ]
            self._watched(broker, "idle", lambda: time.sleep(_IDLE_SECONDS))
            self._watched(broker, "close", lambda: _close_all(connections))


def channel_of(broker: Broker) -> Connection:
    """Return a connection with channel 1 open, to be used as a context."""
    connection = Connection(parse_url(broker.url), "bench", _TIMEOUT)
    connection.call(1, frames.channel_open(1), frames.CHANNEL_OPEN_OK)
    return connection


def command(broker: Broker, *arguments: str) -> None:
    """Run an `escrowmq` command against a running broker. Raises MeasureError if it fails."""
    if not isinstance(broker, EscrowMQ):
        raise MeasureError(f"{broker.name} has no such command")
    full = [sys.executable, "-m", "escrowmq", *arguments, "--data-dir", str(broker.data_dir)]
    done = subprocess.run(full, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    if done.returncode:
        raise MeasureError(f"escrowmq {' '.join(arguments)}: {done.stderr.strip()}")


def take(
    connection: Connection, count: int, queue: str = BACKLOG, arguments: dict[str, frames.TableValue] | None = None
) -> None:
    """Get all messages of a queue delivered without acknowledging any. `arguments` are those of the consumer."""
    consume = frames.basic_consume(1, queue, f"{CONSUMER_TAG}0000", auto_ack=False, arguments=arguments)
    connection.socket.sendall(consume)
    receive(connection, DeliveryCounter(lambda *_: None, lambda *_: None), count)


def receive(connection: Connection, counter: DeliveryCounter, count: int, size: int = RECEIVE_SIZE) -> None:
    """Read until `counter` has counted this many deliveries. A delivery must fit into `size` octets."""
    data, filled = bytearray(size), 0
    while counter.count < count:
        received = connection.socket.recv_into(memoryview(data)[filled:])
        if not received:
            raise MeasureError("the broker closed the connection")
        filled += received
        used = counter.feed(data, filled)
        data[: filled - used] = data[used:filled]
        filled -= used


def lose(broker: Broker, connection: Connection, count: int) -> None:
    """Cut the connection, and wait until the messages are in their queue again."""
    connection.socket.close()
    give_up = time.monotonic() + _TIMEOUT
    while broker.depth(BACKLOG) != count:
        if time.monotonic() > give_up:
            raise MeasureError("the messages of a lost connection were not requeued")


def _close_all(connections: list[Connection]) -> None:
    for connection in connections:
        connection.socket.close()


STALLS: tuple[Scenario, ...] = (
    DrainedBacklog(),
    DrainedQueues(),
    RemovedBacklog(),
    ManyQueues(),
    Unacknowledged(),
    Connections(),
)

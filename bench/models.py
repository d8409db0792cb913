"""The cost of each model of a transaction: the same row and message by `tx`, half message, XA and exactly-once link."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.brokers import Broker
from bench.measure import MeasureError, Measurement
from bench.model_users import MODELS, QUEUE
from bench.rocketmq_broker import RocketmqEscrowMQ
from bench.scenario import Figure, Scenario, Settings
from escrowmq.client import connect

if TYPE_CHECKING:
    from tests.xa.postgres import PostgreSQL

TITLES: Final = {
    "tx": "`tx`",
    "half": "half messages, by the RocketMQ client for Python",
    "xa": "XA",
    "link": "exactly-once link",
}
USERS: Final = 32
_SHARE: Final = 0.3
"""The part of a measurement's duration for which users of one model work."""
_PIECE: Final = 65_536


class Relay:
    """Forwards connections to a port, and counts round trips: data for the client after data from the client."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.trips = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._target))
                asked = threading.Event()
                for source, target, from_client in ((client, broker, True), (broker, client, False)):
                    for each in (source, target):
                        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    arguments = (source, target, asked, from_client)
                    threading.Thread(target=self._forward, args=arguments, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, asked: threading.Event, is_client: bool) -> None:
        with suppress(OSError), source, target:
            while data := source.recv(_PIECE):
                if is_client:
                    asked.set()
                elif asked.is_set():
                    asked.clear()
                    self.trips += 1
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accept nothing more."""
        self._listener.shutdown(socket.SHUT_RDWR)  # accept() does not notice close()
        self._listener.close()


class Users:
    """A process with the users of one model."""

    def __init__(self, model: str, dsn: str, folder: str, *ports: int) -> None:
        arguments = (model, dsn, folder, str(USERS), *map(str, ports))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.model_users", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._line()

    def work(self, users: int, seconds: float) -> dict[str, Any]:
        """Let users work, or with 0 the one behind the relay, and return what they have done."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{users} {seconds}\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._line())
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            raise MeasureError(errors.strip().splitlines()[-1] if errors.strip() else "a model's users have ended")
        return line

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


class Models(Scenario):
    """One message with one row in PostgreSQL, by each model: one user, and many at once."""

    peers = ()
    own = RocketmqEscrowMQ
    alternations = 3

    def __init__(self) -> None:
        rows = (
            ("rate", "one user", "messages/s"),
            ("many", f"{USERS} users", "messages/s"),
            ("round-trips", "round trips to the broker for one message", ""),
            ("syncs", "syncs of the broker for one message, one user", ""),
            ("syncs-many", f"— {USERS} users", ""),
            ("cpu", "CPU time of the broker for one message, one user", "µs"),
            ("cpu-many", f"— {USERS} users", "µs"),
            ("client-cpu", "CPU time of the client for one message, one user", "µs"),
        )
        figures = (
            Figure(f"models.{key}.{row}", f"{TITLES[key]}: {text}", unit) for key in MODELS for row, text, unit in rows
        )
        super().__init__("models", tuple(figures))

    def warm_up(self, broker: Broker, settings: Settings) -> None:
        """Declare the queue and the topic. Users warm up when they connect."""
        with connect(broker.url) as connection, connection.channel() as channel:
            channel.queue_declare(QUEUE, durable=True)
            channel.exchange_declare(
                QUEUE, "x-partitioned", durable=True, arguments={"x-partitions": 4, "x-message-type": "transaction"}
            )

    def measure(self, broker: Broker, settings: Settings) -> Measurement:
        if not isinstance(broker, RocketmqEscrowMQ):
            raise MeasureError(f"{broker.name} does not have all models")
        figures: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as folder, database(Path(folder)) as server:
            for model in MODELS:
                found = _costs(broker, model, server.url("shop"), settings.duration * _SHARE)
                figures |= {f"models.{model}.{row}": value for row, value in found.items()}
        return Measurement(figures)


@contextmanager
def database(folder: Path) -> Iterator[PostgreSQL]:
    """Start a PostgreSQL with the users' table. Raises MeasureError if it is not installed."""
    from tests.xa.postgres import PostgreSQL, programs

    if programs() is None:
        raise MeasureError("PostgreSQL is not installed")
    with PostgreSQL(folder) as server:
        with server.connect("shop") as connection:
            connection.execute(f"CREATE TABLE {QUEUE} (id bigserial PRIMARY KEY, body bytea)")
        yield server


def _costs(broker: RocketmqEscrowMQ, model: str, dsn: str, seconds: float) -> dict[str, float]:
    found: dict[str, float] = {}
    ports = broker.port, int(broker.grpc_url.rpartition(":")[2])
    relays = tuple(map(Relay, ports))
    with tempfile.TemporaryDirectory() as folder:
        users = Users(model, dsn, folder, *ports, *(relay.port for relay in relays))
        try:
            for count, end in ((1, ""), (USERS, "-many")):
                before, cpu = broker.journal_counters(), broker.thread_seconds()
                done = users.work(count, seconds)
                cpu, after = broker.thread_seconds() - cpu, broker.journal_counters()
                if before is None or after is None or not done["count"]:
                    raise MeasureError(f"{model}: nothing was measured")
                found["many" if end else "rate"] = done["count"] / done["seconds"]
                found[f"syncs{end}"] = (after["syncs"] - before["syncs"]) / done["count"]
                found[f"cpu{end}"] = cpu / done["count"] * 1e6
                if not end:
                    found["client-cpu"] = done["cpu"] / done["count"] * 1e6
            trips = sum(relay.trips for relay in relays)
            done = users.work(0, 0)
            found["round-trips"] = (sum(relay.trips for relay in relays) - trips) / done["count"]
        finally:
            users.end()
            for relay in relays:
                relay.close()
    return found

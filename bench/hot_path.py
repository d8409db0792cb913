"""The broker's own CPU time per message: endpoint, core and journal in one process, without sockets.

python bench/hot_path.py [--count 400000] [--only varied] [--profile]

One connection publishes and one consumes. Each is fed frames in blocks of a thousand messages of about 100 bytes. The
journal is in a new directory and syncs after each turn. Only CPU time is measured, so a busy machine hardly matters.
The frames are encoded beforehand. Loads of varied messages cycle through 50,000 distinct ones.
"""

from __future__ import annotations

import cProfile
import gc
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TypeVar

import click

from escrowmq.core.broker import Broker
from escrowmq.core.recovery.replay import Recovery
from escrowmq.journal.journal import Journal
from escrowmq.journal.storage import FileStorage
from escrowmq.perf.messages import LoadMessage, Variety, messages
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.connection import Connection
from escrowmq.wire.amqp091.frames import PROTOCOL_HEADER, content_frames, method_frame
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.endpoint import Endpoint, EndpointLimits, Peer, Verdict
from escrowmq.wire.formats import FORMATS
from escrowmq.wire.outbox import Piece
from escrowmq.wire.sasl import Credentials
from escrowmq.wire.scram.server import Challenge

BLOCK = 1000
BODY_SIZE = 100
DISTINCT_BLOCKS = 50
"""The number of blocks of distinct messages, which are far more than any cache of the broker holds."""
BINDINGS = 1000
KEYS = 10_000


T = TypeVar("T")


class Host:
    """The server without event loop and threads."""

    mechanisms = ("PLAIN",)
    limits = EndpointLimits()

    def __init__(self, folder: Path) -> None:
        self._writer = ThreadPoolExecutor(1)
        self.journal = Journal.open(FileStorage(folder))
        self.broker = Broker(self.journal, random.Random(1))
        self.broker.formats.update(FORMATS)
        recovery = Recovery(self.broker)
        for lsn, kind, payload, _ in self.journal.replay():
            recovery.apply(lsn, kind, payload)
        recovery.finish()
        broker = self.broker
        broker.directory.add_vhost("/")
        broker.directory.record_access(broker.access.add_user("guest", ""))
        broker.directory.record_access(broker.access.set_permission("guest", "/", ".*", ".*", ".*"))
        self._stirred: dict[Endpoint, None] = {}
        self._holding: dict[Endpoint, None] = {}
        self._unfinished: dict[Endpoint, None] = {}

    def authenticate(self, endpoint: Endpoint, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        done(Verdict(credentials.authcid))

    def challenge(self, mechanism: str, user: str) -> Challenge:
        raise NotImplementedError(f"{mechanism} is not among the mechanisms of this host")

    def secret_key(self, access_key: str) -> bytes:
        return b""

    def check_room(self, endpoint: Endpoint, user: str, vhost: str) -> None:
        """There is room for every connection."""

    def login_judged(self, endpoint: Endpoint, who: str, verdict: Verdict) -> None:
        """There is no log here."""

    def admitted(self, endpoint: Endpoint, user: str, vhost: str) -> None:
        """Nothing here lists connections."""

    def stir(self, endpoint: Endpoint) -> None:
        self._stirred[endpoint] = None

    def await_sync(self, endpoint: Endpoint, *, urgent: bool = True) -> None:
        self._holding[endpoint] = None

    def publishing(self, endpoint: Endpoint) -> None:
        """No resource is exhausted here."""

    def waiting(self, endpoint: Endpoint) -> None:
        """No connection is blocked here."""

    def carry_on(self, endpoint: Endpoint) -> None:
        self._unfinished[endpoint] = None

    def failed(self, endpoint: Endpoint, code: int | str, text: str) -> None:
        """Raise the error that the client would get, because no load here causes one on purpose."""
        raise RuntimeError(f"{code} {text}")

    def common(self, kind: type[T]) -> T:
        return kind()

    def password_changed(self, endpoint: Endpoint, secret: bytes) -> None:
        """No password changes here."""

    def renew(self, endpoint: Endpoint, token: str, done: Callable[[Verdict], None]) -> None:
        """No token is renewed here."""

    def sent(self, pieces: list[Piece]) -> None:
        """No client reads the output here."""

    def close(self) -> None:
        """Close the journal, and end the thread that writes it."""
        self._writer.shutdown()
        self.journal.close()

    def turn(self) -> None:
        """Run turns until everything is synced and all waiting bytes are sent."""
        while True:
            self.broker.engine.turn.end()
            while self._unfinished:
                self._unfinished.popitem()[0].receive(b"")
                self.broker.engine.turn.end()
            batch = self.journal.take_batch(0)
            if batch is not None:
                self._writer.submit(batch.write).result()  # on a thread of its own, as isal needs it (ADR 16)
                self.journal.batch_done(batch)
                self.broker.engine.synced(self.journal.synced_lsn)
                holding, self._holding = self._holding, {}
                for endpoint in holding:
                    endpoint.synced(self.journal.synced_lsn)
            dirty, self._stirred = self._stirred, {}
            for endpoint in dirty:
                self.sent(endpoint.output())
            if batch is None and not self._stirred and not self.broker.engine.turn.unfinished:
                return


UNIFORM = Variety()
VARIED = Variety(spread=40, message_ids=True, correlation_ids=True, timestamps=True, headers=True)


@dataclass(frozen=True)
class Load:
    """A way of publishing and consuming."""

    name: str
    durable: bool = False
    confirms: bool = False
    auto_ack: bool = False
    ack_each: bool = False
    variety: Variety = UNIFORM
    tx: int = 0
    """Publishes per transaction; 0 means no transactions."""
    gets: int = 0
    """Number of messages to fetch at a time with `basic.get`; 0 means to consume."""
    own_key: bool = False
    """Publish to a topic exchange with `BINDINGS` bindings, with `KEYS` routing keys in turn."""
    queues: int = 1
    """Publish each message to a random one of this number of queues."""
    block: int = BLOCK
    """The number of messages that are published and synced together."""
    channels: int = 1
    """The channels of the connection that publishes. Each message is on another one than the message before."""

    @property
    def uniform(self) -> bool:
        """Whether all messages are alike."""
        return self.variety.uniform and not self.own_key and not self.tx and self.queues == 1


LOADS = (
    Load("transient, auto-ack", auto_ack=True),
    Load("transient, acked (multiple)"),
    Load("transient, acked one by one", ack_each=True),
    Load("persistent, confirms, acked (multiple)", durable=True, confirms=True),
    Load("— with bodies of 60 to 140 bytes", durable=True, confirms=True, variety=Variety(spread=40)),
    Load("— with own message-ids", durable=True, confirms=True, variety=Variety(message_ids=True)),
    Load("— to a random one of 400 queues", durable=True, confirms=True, queues=400),
    Load("— to a random one of 10,000 queues", durable=True, confirms=True, queues=10_000),
    Load("persistent, confirms, acked, one at a time", durable=True, confirms=True, block=1),
    Load("persistent, confirms, acked, ten at a time", durable=True, confirms=True, block=10),
    Load("transient, acked, own correlation-id", variety=Variety(correlation_ids=True)),
    Load("transient, acked, own header table", variety=Variety(headers=True)),
    Load("transient, acked, varied", variety=VARIED),
    Load("persistent, confirms, acked, varied", durable=True, confirms=True, variety=VARIED),
    Load("— with own routing keys", durable=True, confirms=True, variety=VARIED, own_key=True),
    Load("transient, basic.get one by one, auto-ack", auto_ack=True, gets=1),
    Load("transient, basic.get pipelined, acked", gets=BLOCK),
    Load("persistent, tx of 100, acked, varied", durable=True, tx=100, variety=VARIED),
    Load("persistent, tx of 1, 64 channels, varied", durable=True, tx=1, variety=VARIED, block=64, channels=64),
)


def connect(host: Host) -> Connection:
    """Return a connection with channel 1 open."""
    connection = Connection(host, Peer("127.0.0.1", 1, loopback=True))
    connection.receive(PROTOCOL_HEADER)
    send(connection, 0, spec.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"))
    send(connection, 0, spec.ConnectionTuneOk(), spec.ConnectionOpen("/"))
    send(connection, 1, spec.ChannelOpen())
    host.turn()
    return connection


def send(connection: Connection, channel: int, *methods: Method) -> None:
    """Pass a client's bytes to the connection."""
    connection.receive(b"".join(method_frame(channel, method) for method in methods))


def measure(load: Load, count: int, profiler: cProfile.Profile | None) -> float:
    """Return the CPU time per message, in microseconds."""
    with tempfile.TemporaryDirectory(prefix="escrowmq-hot-path-") as folder:
        host = Host(Path(folder))
        publisher, consumer = connect(host), connect(host)
        declare(load, host, publisher, consumer)
        publishes = cycle(_publishes(load, min(count // load.block, DISTINCT_BLOCKS)))
        gets = method_frame(1, spec.BasicGet("q", load.auto_ack)) * load.gets
        blocks = [(next(publishes), _acks(load, n * load.block)) for n in range(count // load.block)]
        gc.collect()
        if profiler is not None:
            profiler.enable()
        started = time.process_time()
        for published, acks in blocks:
            publisher.receive(published)
            host.turn()
            for _ in range(load.block // load.gets if load.gets else 0):
                consumer.receive(gets)
                host.turn()
            consumer.receive(acks)
        spent = time.process_time() - started
        if profiler is not None:
            profiler.disable()
        host.turn()
        left = sum(queue.ready for queue in host.broker.directory.vhosts["/"].queues.values())
        host.close()
        if left:
            raise RuntimeError(f"{load.name}: {left} messages were not delivered")
        return spent / count * 1e6


def declare(load: Load, host: Host, publisher: Connection, consumer: Connection) -> None:
    """Declare and bind the queues that the load needs, and subscribe."""
    if load.confirms:
        send(publisher, 1, spec.ConfirmSelect())
    for channel in range(2, load.channels + 1):
        send(publisher, channel, spec.ChannelOpen())
    for channel in range(1, load.channels + 1 if load.tx else 1):
        send(publisher, channel, spec.TxSelect())
    send(
        consumer,
        1,
        spec.BasicQos(prefetch_count=5000),
        *(spec.QueueDeclare(name, durable=True) for name in _names(load)),
    )
    if load.own_key:
        send(consumer, 1, spec.ExchangeDeclare("e", "topic", durable=True))
        send(consumer, 1, *(spec.QueueBind("q", "e", f"region.{number}.*") for number in range(BINDINGS)))
        host.turn()
    if not load.gets:
        send(consumer, 1, *(spec.BasicConsume(name, f"consumer-{name}", no_ack=load.auto_ack) for name in _names(load)))
    host.turn()


def _names(load: Load) -> list[str]:
    return ["q", *(f"q{number}" for number in range(1, load.queues))]


def _publishes(load: Load, blocks: int) -> list[bytes]:
    """Return blocks of publishes; a single one if all messages are alike."""
    if load.uniform:
        return [_publish(load, 0, next(messages(UNIFORM, BODY_SIZE, 1))) * load.block]
    made = enumerate(messages(load.variety, BODY_SIZE, blocks * load.block))
    names, rng = _names(load), random.Random(1)
    return [
        b"".join(_publish(load, number, message, rng.choice(names)) for number, message in islice(made, load.block))
        for _ in range(blocks)
    ]


def _publish(load: Load, number: int, message: LoadMessage, queue: str = "q") -> bytes:
    key = number % KEYS
    exchange, routing_key = ("e", f"region.{key % BINDINGS}.{key // BINDINGS}") if load.own_key else ("", queue)
    properties = Properties(
        headers=None if message.headers is None else {**message.headers},
        delivery_mode=2 if load.durable else 1,
        correlation_id=message.correlation_id,
        message_id=message.message_id,
        timestamp=message.timestamp,
    )
    channel = 1 + number % load.channels
    method = method_frame(channel, spec.BasicPublish(exchange, routing_key))
    commit = method_frame(channel, spec.TxCommit()) if load.tx and (number + 1) % load.tx == 0 else b""
    return method + content_frames(channel, properties.encode(), message.body, 0) + commit


def _acks(load: Load, before: int) -> bytes:
    if load.auto_ack:
        return b""
    if not load.ack_each:
        return method_frame(1, spec.BasicAck(before + load.block, multiple=True))
    return b"".join(method_frame(1, spec.BasicAck(before + n)) for n in range(1, load.block + 1))


@click.command()
@click.option("--count", default=400_000, show_default=True, help="The number of messages of each load.")
@click.option("--only", default="", help="Measure only the loads whose name contains this.")
@click.option("--profile", is_flag=True, help="Print a profile. Profiling makes everything slower.")
def main(count: int, only: str, *, profile: bool) -> None:
    """Print the CPU time per message, in microseconds, for several loads."""
    for load in LOADS:
        if only not in load.name:
            continue
        profiler = cProfile.Profile() if profile else None
        click.echo(f"{load.name:42}{measure(load, count, profiler):6.2f} us")
        if profiler is not None:
            profiler.print_stats("tottime")


if __name__ == "__main__":
    main()

"""What one client asks for at once beside others: much work by few requests."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Final

from bench.brokers import Broker, EscrowMQ
from bench.large_requests import DECIDE_OK, DECIDED, decision
from bench.measure import MeasureError
from bench.scenario import BACKLOG, fill
from bench.stalls import lose, take
from escrowmq import amqp10
from escrowmq.admin.socket.client import ask
from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.content import body_frames, properties, publish_head
from escrowmq.perf.messages import LoadMessage

TIMEOUT: Final = 300.0
_HEADERS = 20
_PREFETCH = 65_535
_WITH_EXPIRATION = pack(">HB", 0x1100, 1)  # properties with a delivery mode of 1 and an expiration, which follows
LISTED = properties(LoadMessage(b""), delivery_mode=1)
_NACK = frames.method_id(60, 120)
_EXCHANGE_BIND, _EXCHANGE_BIND_OK = frames.method_id(40, 30), frames.method_id(40, 31)
_LIST, _LIST_OK = frames.method_id(240, 80), frames.method_id(240, 81)


def names_of(count: int, kind: str) -> list[str]:
    return [f"{kind}-{number:06d}" for number in range(count)]


def batches(size: int) -> list[int]:
    """Divide `size` messages into numbers that fit into the buffers of the sockets."""
    return [min(1000, size - first) for first in range(0, size, 1000)]


def publishes(count: int, exchange: str) -> bytes:
    """Return messages with a routing key of their own each."""
    return b"".join(publish_head(1, exchange, f"k{i}", 5, LISTED) + body_frames(1, b"hello", 0) for i in range(count))


def own_expiration(number: int) -> bytes:
    """Return the properties of a message with a time to live that no other one has."""
    return _WITH_EXPIRATION + frames.shortstr(str(3_600_000 + number))


def declared(
    connection: Connection,
    names: list[str],
    arguments: dict[str, frames.TableValue] | None = None,
    *,
    durable: bool = False,
) -> None:
    """Declare queues."""
    requests = [frames.queue_declare(1, name, durable=durable, arguments=arguments) for name in names]
    connection.calls(1, requests, frames.QUEUE_DECLARE_OK)


def after(connection: Connection, request: bytes) -> None:
    """Send a request, and wait until the broker has handled it."""
    connection.call(1, request + frames.basic_qos(1, 0), frames.BASIC_QOS_OK)


Operation = Callable[[Broker, Connection, int], Callable[[], object]]
"""Prepares an operation of a size on channel 1 of a connection, and returns the function that carries it out."""


def fanout(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    names = names_of(size, "fanout")
    declared(connection, names)
    connection.calls(1, [frames.queue_bind(1, name, "amq.fanout") for name in names], frames.QUEUE_BIND_OK)
    return lambda: after(connection, publishes(2000, "amq.fanout"))


def exchanges(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    names = names_of(size, "exchange")
    declares = [frames.exchange_declare(1, name, "fanout", durable=False) for name in names]
    connection.calls(1, declares, frames.EXCHANGE_DECLARE_OK)
    binds = [
        frames.method(1, _EXCHANGE_BIND, b"\0\0" + frames.shortstr(a) + frames.shortstr(b) + b"\0\0" + frames.table({}))
        for a in names
        for b in names
    ]
    connection.calls(1, binds, _EXCHANGE_BIND_OK)
    return lambda: after(connection, publishes(2000, names[0]))


def list_queues(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    if isinstance(broker, EscrowMQ):
        ask(broker.data_dir, "vhost.limits", name="/", max_queues=2 * size)
    declared(connection, names_of(size, "list"))
    request = frames.method(1, _LIST, frames.shortstr("a"))
    return lambda: connection.calls(1, [request] * 100, _LIST_OK)


def consumers(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    declared(connection, ["consumed"])
    requests = [frames.basic_consume(1, "consumed", name, auto_ack=False) for name in names_of(size, "tag")]
    return lambda: connection.calls(1, requests, frames.BASIC_CONSUME_OK)


def commit(
    broker: Broker, connection: Connection, size: int, props: Callable[[int], bytes] = lambda _: LISTED
) -> Callable[[], object]:
    declared(connection, names_of(10, "commit"))
    connection.call(1, frames.tx_select(1), frames.TX_SELECT_OK)
    for number, count in enumerate(batches(size)):
        heads = [publish_head(1, "", f"commit-{i % 10:06d}", 8, props(1000 * number + i)) for i in range(count)]
        after(connection, b"".join(head + body_frames(1, pack(">Q", number), 0) for head in heads))
    return lambda: connection.call(1, frames.tx_commit(1), frames.TX_COMMIT_OK)


def commit_apart(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Commit messages of which no two are alike to the broker, because each has its own time to live."""
    return commit(broker, connection, size, own_expiration)


def commit_amqp10(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Commit messages that a client of AMQP 1.0 has posted in a transaction."""
    declared(connection, ["commit-amqp10"])
    client = amqp10.connect(broker.url, timeout=TIMEOUT)
    transaction = client.begin()
    sender = client.sender("/queues/commit-amqp10")
    sender.send_many((amqp10.Message(f"hello {number}") for number in range(size)), transaction=transaction)

    def discharge() -> None:
        client.commit(transaction)
        client.close()

    return discharge


def reject(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    dead: dict[str, frames.TableValue] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    declared(connection, ["dead"])
    connection.call(1, frames.queue_declare(1, BACKLOG, durable=True, arguments=dead), frames.QUEUE_DECLARE_OK)
    for count in batches(size):
        after(connection, (publish_head(1, "", BACKLOG, 5, LISTED) + body_frames(1, b"hello", 0)) * count)
    take(connection, size)
    return lambda: after(connection, frames.method(1, _NACK, pack(">QB", 0, 1)))


def lost(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    fill(broker, size, load="varied-backlog")
    take(connection, size)
    return lambda: lose(broker, connection, size)


def headers(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Bind a queue again and again, and publish messages that are compared with every binding and match none."""
    declared(connection, ["compared"])
    found: dict[str, int | str] = dict.fromkeys([f"h{number}" for number in range(_HEADERS)], 1)
    arguments: dict[str, frames.TableValue] = {**found, "never": 1}
    binds = [frames.queue_bind(1, "compared", "amq.headers", str(number), arguments) for number in range(size)]
    listed = properties(LoadMessage(b"", headers=found), delivery_mode=1)
    publish = publish_head(1, "amq.headers", "", 5, listed) + body_frames(1, b"hello", 0)

    def bind_and_publish() -> None:
        connection.calls(1, binds, frames.QUEUE_BIND_OK)
        after(connection, publish * 200)

    return bind_and_publish


def decide(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    declared(connection, [DECIDED], durable=True)
    request = decision(connection, size)
    return lambda: connection.call(1, request, DECIDE_OK)


def stream(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Read a stream in which no two messages share a run, because each has its own time to live."""
    declared(connection, ["read"], {"x-queue-type": "stream"}, durable=True)
    for first in range(0, size, 1000):
        heads = [publish_head(1, "", "read", 5, own_expiration(i)) for i in range(first, min(first + 1000, size))]
        after(connection, b"".join(head + body_frames(1, b"hello", 0) for head in heads))
    connection.call(1, frames.basic_qos(1, _PREFETCH), frames.BASIC_QOS_OK)
    return lambda: take(connection, size, "read", {"x-stream-offset": "first"})


def delete(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Delete queues with many messages and many bindings."""
    declared(connection, ["bound", "full"])
    binds = [frames.queue_bind(1, "bound", "amq.direct", str(number)) for number in range(size)]
    connection.calls(1, binds, frames.QUEUE_BIND_OK)
    for count in batches(15 * size):
        after(connection, (publish_head(1, "", "full", 5, LISTED) + body_frames(1, b"hello", 0)) * count)
    deletes = [frames.queue_delete(1, name) for name in ("full", "bound")]

    def delete_both() -> None:
        answers = connection.calls(1, deletes, frames.QUEUE_DELETE_OK)
        if int.from_bytes(answers[0]) != 15 * size:
            raise MeasureError("the queue was deleted without its messages")

    return delete_both

"""Clients that ask for much, hold much, break off, or never log in, while others are measured.

Each of these operations raises MeasureError or PerfError if it could not be carried out.
"""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from bench.brokers import Broker, EscrowMQ
from bench.measure import MeasureError
from bench.operations import TIMEOUT, after, declared, names_of
from bench.scenario import BACKLOG, MB
from bench.stalls import channel_of, receive
from escrowmq.admin.socket.client import ask
from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.amqp091.content import body_frames, properties, publish_head
from escrowmq.perf.amqp091.counting import CONSUMER_TAG, DeliveryCounter
from escrowmq.perf.amqp10.connection import WINDOW, LinkConnection
from escrowmq.perf.errors import ClosedByBroker
from escrowmq.perf.messages import LoadMessage
from escrowmq.perf.peer import RECEIVE_SIZE
from escrowmq.perf.url import parse_url
from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import SENDER, Attach, Begin, encode_performative
from escrowmq.wire.amqp10.codec.termini import Source, Target

_MIB: Final = 1 << 20
_LISTED: Final = properties(LoadMessage(b""), delivery_mode=1)
_RESET: Final = struct.pack("ii", 1, 0)  # of SO_LINGER: closing resets the connection
_HOLD_SECONDS: Final = 2.0
_PASSWORD: Final = "hostile"
_PATTERN: Final = "(a*)*(a*)*(a*)*(a*)*(a*)b"  # exponential for an engine that backtracks
_PER_ADDRESS: Final = 50
_SPARE_FILES: Final = 500
_UPLOADS_AT_ONCE: Final = 6
_UPLOAD: Final = 4 * _MIB
_UNREAD: Final = _MIB // 2
_LINKS_OF_SESSION: Final = 1000


def _own(broker: Broker) -> EscrowMQ:
    if not isinstance(broker, EscrowMQ):
        raise MeasureError(f"{broker.name} is not attacked in this way")
    return broker


def _user(broker: Broker, name: str, pattern: str) -> Broker:
    """Add a user with a pattern for all three permissions."""
    data_dir = _own(broker).data_dir
    ask(data_dir, "user.add", name=name, password=_PASSWORD, tags=[])
    ask(data_dir, "permission.set", user=name, vhost="/", configure=pattern, write=pattern, read=pattern)
    return broker


def _as(broker: Broker, name: str) -> Connection:
    """A connection of another user, with channel 1 open."""
    target = replace(parse_url(broker.url), user=name, password=_PASSWORD)
    connection = Connection(target, "hostile", TIMEOUT)
    connection.call(1, frames.channel_open(1), frames.CHANNEL_OPEN_OK)
    return connection


def _address(number: int) -> tuple[str, int]:
    """An address of this machine from which to connect."""
    return f"127.1.{number // 250}.{number % 250 + 1}", 0


def _admitted(broker: Broker) -> None:
    """Log in with the right password. Raises PerfError if the broker does not let the client in."""
    with channel_of(broker):
        pass


@contextmanager
def _many_files(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + _SPARE_FILES:
        raise MeasureError(f"this attack needs {count + _SPARE_FILES} open files, and {hard} are allowed (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + _SPARE_FILES), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _exchange(links: LinkConnection, channel: int, performative: Begin | Attach) -> Any:
    """Send a performative, and return the answer of its kind."""
    links.socket.sendall(frame(channel, encode_performative(performative)))
    while not isinstance(answer := links.read(), type(performative)):
        pass
    return answer


def lost_links(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Lose a connection with many AMQP 1.0 links."""
    declared(connection, ["linked"])
    links = LinkConnection(parse_url(broker.url), "hostile links", TIMEOUT)
    for number, name in enumerate(names_of(size, "link")):
        channel, handle = divmod(number, _LINKS_OF_SESSION)
        if channel and not handle:
            _exchange(links, channel, Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
        source, target = Source(address=name), Target(address="/queues/linked")
        attach = Attach(name, handle, SENDER, source=source, target=target, initial_delivery_count=0)
        answer = _exchange(links, channel, attach)
        if answer.target is None:
            raise MeasureError(f"the broker refused {name}")

    def lose() -> None:
        links.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        links.socket.close()
        give_up = time.monotonic() + TIMEOUT
        while any(each["name"] == "hostile links" for each in ask(_own(broker).data_dir, "connection.list")):
            if time.monotonic() > give_up:
                raise MeasureError("the loss of a connection was not noticed")
        time.sleep(_HOLD_SECONDS)

    return lose


def patterns(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Declare queues whose names are compared with a pattern that few engines can bear, and which it refuses."""
    _user(broker, "patterns", _PATTERN)

    def declare() -> None:
        refused = 0
        with _as(broker, "patterns") as client:
            for number in range(size):
                name = f"{'a' * 200}{number}"
                try:
                    client.call(1, frames.queue_declare(1, name, durable=False), frames.QUEUE_DECLARE_OK)
                except ClosedByBroker as error:
                    refused += error.code == 403
                    client.socket.sendall(_CHANNEL_CLOSE_OK)
                    client.call(1, frames.channel_open(1), frames.CHANNEL_OPEN_OK)
        if refused != size:
            raise MeasureError(f"{size - refused} of {size} names were allowed")

    return declare


_CHANNEL_CLOSE_OK: Final = frames.method(1, frames.method_id(20, 41))


def sockets(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Connect from many addresses, and never log in. Others can log in meanwhile."""

    def flood() -> None:
        with _many_files(size), ExitStack() as stack:
            for number in range(size):
                source = _address(number // _PER_ADDRESS)
                client = socket.create_connection(("127.0.0.1", broker.port), TIMEOUT, source_address=source)
                stack.callback(client.close)
            _admitted(broker)
            time.sleep(_HOLD_SECONDS)
            _admitted(broker)

    return flood


def logins(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Log in with a wrong password from many addresses at once. The right one is accepted meanwhile."""

    def guess() -> None:
        with _many_files(size), ExitStack() as stack:
            clients = []
            for number in range(size):
                source = _address(number)
                client = socket.create_connection(("127.0.0.1", broker.port), TIMEOUT, source_address=source)
                stack.callback(client.close)
                client.sendall(frames.PROTOCOL_HEADER + frames.start_ok("guest", "wrong", "hostile"))
                clients.append(client)
            _admitted(broker)
            refused = sum(_is_refused(client) for client in clients)
        if refused != size:
            raise MeasureError(f"{size - refused} of {size} wrong logins were not refused")

    return guess


def _is_refused(client: socket.socket) -> bool:
    """Read until the broker closes the connection. Return whether it said why."""
    data = b""
    while received := client.recv(65536):
        data += received
        if b"ACCESS_REFUSED" in data:
            return True
    return False


def uploads(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Announce large messages as a user without permissions, send a part, and break off."""
    _user(broker, "uploads", "")
    head = publish_head(1, "", "nowhere", 16 * _MIB, _LISTED)
    part = head + body_frames(1, bytes(_UPLOAD), frames.FRAME_MAX)

    def upload() -> None:
        sent = 0
        for first in range(0, size, _UPLOADS_AT_ONCE):
            clients = [_as(broker, "uploads") for _ in range(first, min(first + _UPLOADS_AT_ONCE, size))]
            for client in clients:
                client.socket.sendall(part)
                sent += len(part)
            for client in clients:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                client.socket.close()
        if sent < size * _UPLOAD:
            raise MeasureError("the broker has not read the uploads")

    return upload


def _fill(connection: Connection, queue: str, count: int) -> None:
    """Publish messages of 1 MiB."""
    data = publish_head(1, "", queue, _MIB, _LISTED) + body_frames(1, bytes(_MIB), frames.FRAME_MAX)
    for _ in range(count):
        after(connection, data)


def held(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Hold large deliveries without acknowledging them, and large messages in a transaction that does nothing."""
    declared(connection, [BACKLOG])
    _fill(connection, BACKLOG, size)

    def hold() -> None:
        with channel_of(broker) as consumer, channel_of(broker) as transaction:
            transaction.call(1, frames.tx_select(1), frames.TX_SELECT_OK)
            _fill(transaction, BACKLOG, min(size, 60))
            consumer.socket.sendall(frames.basic_consume(1, BACKLOG, f"{CONSUMER_TAG}0000", auto_ack=False))
            got = _received(consumer, size)
            if got < min(size, 60):
                raise MeasureError(f"only {got} deliveries are held")
            time.sleep(_HOLD_SECONDS)
            _admitted(broker)

    return hold


def _received(connection: Connection, count: int) -> int:
    """Read deliveries until there are `count`, or the broker holds the others back. Return their number."""
    counter = DeliveryCounter(lambda *_: None, lambda *_: None)
    connection.socket.settimeout(_HOLD_SECONDS)
    with suppress(TimeoutError):
        receive(connection, counter, count, max(RECEIVE_SIZE, 2 * _MIB))
    connection.socket.settimeout(TIMEOUT)
    return counter.count


def hung(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Consume large messages without reading any of them."""
    declared(connection, [BACKLOG])
    _fill(connection, BACKLOG, size)

    def hang() -> None:
        client = channel_of(broker)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        with client.socket:
            client.socket.sendall(frames.basic_consume(1, BACKLOG, "hung", auto_ack=True))
            time.sleep(_HOLD_SECONDS)
            unsent = max(each["unsent_bytes"] for each in ask(_own(broker).data_dir, "connection.list"))
            if unsent < min(size * _MIB // 2, _UNREAD):
                raise MeasureError(f"only {unsent / MB:.1f} MB are unsent")

    return hang


def declares(broker: Broker, connection: Connection, size: int) -> Callable[[], object]:
    """Declare durable queues with large arguments."""
    note: dict[str, frames.TableValue] = {"x-note": "n" * 15_000}

    def declare() -> None:
        for name in names_of(size, "declared"):
            connection.call(1, frames.queue_declare(1, name, durable=True, arguments=note), frames.QUEUE_DECLARE_OK)

    return declare

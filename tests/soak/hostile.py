"""Hostile neighbours: clients that ask for much, break off in the middle, or never log in. None cleans up after itself.

Their queues are exclusive, so everything of theirs ends with their connection, and the broker's memory must stay flat.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.connection import Connection
from escrowmq.perf.errors import PerfError
from escrowmq.perf.url import parse_url
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.method import Method
from tests.harness.frames import publish_frames

_TIMEOUT = 120.0
_RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: closing resets the connection
_PLAIN = b"\x00\x00"  # an empty list of properties
_FRAME = 128 << 10
_numbers = count(1)


@dataclass
class Target:
    """A broker under attack. `size` is the number of objects in an attack."""

    url: str
    tls_port: int
    rng: random.Random
    size: int
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def port(self) -> int:
        return parse_url(self.url).port

    @contextmanager
    def client(self) -> Iterator[Connection]:
        """A connection with channel 1 open, which is reset at the end."""
        connection = Connection(parse_url(self.url), "hostile", _TIMEOUT)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        with connection.socket:
            connection.call(1, frames.channel_open(1), frames.CHANNEL_OPEN_OK)
            yield connection

    def knock(self, port: int) -> socket.socket:
        """A connection that does not log in."""
        client = socket.create_connection(("127.0.0.1", port), _TIMEOUT)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        return client


def _frame(method: Method) -> bytes:
    return method_frame(1, method)


def _after(client: Connection, request: bytes) -> None:
    """Send a request, and wait until the broker has handled it."""
    client.call(1, request + frames.basic_qos(1, 0), frames.BASIC_QOS_OK)


def _queues(client: Connection, number: int, **arguments: str) -> list[str]:
    names = [f"hostile-{next(_numbers)}" for _ in range(number)]
    declares = [_frame(spec.QueueDeclare(name, exclusive=True, arguments={**arguments})) for name in names]
    client.calls(1, declares, frames.QUEUE_DECLARE_OK)
    return names


def _publishes(number: int, key: str, exchange: str = "", body: bytes = b"hostile") -> bytes:
    return publish_frames(1, spec.BasicPublish(exchange, key), _PLAIN, body) * number


def fanout(target: Target) -> None:
    """Publish to many queues at once."""
    with target.client() as client:
        binds = [frames.queue_bind(1, name, "amq.fanout") for name in _queues(client, target.size)]
        client.calls(1, binds, frames.QUEUE_BIND_OK)
        client.socket.sendall(_publishes(target.size, "", "amq.fanout"))


def consumers(target: Target) -> None:
    """Subscribe many times to one queue."""
    with target.client() as client:
        (name,) = _queues(client, 1)
        requests = [frames.basic_consume(1, name, f"tag-{i}", auto_ack=False) for i in range(target.size * 5)]
        client.calls(1, requests, frames.BASIC_CONSUME_OK)
        _after(client, _publishes(target.size, name))


def declarations(target: Target) -> None:
    """Declare many queues with long arguments, and list all queues again and again."""
    with target.client() as client:
        _queues(client, target.size * 5, **{"x-note": "n" * 4000})
        client.calls(1, [_frame(spec.EscrowList(""))] * 5, frames.method_id(240, 81))


def transaction(target: Target) -> None:
    """Publish much in a transaction, and commit it or break off."""
    with target.client() as client:
        (name,) = _queues(client, 1)
        client.call(1, frames.tx_select(1), frames.TX_SELECT_OK)
        for _ in range(20):
            _after(client, _publishes(target.size * 2, name))
        if target.rng.random() < 0.5:
            client.call(1, frames.tx_commit(1), frames.TX_COMMIT_OK)


def rejections(target: Target) -> None:
    """Reject many deliveries into another queue at once."""
    with target.client() as client:
        (dead,) = _queues(client, 1)
        (name,) = _queues(client, 1, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
        for _ in range(10):
            _after(client, _publishes(target.size * 2, name))
        for _ in range(target.size):
            client.call(1, frames.basic_get(1, name, auto_ack=False), frames.method_id(60, 71))
        client.socket.sendall(_frame(spec.BasicNack(0, True, False)))


def uploads(target: Target) -> None:
    """Announce a large message, send a part of it, and break off."""
    with target.client() as client:
        whole = publish_frames(1, spec.BasicPublish("", "nowhere"), _PLAIN, bytes(4_000_000))
        client.socket.sendall(whole[: target.rng.randrange(len(whole))])


def held_uploads(target: Target) -> None:
    """Keep messages on many channels incomplete for a second."""
    with target.client() as client:
        for number in range(2, target.size + 2):
            client.call(number, frames.channel_open(number), frames.CHANNEL_OPEN_OK)
            whole = publish_frames(number, spec.BasicPublish("", "nowhere"), _PLAIN, bytes(3 * (_FRAME - 8)), _FRAME)
            client.socket.sendall(whole[:-_FRAME])
        target.stopped.wait(1)


def deaf(target: Target) -> None:
    """Ask for far more than the sockets hold, and read nothing of it."""
    with target.client() as client:
        (name,) = _queues(client, 1)
        for _ in range(target.size):
            _after(client, _publishes(10, name, body=bytes(10_000)))
        client.socket.sendall(frames.basic_consume(1, name, "deaf", auto_ack=False))
        target.stopped.wait(1)


def strangers(target: Target) -> None:
    """Connect and never log in, with and without beginning TLS."""
    with ExitStack() as stack:
        for port in (target.port, target.tls_port):
            for _ in range(target.size):
                client = stack.enter_context(target.knock(port))
                client.sendall(target.rng.choice((b"", b"AMQP", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n")))
        target.stopped.wait(1)


def wrong_logins(target: Target) -> None:
    """Log in with wrong passwords."""
    for _ in range(3):
        with suppress(PerfError):
            wrong = replace(parse_url(target.url), password="wrong")
            Connection(wrong, "hostile", _TIMEOUT).socket.close()


def garbage(target: Target) -> None:
    """Send frames of random bytes."""
    with target.client() as client:
        pieces = [frames.frame(target.rng.randrange(1, 9), 1, target.rng.randbytes(200)) for _ in range(20)]
        client.socket.sendall(b"".join(pieces))


ATTACKS: Final[tuple[Callable[[Target], None], ...]] = (
    *(fanout, consumers, declarations, transaction, rejections),
    *(uploads, held_uploads, deaf, strangers, wrong_logins, garbage),
)


class Hostile(threading.Thread):
    """Attacks a broker, with one attack after the other in random order, until `Target.stopped`."""

    def __init__(self, target: Target) -> None:
        super().__init__(daemon=True)
        self.attacks = dict.fromkeys((attack.__name__ for attack in ATTACKS), 0)
        self._target = target

    def run(self) -> None:
        while not self._target.stopped.is_set():
            for attack in self._target.rng.sample(ATTACKS, len(ATTACKS)):
                if self._target.stopped.is_set():
                    return
                with suppress(PerfError, OSError):  # the broker may close any of these connections
                    attack(self._target)
                    self.attacks[attack.__name__] += 1

"""Clients and servers for the tests beside this file: real frames, no sockets."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

from escrowmq.core.access.grant import Grant
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.frames import PROTOCOL_HEADER, frame, header_frame, method_frame
from escrowmq.wire.amqp091.handshake import State
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.table import FieldTable
from escrowmq.wire.endpoint import Endpoint, EndpointLimits, Verdict
from escrowmq.wire.sasl import Credentials
from tests.harness.client import SimClient
from tests.harness.contents import body_of
from tests.harness.server import Options, SimServer

PERSISTENT = Properties(delivery_mode=2).encode()


T = TypeVar("T")


class Server(SimServer):
    """A server with a password file, which may answer late, and a list of the calls that it received."""

    def __init__(self, options: Options | None = None, storage: MemoryStorage | None = None) -> None:
        self.storage = storage or MemoryStorage(random.Random(1))
        super().__init__(self.storage, options)
        self.slow = False
        self.logins: list[Callable[[], None]] = []
        self.publishers: list[object] = []
        self.waiters: list[object] = []
        self.faults: list[tuple[Any, str]] = []
        self.verdicts: list[tuple[str, Verdict]] = []
        self.grants: dict[str | None, Grant] = {}  # what tokens grant; the user is the one that the client names
        self.secrets: list[tuple[str, bytes]] = []
        self.users: dict[Endpoint, str] = {}
        self.admissions: list[tuple[str, str]] = []

    def authenticate(self, endpoint: Endpoint, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        proof = credentials.proof
        fits = proof.fits() if proof is not None else credentials.password == credentials.authcid
        known = fits and credentials.authcid in self.broker.access.users
        verdict = Verdict(credentials.authcid) if known else Verdict(None, "wrong")
        if credentials.password in self.grants:
            verdict = Verdict(credentials.authcid, grant=self.grants[credentials.password])
        if self.slow:
            self.logins.append(lambda: done(verdict))
        else:
            done(verdict)

    def publishing(self, endpoint: object) -> None:
        self.publishers.append(endpoint)

    def waiting(self, endpoint: object) -> None:
        self.waiters.append(endpoint)

    def failed(self, endpoint: object, code: int | str, text: str) -> None:
        self.faults.append((code, text))

    def login_judged(self, endpoint: Endpoint, who: str, verdict: Verdict) -> None:
        self.verdicts.append((who, verdict))

    def common(self, kind: type[T]) -> T:
        return kind()

    def password_changed(self, endpoint: Endpoint, secret: bytes) -> None:
        self.secrets.append((self.users[endpoint], secret))

    def renew(self, endpoint: Endpoint, token: str, done: Callable[[Verdict], None]) -> None:
        grant = self.grants.get(token)
        verdict = Verdict(grant.user, grant=grant) if grant is not None else Verdict(None, "wrong")
        if self.slow:
            self.logins.append(lambda: done(verdict))
        else:
            done(verdict)

    def admitted(self, endpoint: Endpoint, user: str, vhost: str) -> None:
        self.users[endpoint] = user
        self.admissions.append((user, vhost))

    def login_done(self) -> None:
        """Complete the pending password check."""
        self.logins.pop(0)()
        self.end_turn()

    def after(self, ms: int) -> None:
        """End a turn `ms` milliseconds later."""
        self.now += ms
        self.broker.engine.now = self.now
        self.end_turn()
        self.run_disk()


def server(
    *,
    users: tuple[str, ...] = ("guest",),
    resident_limit: int = 1 << 20,
    storage: MemoryStorage | None = None,
    **limits: Any,
) -> Server:
    """Keyword arguments are those of `EndpointLimits`."""
    options = Options(limits=EndpointLimits(**limits), users=users, resident_limit=resident_limit)
    return Server(options, storage)


def pair(**limits: Any) -> tuple[Server, SimClient]:
    """Return a server, and a client that has opened channel 1."""
    made = server(**limits)
    client = SimClient(made)
    client.open_channel(1)
    return made, client


def queue(client: SimClient, name: str = "q", arguments: FieldTable | None = None) -> None:
    client.declare(1, name, arguments=arguments or {})


def consuming(prefetch: int = 0, *published: bytes) -> tuple[Server, SimClient]:
    """Return a client whose channel 1 publishes to `q` and whose channel 2 consumes from it."""
    made, client = pair()
    queue(client)
    client.open_channel(2, prefetch=prefetch)
    client.call(2, spec.BasicConsume("q", "t"), spec.BasicConsumeOk)
    if published:
        client.publish(1, "q", *published)
    return made, client


def fails_channel(client: SimClient, channel: int, code: int, *words: str) -> spec.ChannelClose:
    """Expect that the server closes the channel with this code; answer with close-ok."""
    closed = client.expect(channel, spec.ChannelClose)
    assert closed.reply_code == code, closed
    assert closed.reply_text.startswith(codes.REPLY_NAMES[code])
    for word in words:
        assert word in closed.reply_text
    client.send(channel, spec.ChannelCloseOk())
    return closed


def fails_connection(client: SimClient, code: int, *words: str) -> spec.ConnectionClose:
    """Expect that the server closes the connection with this code; answer with close-ok."""
    closed = client.expect(0, spec.ConnectionClose)
    assert closed.reply_code == code, closed
    for word in words:
        assert word in closed.reply_text
    client.send(0, spec.ConnectionCloseOk())
    assert client.port.endpoint.state is State.CLOSED
    return closed


def bodies(made: SimServer, name: str = "q") -> list[bytes]:
    """Return the bodies of the ready messages in a queue."""
    queue = made.broker.directory.vhost("/").queue(name)
    entries = []
    while len(queue.order):
        entries += queue.order.take(1000)
    queue.order.put_back(entries)
    return [body_of(entry) for entry in entries]


def opening(tune: spec.ConnectionTuneOk | None = None, user: str = "guest") -> bytes:
    """Return everything that a client sends until its connection is open."""
    methods = (
        spec.ConnectionStartOk({}, "PLAIN", f"\0{user}\0{user}".encode(), "en_US"),
        tune or spec.ConnectionTuneOk(0, 0, 0),
        spec.ConnectionOpen("/"),
    )
    return PROTOCOL_HEADER + b"".join(method_frame(0, method) for method in methods)


def message(channel: int, body: bytes, props: bytes = PERSISTENT, key: str = "q") -> list[bytes]:
    """Return the frames of a publish."""
    room = 4096 - 8
    pieces = [body[at : at + room] for at in range(0, len(body), room)]
    return [
        method_frame(channel, spec.BasicPublish("", key)),
        header_frame(channel, props, len(body)),
        *(frame(codes.FRAME_BODY, channel, piece) for piece in pieces),
    ]

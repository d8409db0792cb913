"""The interface between a protocol and the server: the calls that each may make on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from escrowmq.core.access.grant import Grant
from escrowmq.core.branches.branch import Limits
from escrowmq.core.broker import Broker
from escrowmq.wire.outbox import Piece
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.sasl import Credentials
from escrowmq.wire.scram.server import Challenge

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Peer:
    """The other end of a connection.

    `certificate_user` is the name in a verified TLS client certificate (SASL EXTERNAL), or None without one.
    `local_host` is the broker's own numeric address on this connection. `is_request` is true for a single request of
    HTTP, whose logins are not worth a line in the log. Its port is 0 if a proxy did not name it.
    """

    host: str
    port: int
    loopback: bool = False
    tls: bool = False
    certificate_user: str | None = None
    local_host: str = ""
    is_request: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """The limits of a connection. Sizes are in bytes, the heartbeat is in seconds (0: no heartbeat)."""

    channels: int = 2047
    frame_max: int = 131_072
    message_size: int = 134_217_728
    header_size: int = 131_072
    arguments: int = 16_384  # of one declaration, binding or subscription
    heartbeat: int = 60
    outbox: int = 1 << 20  # unsent bytes above which a connection gets no more deliveries
    links: int = 1024  # of one session of AMQP 1.0
    link_credit: int = 5000  # messages that an AMQP 1.0 producer may send ahead of their answers
    session_window: int = 65_536  # transfer frames that a client may send ahead of the broker's flow
    unsettled: int = 1_000_000  # deliveries that one link of AMQP 1.0 may leave unsettled
    session_timeout: int = 600  # seconds for which a detached session of AMQP 0-10 is kept at most; 0: it is not
    transactions: int = 1000  # open at once on one connection of AMQP 1.0
    subscriptions: int = 1024  # of the consumers of one connection of RocketMQ remoting
    auto_create: bool = True  # whether AMQP 1.0 clients create missing nodes by plain names, if they may declare them
    federation_tag: str = ""  # the broker's identity for clients of AMQP 0-10
    rabbitmq_version: str = ""  # the version of RabbitMQ as which AMQP 1.0 clients are answered; empty for our own name
    transaction: Limits = field(default_factory=Limits)
    rocketmq: RocketmqOptions = field(default_factory=RocketmqOptions)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a login: the user's name, or the reason for the refusal. `grant` has the user's rights if they come
    from a token; otherwise the list of users has them.
    """

    user: str | None
    reason: str = ""
    grant: Grant | None = None


class Host(Protocol):
    """The part of the server that an endpoint may call."""

    @property
    def broker(self) -> Broker: ...

    @property
    def limits(self) -> EndpointLimits: ...

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """SASL mechanisms on offer, the preferred one first."""
        ...

    def challenge(self, mechanism: str, user: str) -> Challenge:
        """Return the challenge for a login of `user`, which may not exist, by a mechanism of SCRAM."""
        ...

    def authenticate(self, endpoint: Endpoint, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        """Check a login. `done` is called with the verdict, either at once or in a later turn."""
        ...

    def secret_key(self, access_key: str) -> bytes:
        """Return the secret key of an access key, which need not exist."""
        ...

    def check_room(self, endpoint: Endpoint, user: str, vhost: str) -> None:
        """Raises BrokerError (NOT_ALLOWED) if a limit on connections keeps `user` from entering `vhost` now."""
        ...

    def login_judged(self, endpoint: Endpoint, who: str, verdict: Verdict) -> None:
        """Log the verdict on a login that `endpoint` has decided by itself. `who` names the client, for a refusal."""
        ...

    def admitted(self, endpoint: Endpoint, user: str, vhost: str) -> None:
        """The login is complete: `endpoint` serves `user` in the virtual host `vhost`.

        The server closes a connection whose endpoint is not admitted within the time for logins.
        """
        ...

    def stir(self, endpoint: Endpoint) -> None:
        """`endpoint` has output. The server calls its `output` at the end of this turn."""
        ...

    def await_sync(self, endpoint: Endpoint, *, urgent: bool = True) -> None:
        """`endpoint` holds output that waits for the log. The server calls its `synced` at each sync until it returns
        False. Unless the output is `urgent`, it does not by itself hasten the next sync.
        """
        ...

    def publishing(self, endpoint: Endpoint) -> None:
        """Note that `endpoint` publishes. The server blocks it while memory or disk space is short."""
        ...

    def waiting(self, endpoint: Endpoint) -> None:
        """Note that `endpoint` is blocked and holds a publish back.

        The server reads nothing more for it until the block ends, and then continues with `receive(b"")`.
        """
        ...

    def carry_on(self, endpoint: Endpoint) -> None:
        """`endpoint` has done as much work as one turn allows (`Engine.requests`), and keeps bytes or a request back.

        The server reads nothing more for it in this turn, and continues with `receive(b"")` in the next one.
        """
        ...

    def failed(self, endpoint: Endpoint, code: int | str, text: str) -> None:
        """Log that a link, a channel or the connection was closed for a fault of the peer, or at a limit. `code` is the
        protocol's number or name of the error.
        """
        ...

    def common(self, kind: type[T]) -> T:
        """Return the one object of the class `kind` that all endpoints share. It is made when it is first asked for."""
        ...

    def password_changed(self, endpoint: Endpoint, secret: bytes) -> None:
        """Note that the client sent a new secret (`connection.update-secret`, `PUT /auth/tokens`), which does not
        change the password.
        """
        ...

    def renew(self, endpoint: Endpoint, token: str, done: Callable[[Verdict], None]) -> None:
        """Check a new token of a client that has logged in by one. `done` is called with the verdict, either at once or
        in a later turn. If it has the same user, the connection ends with the new token instead of the old one.
        """
        ...


class Endpoint(Protocol):
    """The protocol of one connection. No method raises for bytes that a peer sends; faults are answered in the
    protocol.
    """

    label: str
    """Peer, user and the client's name, for logs and lists."""

    large_bodies: bool
    """Whether the last publish had a large body. The server then reads more bytes at once."""

    @property
    def unread(self) -> int:
        """The number of bytes that were received and wait to be read."""
        ...

    answered: bool
    """Whether the client's publishes are answered. Such a client waits for answers, so it is not read in smaller pieces
    while publishers outpace consumers."""

    def receive(self, data: bytes) -> None:
        """Process bytes from the socket. Empty `data` means to continue with the bytes that were held back."""
        ...

    def output(self) -> list[Piece]:
        """Return the bytes to send now, in order. The server calls it once at the end of a turn, after `Host.stir`.

        Small outputs are joined into one piece. Large pieces are sent without a copy, so they must not change.
        """
        ...

    @property
    def finished(self) -> bool:
        """Whether the connection is to be closed when the last `output` is sent."""
        ...

    def synced(self, lsn: int) -> bool:
        """Release output that waited for a sync up to `lsn`. Return True while output is still held."""
        ...

    def congested(self, unsent: int) -> None:
        """Note that `unsent` bytes wait in the socket's buffer. Called after notable changes, and with 0 when all are
        sent.
        """
        ...

    def block(self, reason: str) -> None:
        """Stop accepting publishes (`connection.blocked`), because the server has no room. An empty reason ends the
        block.

        The next publish and everything behind it wait (`Host.waiting`).
        """
        ...

    def tick(self, now_ms: int, idle_in_ms: int, idle_out_ms: int) -> None:
        """Called about once a second, to send heartbeats and to give up on a silent peer."""
        ...

    def permissions_changed(self) -> Iterator[None]:
        """The permissions of the user were changed: end consumers of queues that the user may no longer read. Yield
        after each one that was checked. The connection may end in between; then nothing more is done.
        """
        ...

    def shut(self, text: str) -> None:
        """Close the connection in the protocol, because the server stops or an operator requests it."""
        ...

    def lost(self) -> None:
        """Return everything that the lost connection holds, and free its memory. Called exactly once for each
        connection; no other call follows.
        """
        ...

    def describe(self) -> dict[str, object]:
        """Peer, user, virtual host, state, channels and client properties, for lists of connections."""
        ...

    def channel_rows(self) -> Iterator[dict[str, object]]:
        """Yield an entry for each channel or session, for lists. Some may end while the entries are made."""
        ...

"""Between a protocol and the server: what each asks of the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from escrowmq.core.branches.branch import Limits
from escrowmq.core.broker import Broker
from escrowmq.wire.outbox import Piece
from escrowmq.wire.sasl import Credentials


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a connection.

    `certificate_user` is the name that a verified TLS client certificate gives (SASL EXTERNAL), None without one.
    """

    host: str
    port: int
    loopback: bool = False
    tls: bool = False
    certificate_user: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """What a connection may ask for. Sizes in bytes, the heartbeat in seconds, 0 for none."""

    channels: int = 2047
    frame_max: int = 131_072
    message_size: int = 134_217_728
    header_size: int = 131_072
    heartbeat: int = 60
    outbox: int = 1 << 20  # unsent bytes above which a connection gets no more deliveries
    transaction: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a login: the user's name, or why not."""

    user: str | None
    reason: str = ""


class Host(Protocol):
    """What an endpoint asks of the server."""

    @property
    def broker(self) -> Broker: ...

    @property
    def limits(self) -> EndpointLimits: ...

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """SASL mechanisms on offer, the preferred one first."""
        ...

    def authenticate(self, endpoint: Endpoint, credentials: Credentials, done: Callable[[Verdict], None]) -> None:
        """Check a login; `done` is called later, in a turn of its own or at once."""
        ...

    def admitted(self, endpoint: Endpoint, user: str, vhost: str) -> None:
        """The login is complete: `endpoint` serves `user` in the virtual host `vhost`.

        The server closes a connection whose endpoint is not admitted within the time for logins.
        """
        ...

    def stir(self, endpoint: Endpoint) -> None:
        """`endpoint` has output: its `output` is to be called at the end of this turn."""
        ...

    def await_sync(self, endpoint: Endpoint) -> None:
        """`endpoint` holds output that waits for the log: call its `synced` at each sync until it says False."""
        ...

    def publishing(self, endpoint: Endpoint) -> None:
        """`endpoint` publishes: it is one of those to be blocked while memory or disk run short."""
        ...

    def waiting(self, endpoint: Endpoint) -> None:
        """`endpoint` is blocked and keeps a publish back: read nothing more for it until it is not, then let it read
        on with `receive(b"")`.
        """
        ...

    def failed(self, endpoint: Endpoint, code: int, text: str) -> None:
        """A channel or the connection was closed for a fault of the peer, a limit among them: worth a line."""
        ...

    def password_changed(self, endpoint: Endpoint, secret: bytes) -> None:
        """A new secret for the user of `endpoint` (`connection.update-secret`; no effect for passwords)."""
        ...


class Endpoint(Protocol):
    """One connection's protocol. Never raises for what a peer sends; a peer's fault is answered in the protocol."""

    label: str
    """For logs and lists: peer, user, client's name."""

    def receive(self, data: bytes) -> None:
        """Bytes came in; with none, go on with what was kept back."""
        ...

    def output(self) -> list[Piece]:
        """What is to be sent now, in order; called once at the end of a turn after `Host.stir`.

        Small outputs are joined into one piece. Large pieces are sent from where they lie, so they must not change.
        """
        ...

    @property
    def finished(self) -> bool:
        """When the last `output` is sent, the connection is to be closed."""
        ...

    def synced(self, lsn: int) -> bool:
        """The log is on disk up to `lsn`. True while output is still held."""
        ...

    def congested(self, unsent: int) -> None:
        """`unsent` bytes wait in the socket's buffer; called when that changes notably, with 0 when all is sent."""
        ...

    def block(self, reason: str) -> None:
        """The server takes no publishes for now (`connection.blocked`): the next one and all behind it wait
        (`Host.waiting`). An empty reason ends that.
        """
        ...

    def tick(self, now_ms: int, idle_in_ms: int, idle_out_ms: int) -> None:
        """Called about once a second: heartbeats, and giving up on a peer that is silent."""
        ...

    def shut(self, text: str) -> None:
        """The server is going down or an operator closes the connection: say so in the protocol."""
        ...

    def lost(self) -> None:
        """The connection is gone. Called once, always."""
        ...

    def describe(self) -> dict[str, object]:
        """For lists of connections: peer, user, vhost, state, channels, client properties."""
        ...

"""The broker process as the admin service sees it. The server implements these ports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from escrowmq.core.access.grant import Grant
from escrowmq.core.access.permissions import PasswordHashes
from escrowmq.core.broker import Broker
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.watch import ChangeWatch

if TYPE_CHECKING:
    from escrowmq.admin.events import LiveEvents

T = TypeVar("T")


class OpenConnection(Protocol):
    """A client's connection."""

    watched: bool
    """Whether the next change of what lists show is to be noted (`core.watch`)."""

    @property
    def ident(self) -> int:
        """A number that no other connection has had since the broker started."""
        ...

    @property
    def address(self) -> str:
        """The client's address, HOST:PORT."""
        ...

    @property
    def local_address(self) -> str:
        """The broker's address on this connection, HOST:PORT; empty if it is not known, or no longer."""
        ...

    @property
    def opened_ms(self) -> int:
        """The time at which the connection was accepted, in milliseconds since the epoch."""
        ...

    @property
    def unsent(self) -> int:
        """Bytes that wait in the buffer of the socket."""
        ...

    @property
    def held_back_by(self) -> Sequence[str]:
        """The reasons why the connection is not being read; empty if it is."""
        ...

    @property
    def user(self) -> str:
        """The user that has logged in; empty before that."""
        ...

    @property
    def vhost(self) -> str:
        """The virtual host that the client has opened; empty before that."""
        ...

    def describe(self) -> dict[str, object]:
        """Return protocol, state and other properties for a list of connections, for JSON."""
        ...

    def channel_rows(self) -> Iterator[dict[str, object]]:
        """Yield a row for each channel or session, for JSON. Some may end while the rows are made."""
        ...

    def permissions_changed(self) -> Iterator[None]:
        """End the consumers of queues that the user may no longer read."""
        ...

    def dismiss(self, reason: str) -> None:
        """Close the connection, and tell the client the reason if its protocol is already known."""
        ...


class BrokerProcess(Protocol):
    """The process around the broker: its turns, connections, journal and passwords."""

    @property
    def broker(self) -> Broker: ...

    @property
    def connections(self) -> Collection[OpenConnection]:
        """Open connections, oldest first."""
        ...

    def watch_connections(self, watch: ChangeWatch[OpenConnection]) -> None:
        """Note in `watch` which connections change, are new, or are closed."""
        ...

    @property
    def live_events(self) -> LiveEvents:
        """What has happened and left no record in the journal."""
        ...

    @property
    def synced_lsn(self) -> int:
        """The LSN below which everything is on disk."""
        ...

    @property
    def arguments_size(self) -> int:
        """The limit of the arguments of an object or a binding, in bytes."""
        ...

    def replication(self) -> dict[str, Any] | None:
        """Return how this node stands on the replicated log, for JSON; None if its journal is on none."""
        ...

    @property
    def cut_off(self) -> bool:
        """Whether this node accepts no clients, since the replicated log does not answer and another node may lead."""
        ...

    def hand_over(self) -> None:
        """Stop leading, so that another node takes over. The journal is on a replicated log.

        Raises OperationRefused if this node could not begin again.
        """
        ...

    def begin(self) -> None:
        """Begin a turn, unless one has begun. Must be called before each change and each call on a connection."""
        ...

    async def turn(self) -> None:
        """Begin a turn, unless one has begun, and wait until it has ended."""
        ...

    async def durably(self, change: Callable[[], T]) -> T:
        """Make a change in a turn, wait until it is on disk, and return its result. The record of the operation that
        makes it (`admin.action`) becomes durable together with it.
        """
        ...

    async def prove(self) -> None:
        """Return when it is certain that no other broker led when this call began.

        Without replication, that is at once. Raises OperationRefused if the replicated log does not answer.
        """
        ...

    def secret_key(self, access_key: str) -> str:
        """Return the secret key of an access key."""
        ...

    async def hash_password(self, password: str) -> PasswordHashes:
        """Return the forms in which a password is stored."""
        ...

    async def snapshot(self, *, compact: bool) -> str:
        """Take a snapshot, with `compact` after a compaction. Return the reason of a failure, or an empty text."""
        ...

    async def log_in(self, address: str, port: int, user: str, password: str) -> str:
        """Check a password that came over HTTP from `address` and `port` (0: unknown). Return the reason of a refusal,
        or an empty text.
        """
        ...

    @property
    def host(self) -> str:
        """The name of the machine."""
        ...

    async def log_in_by_token(self, address: str, port: int, token: str) -> Grant | str:
        """Check a token in the same way. Return what it grants, or the reason of a refusal."""
        ...

    def counters(self) -> dict[str, Any]:
        """Return what only the process counts: the host's name, blocked publishers, and the journal's syncs by time,
        for JSON.
        """
        ...

    def readable(self, envelope: Envelope, content: bytes, *, whole: bool) -> dict[str, Any]:
        """Return tag, keys, properties and body of a message, for JSON. Without `whole`, a long body is cut."""
        ...

    def composed(self, exchange: str, routing_key: str, properties: Mapping[str, Any], user: str) -> Envelope:
        """Return the envelope of a message with these properties of AMQP 0-9-1, in JSON, whose content is its body.
        `user` publishes it, if it is not empty. Raises INVALID_ARGUMENT, PRECONDITION_FAILED.
        """
        ...

    def delivered(self, envelope: Envelope, content: bytes) -> tuple[str, dict[str, Any], bytes]:
        """Return routing key, properties in JSON, and body of a message, as a client of AMQP 0-9-1 would get them."""
        ...

    def figures(self) -> dict[str, Any]:
        """Return version, load, memory, disk, alarms and journal, for JSON."""
        ...

"""A broker process for the tests of administration: the simulated server, and connections that are fakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar, cast

from escrowmq.admin.action import record_action
from escrowmq.admin.events import LiveEvents
from escrowmq.admin.operation import Listing, Operation
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import OpenConnection
from escrowmq.core.access.grant import Grant
from escrowmq.core.access.permissions import PasswordHashes
from escrowmq.core.broker import Broker
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.watch import ChangeWatch, note_in
from escrowmq.server.operator_messages import composed, delivered
from escrowmq.server.readable import readable
from tests.harness.server import SimServer

T = TypeVar("T")


@dataclass(eq=False)
class FakeConnection:
    """A fake connection that records why it was closed."""

    address: str
    user: str = "guest"
    vhost: str = "/"
    opened_ms: int = 0
    unsent: int = 0
    held_back_by: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    links: int = 1
    checks: int = 0
    channels: int = 2
    local_address: str = "[::1]:5672"
    ident: int = field(default_factory=count(1).__next__)
    details: dict[str, object] = field(default_factory=dict)
    watched: bool = False

    def describe(self) -> dict[str, object]:
        return {"user": self.user, "vhost": self.vhost, **self.details}

    def channel_rows(self) -> Iterator[dict[str, object]]:
        for number in range(1, self.channels + 1):
            yield {
                "number": number,
                "state": "running",
                "confirms": True,
                "transactional": False,
                "consumers": 1,
                "prefetch": 10,
                "global_prefetch": 0,
                "unsettled": number,
                "age_ms": 1000 * number,
                "uncommitted": 0,
            }

    def permissions_changed(self) -> Iterator[None]:
        for _ in range(self.links):
            self.checks += 1
            yield

    def dismiss(self, reason: str) -> None:
        self.reasons.append(reason)


class FakeProcess:
    """Implements `BrokerProcess`."""

    def __init__(self, server: SimServer) -> None:
        self.server = server
        self.broker: Broker = server.broker
        self.connections: dict[FakeConnection, None] = {}
        self.connection_watches: list[ChangeWatch[OpenConnection]] = []
        self.failure = ""
        self.expired_tokens: set[str] = set()
        self.compacted: list[bool] = []
        self.turns = 0
        self.live_events = LiveEvents(lambda: self.broker.engine.now)
        self.standing: dict[str, Any] | None = None
        self.handed_over = False
        self.arguments_size = 16_384
        self.proofs = 0

    @property
    def synced_lsn(self) -> int:
        return self.server.journal.synced_lsn

    def watch_connections(self, watch: ChangeWatch[OpenConnection]) -> None:
        self.connection_watches.append(watch)

    def changed(self, connection: FakeConnection) -> None:
        """Note that a connection has changed."""
        note_in(self.connection_watches, connection)

    def begin(self) -> None:
        self.turns += 1

    async def turn(self) -> None:
        self.server.end_turn()

    async def prove(self) -> None:
        """Count the call: there is no replicated log."""
        self.proofs += 1

    async def durably(self, change: Callable[[], T]) -> T:
        result = change()
        record_action(self.broker)
        self.server.end_turn()
        self.server.run_disk()
        return result

    def secret_key(self, access_key: str) -> str:
        return "secret of " + access_key

    async def hash_password(self, password: str) -> PasswordHashes:
        return PasswordHashes(f"hash of {password}", (f"keys of {password}",))

    async def snapshot(self, *, compact: bool) -> str:
        self.compacted.append(compact)
        return self.failure

    def readable(self, envelope: Envelope, content: bytes, *, whole: bool) -> dict[str, Any]:
        return readable(envelope, content, whole=whole)

    def composed(self, exchange: str, routing_key: str, properties: Mapping[str, Any], user: str) -> Envelope:
        return composed(exchange, routing_key, properties, user, 65_536)

    def delivered(self, envelope: Envelope, content: bytes) -> tuple[str, dict[str, Any], bytes]:
        return delivered(envelope, content)

    async def log_in(self, address: str, port: int, user: str, password: str) -> str:
        return "" if password == f"password of {user}" else f"refused from {address}:{port}"

    @property
    def host(self) -> str:
        return "h"

    async def log_in_by_token(self, address: str, port: int, token: str) -> Grant | str:
        user, _, scopes = token.partition(":")
        return (
            Grant(user, scopes.split())
            if user and token not in self.expired_tokens
            else f"refused from {address}:{port}"
        )

    def counters(self) -> dict[str, Any]:
        return {"host": "h", "blocked_publishers": 0}

    cut_off = False

    def replication(self) -> dict[str, Any] | None:
        return self.standing

    def hand_over(self) -> None:
        self.handed_over = True

    def figures(self) -> dict[str, Any]:
        return {"pid": 1}


class CountingPieces(Pieces):
    """Counts the pieces that were executed."""

    def __init__(self, steps: int = 100) -> None:
        super().__init__(steps)
        self.count = 0

    async def piece(self, work: Any) -> Any:
        self.count += 1
        return await super().piece(work)


def perform(operations: Mapping[str, Operation], operation: str, /, **arguments: Any) -> Any:
    """Return the result of an operation; of a list, its rows."""

    async def run() -> Any:
        result = await operations[operation](**arguments)
        return await result.rows() if isinstance(result, Listing) else result

    return asyncio.run(run())


def done(coroutine: Any) -> Any:
    """Return the result of a coroutine."""
    return asyncio.run(cast("Coroutine[Any, Any, Any]", coroutine))

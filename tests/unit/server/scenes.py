"""A runtime with connections whose transports and endpoints are fakes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from escrowmq.config.limits import LimitsSection
from escrowmq.server.auth import Authenticator
from escrowmq.server.connection import ClientConnection
from escrowmq.server.resources import Alarms
from escrowmq.server.runtime import Runtime
from escrowmq.wire.endpoint import Host, Peer
from escrowmq.wire.sniff import Opener
from tests.unit.server.benches import Bench, FakeEndpoint

HEADER = b"FAKE\x00\x00\x00\x01"


class FakeTransport:
    """Records the calls on it."""

    def __init__(self, protocol: ClientConnection) -> None:
        self.protocol = protocol
        self.sent = b""
        self.unsent = 0
        self.reading = True
        self.closed = ""
        self.half_closes = True
        self.reset = False
        self.limits: tuple[int, int] = (0, 0)

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 5) if name == "peername" else None

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.limits = (low, high)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: bytes) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closed in {"close", "abort"}

    def is_reading(self) -> bool:
        return self.reading

    def text(self) -> bytes:
        return self.sent

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def aborted(self) -> bool:
        return self.closed == "abort"

    def can_write_eof(self) -> bool:
        return self.half_closes

    def write_eof(self) -> None:
        if self.reset:
            raise OSError("not connected")
        self.closed = self.closed or "eof"

    def close(self) -> None:
        self.closed = self.closed or "close"

    def abort(self) -> None:
        self.closed = "abort"


class Scene:
    """A runtime with connections whose endpoints are fakes."""

    def __init__(self, connections: int = 10, **limits: int) -> None:
        self.bench = Bench()
        self.resident = 0
        alarms = Alarms(1000, 0, lambda: self.resident, lambda: 0)
        self.runtime = Runtime(
            self.bench.turns,
            cast("Authenticator", None),
            alarms,
            LimitsSection(connections=connections, **cast("Any", limits)),
            ("PLAIN",),
        )

    def connect(self, *, greeting: bytes = HEADER) -> tuple[ClientConnection, FakeTransport, FakeEndpoint]:
        connection = ClientConnection(self.runtime)
        transport = FakeTransport(connection)
        connection.connection_made(cast("asyncio.Transport", transport))
        if greeting:
            receive(connection, greeting)
        return connection, transport, cast("FakeEndpoint", connection.endpoint)

    def stir(self, endpoint: FakeEndpoint, says: bytes) -> None:
        self.bench.turns.begin()
        endpoint.says += says
        self.runtime.stir(endpoint)


def receive(connection: ClientConnection, data: bytes) -> None:
    """The transport reads `data`."""
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def open_fake(host: Host, peer: Peer) -> FakeEndpoint:
    assert peer.host == "127.0.0.1"
    assert host.mechanisms == ("PLAIN",)
    return FakeEndpoint()


def sniff(header: bytes) -> Opener | None:
    """Knows the fake protocol only."""
    return open_fake if header == HEADER else None

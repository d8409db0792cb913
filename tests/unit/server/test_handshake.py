"""TLS listeners: connections are counted and timed before their handshake is complete."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from escrowmq.config.security import TlsSection
from escrowmq.server.connection import ClientConnection
from escrowmq.server.handshake import TlsListener
from escrowmq.server.intake import ACCEPTED
from escrowmq.server.listener import Bound, bind, listen, port_of
from escrowmq.server.tls import server_context
from tests.certificates import Authority
from tests.unit.server.benches import TIMEOUT, until
from tests.unit.server.scenes import HEADER, Scene

_RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: closing resets the connection


@pytest.fixture(autouse=True)
def _fakes(fake_protocol: None) -> None:
    """Endpoints are fakes."""


class Port:
    """A TLS listener that lets connections into a runtime, and clients that trust its certificate."""

    def __init__(self, scene: Scene, folder: Path, *, plain: bool = False) -> None:
        """`plain` accepts clients without TLS, too."""
        self._plain = plain
        authority = Authority(folder)
        certificate, key = authority.issue("localhost")
        self.scene = scene
        self._server_side = server_context(TlsSection(certificate=certificate, key=key))
        self._client_side = ssl.create_default_context(cafile=str(authority.path))
        sockets = bind("127.0.0.1", 0)
        self._bound = Bound("amqps", "127.0.0.1", sockets)
        self.number = port_of(sockets[0])
        self._writers: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def open(self, backlog: int = 9) -> AsyncIterator[None]:
        runtime = self.scene.runtime
        (listener,) = await listen(
            self._bound,
            lambda: ClientConnection(runtime),
            backlog=backlog,
            context=self._server_side,
            login=1,
            plain=self._plain,
        )
        assert isinstance(listener, TlsListener)
        yield
        listener.close()
        for writer in self._writers:
            writer.close()
        runtime.stop()
        await until(lambda: not runtime.connections)
        await self.scene.bench.close()

    def knock(self, says: bytes = b"") -> socket.socket:
        """Connect without beginning a handshake."""
        client = socket.create_connection(("127.0.0.1", self.number), timeout=5)
        client.sendall(says)
        client.setblocking(False)
        return client

    async def log_in(self) -> ClientConnection:
        """Complete a handshake and a login. Returns the broker's side of the connection."""
        before = set(self.scene.runtime.connections)
        _, writer = await asyncio.open_connection(
            "127.0.0.1", self.number, ssl=self._client_side, server_hostname="localhost"
        )
        self._writers.append(writer)
        writer.write(HEADER)
        await until(lambda: self._new(before) is not None)
        connection = self._new(before)
        assert connection is not None
        assert connection.endpoint is not None
        self.scene.runtime.admitted(connection.endpoint, "alice", "/")
        return connection

    def _new(self, before: set[ClientConnection]) -> ClientConnection | None:
        new = [c for c in self.scene.runtime.connections if c not in before and c.endpoint is not None]
        return new[0] if new else None


def _on_loop(test: Callable[[], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), TIMEOUT))


async def _closed(client: socket.socket) -> None:
    """Wait until the broker closes the connection."""
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
    client.close()


@pytest.mark.rule("SEC-4")
@pytest.mark.parametrize("limit", ["unauthenticated_connections", "unauthenticated_connections_per_address"])
@pytest.mark.parametrize("says", [b"", b"\x16\x03\x01\x02\x00"], ids=["silent", "unfinished"])
def test_sockets_that_never_finish_the_handshake_are_under_the_bounds_before_the_login(
    tmp_path: Path, limit: str, says: bytes
) -> None:
    async def test() -> None:
        scene = Scene(**{limit: 3})
        port = Port(scene, tmp_path)
        async with port.open():
            user = await port.log_in()
            flood = [port.knock(says) for _ in range(10)]
            for client in flood[:7]:
                await _closed(client)
            assert len(scene.runtime.connections) == 1 + 3
            assert (await port.log_in()).peer.tls
            await _closed(flood[7])
            assert user in scene.runtime.connections
            for client in flood[8:]:
                client.close()

    _on_loop(test)


@pytest.mark.rule("SEC-4")
def test_the_handshake_counts_as_time_before_the_login(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    async def test() -> None:
        scene = Scene()
        port = Port(scene, tmp_path)
        async with port.open():
            client = port.knock()
            await until(lambda: scene.runtime.connections)
            (connection,) = scene.runtime.connections
            connection.tick(connection.opened_ms + 900, 1000)
            assert not connection.closing_ms
            connection.tick(connection.opened_ms + 1100, 1000)
            await _closed(client)
            await until(lambda: not scene.runtime.connections)
            late = port.knock()
            await _closed(late)  # it is closed in any case when `login` seconds have passed

    _on_loop(test)
    assert "not logged in after 1 s" in caplog.text
    assert "TLS handshake failed" in caplog.text


def test_the_end_of_a_handshake_is_told_once_and_the_connection_forgotten(tmp_path: Path) -> None:
    async def test() -> None:
        scene = Scene()
        port = Port(scene, tmp_path)
        async with port.open():
            for says in (b"", b"AMQP\x00\x00\x09\x01", b"\x16\x03\x01\x02\x00"):
                client = port.knock(says)
                client.close()
            await until(lambda: scene.runtime.accepted == 3 and not scene.runtime.connections)
            assert scene.runtime._admission.strangers == 0

    _on_loop(test)


def test_the_shutdown_ends_handshakes(tmp_path: Path) -> None:
    async def test() -> None:
        scene = Scene()
        port = Port(scene, tmp_path)
        async with port.open():
            client = port.knock()
            await until(lambda: scene.runtime.connections)
            scene.runtime.shut("closing time")
            await _closed(client)
            await until(scene.runtime.all_closed.is_set)
            late = port.knock()
            await _closed(late)

    _on_loop(test)


@pytest.mark.rule("FAIR-2")
def test_nothing_is_left_of_handshakes_that_failed_without_the_collector(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.CRITICAL, "escrowmq")  # pytest keeps each line of the log

    async def test() -> None:
        scene = Scene()
        port = Port(scene, tmp_path)

        async def once() -> None:
            client = port.knock(b"not TLS ")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            accepted = scene.runtime.accepted
            await until(lambda: scene.runtime.accepted > accepted)
            client.close()
            await until(lambda: not scene.runtime.connections)

        async with port.open():
            for _ in range(20):
                await once()
            before = len(gc.get_objects())
            for _ in range(200):
                await once()
            left = len(gc.get_objects()) - before
        assert left < 150

    gc.collect()
    gc.disable()
    try:
        _on_loop(test)
    finally:
        gc.enable()


def test_a_port_can_accept_clients_with_and_without_tls(tmp_path: Path) -> None:
    async def test() -> None:
        scene = Scene()
        port = Port(scene, tmp_path, plain=True)
        async with port.open():
            secure = await port.log_in()
            assert secure.peer.tls
            client = port.knock(HEADER)
            await until(lambda: len([c for c in scene.runtime.connections if c.endpoint is not None]) == 2)
            (plain,) = (c for c in scene.runtime.connections if not c.peer.tls)
            assert plain.peer.local_host == "127.0.0.1"
            client.close()

    _on_loop(test)


@pytest.mark.rule("SEC-4")
def test_a_client_that_says_nothing_is_under_the_bounds_on_such_a_port(tmp_path: Path) -> None:
    async def test() -> None:
        scene = Scene(unauthenticated_connections=1)
        port = Port(scene, tmp_path, plain=True)
        async with port.open():
            first, second = port.knock(), port.knock()
            await _closed(first)
            second.close()

    _on_loop(test)


@pytest.mark.rule("FAIR-1")
def test_a_flood_of_handshakes_begins_a_bounded_number_at_a_time(tmp_path: Path) -> None:
    async def test() -> None:
        scene = Scene()
        port = Port(scene, tmp_path)
        async with port.open(backlog=300):
            clients = [port.knock() for _ in range(200)]
            begun = []
            while scene.runtime.accepted < 200:
                before = scene.runtime.accepted
                await asyncio.sleep(0)
                begun.append(scene.runtime.accepted - before)
            for client in clients:
                client.close()
        assert max(begun) <= ACCEPTED

    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), TIMEOUT))

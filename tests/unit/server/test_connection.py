"""Bytes between a transport and an endpoint."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from escrowmq.config import LimitsSection
from escrowmq.server import connection as module
from escrowmq.server.auth import Authenticator
from escrowmq.server.connection import CLOSING_MS, UNSENT_LIMIT, ClientConnection, Pause
from escrowmq.server.resources import Alarms
from escrowmq.server.runtime import Runtime
from escrowmq.wire.endpoint import Host, Peer
from escrowmq.wire.sniff import REFUSAL, Opener
from tests.unit.server.benches import Bench, FakeEndpoint, on_loop, until

HEADER = b"FAKE\x00\x00\x00\x01"


class FakeTransport:
    """Notes what is done to it."""

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

    def __init__(self, connections: int = 10) -> None:
        self.bench = Bench()
        self.resident = 0
        alarms = Alarms(1000, 0, lambda: self.resident, lambda: 0)
        self.runtime = Runtime(
            self.bench.turns, cast("Authenticator", None), alarms, LimitsSection(connections=connections), ("PLAIN",)
        )

    def connect(self, *, greeting: bytes = HEADER) -> tuple[ClientConnection, FakeTransport, FakeEndpoint]:
        connection = ClientConnection(self.runtime)
        transport = FakeTransport(connection)
        connection.connection_made(cast("asyncio.Transport", transport))
        if greeting:
            connection.data_received(greeting)
        return connection, transport, cast("FakeEndpoint", connection.endpoint)

    def stir(self, endpoint: FakeEndpoint, says: bytes) -> None:
        self.bench.turns.begin()
        endpoint.says += says
        self.runtime.stir(endpoint)


def open_fake(host: Host, peer: Peer) -> FakeEndpoint:
    assert str(peer) == "127.0.0.1:5"
    assert host.mechanisms == ("PLAIN",)
    return FakeEndpoint()


@pytest.fixture(autouse=True)
def fake_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    def sniff(header: bytes) -> Opener | None:
        return open_fake if header == HEADER else None

    monkeypatch.setattr(module, "sniff", sniff)
    monkeypatch.setattr(module, "hopeless", lambda start: not HEADER.startswith(start[:8]))


def test_the_endpoint_gets_every_byte_also_of_a_header_in_pieces() -> None:
    async def test() -> None:
        scene = Scene()
        connection, _, _ = scene.connect(greeting=b"")
        connection.data_received(HEADER[:3])
        assert connection.endpoint is None
        connection.data_received(HEADER[3:] + b"more")
        connection.data_received(b"and more")
        assert cast("FakeEndpoint", connection.endpoint).heard == [HEADER + b"more", b"and more"]
        await scene.bench.close()

    on_loop(test)


@pytest.mark.parametrize("greeting", [b"GET / HTTP/1.1\r\n", b"G", b"AMQP\x00\x01\x00\x00", b"\x16\x03\x01\x00"])
def test_an_unknown_header_is_answered_and_closed(greeting: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, _ = scene.connect(greeting=greeting)
        assert (transport.sent, transport.closed) == (REFUSAL, "eof")
        connection.data_received(b"more")
        assert transport.sent == REFUSAL
        await scene.bench.close()

    on_loop(test)
    assert ("TLS" in caplog.text) == greeting.startswith(b"\x16")


def test_output_goes_out_once_at_the_end_of_the_turn() -> None:
    async def test() -> None:
        scene = Scene()
        _, transport, endpoint = scene.connect()
        scene.stir(endpoint, b"a")
        scene.stir(endpoint, b"b")
        assert not transport.text()
        await until(lambda: transport.sent)
        assert transport.text() == b"ab"
        assert endpoint.outputs == 1
        await scene.bench.close()

    on_loop(test)


def test_a_finished_endpoint_is_closed_behind_its_last_bytes() -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, endpoint = scene.connect()
        endpoint.finished = True
        scene.stir(endpoint, b"bye")
        await until(lambda: transport.closed)
        assert (transport.sent, transport.closed) == (b"bye", "eof")
        connection.data_received(b"late")
        assert endpoint.heard == [HEADER]
        now = scene.bench.broker.now
        connection.tick(now + CLOSING_MS - 1000, 1)
        assert not transport.aborted()
        connection.tick(now + CLOSING_MS + 1000, 1)
        assert transport.aborted(), "a client that does not read its last bytes"
        await scene.bench.close()

    on_loop(test)


def test_the_end_of_a_connection_waits_for_the_client_so_that_nothing_unread_resets_it() -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, _ = scene.connect()
        connection.pause(Pause.ALARM, on=True)
        connection.close()
        assert transport.closed == "eof"
        assert transport.is_reading(), "what it still says is read away"
        connection.pause(Pause.JOURNAL, on=True)
        assert transport.is_reading()
        tls, reset = scene.connect()[:2], scene.connect()[:2]
        tls[1].half_closes = False
        reset[1].reset = True
        tls[0].close()
        reset[0].close()
        assert (tls[1].closed, reset[1].closed) == ("close", "abort")
        await scene.bench.close()

    on_loop(test)


def test_the_loss_is_told_once_and_the_connection_forgotten() -> None:
    async def test() -> None:
        scene = Scene()
        connection, _, endpoint = scene.connect()
        scene.stir(endpoint, b"never sent")
        connection.connection_lost(None)
        await scene.bench.turns.synced()
        assert endpoint.told.count("lost") == 1
        assert endpoint.outputs == 0
        assert not scene.runtime.connections
        await scene.bench.close()

    on_loop(test)


def test_a_fault_of_ours_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, endpoint = scene.connect()
        other = scene.connect()
        endpoint.fault = KeyError("broken")
        connection.data_received(b"x")
        assert transport.closed == "abort"
        assert not other[1].closed
        await scene.bench.close()

    on_loop(test)
    assert "internal error on fake" in caplog.text


def test_a_slow_reader_is_told_to_the_endpoint_and_not_read_when_it_owes_too_much() -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, endpoint = scene.connect()
        low, high = transport.limits
        assert 0 < low < high == scene.runtime.limits.outbox
        transport.unsent = high + 1
        connection.pause_writing()
        assert endpoint.told[-1] == ("congested", high + 1)
        assert transport.is_reading()
        transport.unsent = UNSENT_LIMIT + 1
        scene.stir(endpoint, b"answer")
        await until(lambda: transport.sent)
        assert endpoint.told[-1] == ("congested", UNSENT_LIMIT + 1)
        assert not transport.is_reading()
        transport.unsent = low
        connection.resume_writing()
        assert endpoint.told[-1] == ("congested", low)
        assert transport.is_reading()
        await scene.bench.close()

    on_loop(test)


def test_reading_goes_on_when_no_reason_against_it_is_left() -> None:
    async def test() -> None:
        scene = Scene()
        connection, transport, _ = scene.connect()
        connection.pause(Pause.ALARM, on=True)
        connection.pause(Pause.JOURNAL, on=True)
        connection.pause(Pause.ALARM, on=False)
        assert not transport.is_reading()
        connection.pause(Pause.JOURNAL, on=False)
        assert transport.is_reading()
        await scene.bench.close()

    on_loop(test)


def test_silence_that_we_impose_is_not_held_against_a_client() -> None:
    async def test() -> None:
        scene = Scene()
        connection, _, endpoint = scene.connect()
        start = scene.bench.broker.now
        connection.tick(start + 5000, 10_000)
        assert endpoint.told[-1] == ("tick", 5000, 5000)
        connection.pause(Pause.ALARM, on=True)
        connection.tick(start + 7000, 10_000)
        assert endpoint.told[-1] == ("tick", 0, 7000)
        await scene.bench.close()

    on_loop(test)


def test_who_says_nothing_or_never_logs_in_is_cut_off() -> None:
    async def test() -> None:
        scene = Scene()
        silent, silent_transport, _ = scene.connect(greeting=b"")
        stranger, stranger_transport, endpoint = scene.connect()
        user, user_transport, _ = scene.connect()
        endpoint.state = "start"
        now = scene.bench.broker.now
        for connection in (silent, stranger, user):
            connection.tick(now + 900, 1000)
        assert not silent_transport.aborted()
        for connection in (silent, stranger, user):
            connection.tick(now + 1100, 1000)
        assert silent_transport.aborted()
        assert stranger_transport.aborted()
        assert not user_transport.is_closing()
        await scene.bench.close()

    on_loop(test)

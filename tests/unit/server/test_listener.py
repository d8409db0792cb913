"""Listening sockets."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import struct
from types import SimpleNamespace
from typing import cast

import pytest
import uvloop

from escrowmq.config.listeners import ListenSection, RocketmqSection
from escrowmq.core.topology.directory import Directory
from escrowmq.server.auth import Authenticator
from escrowmq.server.connection import ClientConnection
from escrowmq.server.intake import ACCEPTED
from escrowmq.server.listener import (
    ROCKETMQ_SCHEMES,
    Bound,
    bind,
    bind_all,
    bind_rocketmq,
    is_loopback,
    listen,
    port_of,
    shown,
)
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.endpoint import Verdict
from tests.harness.client import PERSISTENT, login_frames
from tests.harness.frames import publish_frames
from tests.unit.server.benches import TIMEOUT, on_loop, until
from tests.unit.server.scenes import Scene

_RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: closing resets the connection


def test_a_free_port_is_picked_and_clients_get_through() -> None:
    (sock,) = bind("127.0.0.1", 0)
    sock.listen()
    with sock, socket.create_connection(("127.0.0.1", port_of(sock)), timeout=5) as client:
        assert client.getpeername()[1] == port_of(sock) > 0


def test_all_addresses_of_a_name_share_one_port() -> None:
    sockets = bind("localhost", 0)
    assert len({port_of(sock) for sock in sockets}) == 1
    for sock in sockets:
        sock.close()


def test_accepted_sockets_send_at_once_and_notice_dead_peers() -> None:
    (sock,) = bind("127.0.0.1", 0)
    sock.listen()
    with sock, socket.create_connection(("127.0.0.1", port_of(sock)), timeout=5):
        sock.setblocking(True)
        accepted, _ = sock.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_port_in_use_is_named() -> None:
    (sock,) = bind("127.0.0.1", 0)
    sock.listen()
    with (
        sock,
        pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port_of(sock)}: Address already in use; "),
    ):
        bind("127.0.0.1", port_of(sock))


def test_no_connection_is_accepted_before_the_broker_listens() -> None:
    (sock,) = bind("127.0.0.1", 0)
    with sock, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(sock)), timeout=5)


def test_the_tls_address_is_bound_second_and_its_refusal_leaves_nothing_open() -> None:
    section = ListenSection.model_validate({"address": "127.0.0.1:0", "tls_address": "127.0.0.1:0"})
    bound = bind_all(section)
    assert [each.scheme for each in bound] == ["amqp", "amqps"]
    assert [each.url for each in bound] == [f"{b.scheme}://127.0.0.1:{port_of(b.sockets[0])}" for b in bound]
    for each in bound:
        each.close()
    bad = ListenSection.model_validate({"address": "127.0.0.1:0", "tls_address": "no-such-host.invalid:1"})
    with pytest.raises(OSError, match=r"no-such-host\.invalid:1: .*choose an address of this machine"):
        bind_all(bad)


def test_rocketmq_has_three_addresses_and_a_refusal_leaves_nothing_open() -> None:
    free = dict.fromkeys(("name_server_address", "broker_address", "grpc_address"), "127.0.0.1:0")
    bound = bind_rocketmq(RocketmqSection.model_validate(free))
    assert tuple(each.scheme for each in bound) == ROCKETMQ_SCHEMES
    for each in bound:
        each.close()
    bad = RocketmqSection.model_validate({**free, "grpc_address": "no-such-host.invalid:1"})
    with pytest.raises(OSError, match=r"no-such-host\.invalid:1: "):
        bind_rocketmq(bad)


@pytest.mark.parametrize("key", ["name_server_address", "broker_address", "grpc_address"])
def test_the_setting_of_a_rocketmq_port_in_use_is_named(key: str) -> None:
    free = dict.fromkeys(("name_server_address", "broker_address", "grpc_address"), "127.0.0.1:0")
    (sock,) = bind("127.0.0.1", 0)
    sock.listen()
    taken = RocketmqSection.model_validate({**free, key: f"127.0.0.1:{port_of(sock)}"})
    with sock, pytest.raises(OSError, match=rf"choose another port \(rocketmq\.{key} in the file of --config\)"):
        bind_rocketmq(taken)


def test_the_setting_of_an_amqp_port_in_use_is_named() -> None:
    (sock,) = bind("127.0.0.1", 0)
    sock.listen()
    taken = f"127.0.0.1:{port_of(sock)}"
    with sock:
        with pytest.raises(OSError, match=r"\(--listen, or listen\.address in the file of --config\)"):
            bind_all(ListenSection.model_validate({"address": taken}))
        with pytest.raises(OSError, match=r"\(listen\.tls_address in the file of --config\)"):
            bind_all(ListenSection.model_validate({"address": "127.0.0.1:0", "tls_address": taken}))


def test_a_host_that_is_none_is_named() -> None:
    with pytest.raises(OSError, match=r"cannot listen on no-such-host\.invalid:5672: "):
        bind("no-such-host.invalid", 5672)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("?", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_ipv6_stands_in_brackets() -> None:
    assert shown("::1", 5) == "[::1]:5"
    assert shown("h", 5) == "h:5"


def _scene() -> Scene:
    """Return a runtime for AMQP 0-9-1 in which every password is right."""
    scene = Scene(connections=1000)
    accepting = SimpleNamespace(authenticate=lambda *call: call[2](Verdict(call[1].authcid)))
    scene.runtime._authenticator = cast("Authenticator", accepting)
    scene.bench.queue("q")
    directory: Directory = scene.bench.broker.directory
    directory.record_access(scene.bench.broker.access.add_user("guest", "hash"))
    directory.record_access(scene.bench.broker.access.set_permission("guest", "/", ".*", ".*", ".*"))
    return scene


@pytest.mark.rule("FAIR-2")
def test_nothing_is_left_of_sockets_that_were_reset_without_the_collector(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "escrowmq")  # pytest keeps each line of the log
    upload = publish_frames(1, spec.BasicPublish("", "q"), PERSISTENT, bytes(60_000))
    talk = login_frames() + method_frame(1, spec.ChannelOpen()) + method_frame(1, spec.BasicConsume("q")) + upload

    async def test() -> None:
        scene = _scene()
        sockets = bind("127.0.0.1", 0)
        port = port_of(sockets[0])
        bound = Bound("amqp", "127.0.0.1", sockets)
        (server,) = await listen(bound, lambda: ClientConnection(scene.runtime), backlog=9, context=None, login=1)

        async def once() -> None:
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            with client:
                client.connect(("127.0.0.1", port))
                client.sendall(talk[:-1000])
                await until(lambda: any(connection.admitted for connection in scene.runtime.connections))
            await until(lambda: not scene.runtime.connections)

        for _ in range(20):
            await once()
        before = len(gc.get_objects())
        for _ in range(300):
            await once()
        left = len(gc.get_objects()) - before
        told = len(scene.runtime.live_events.after(0))  # a bounded number of them is kept
        server.close()
        await scene.bench.close()
        assert left - told < 150

    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(test(), TIMEOUT))
    finally:
        gc.enable()


@pytest.mark.rule("FAIR-1")
def test_a_flood_of_connections_is_accepted_a_bounded_number_at_a_time() -> None:
    async def test() -> None:
        scene = _scene()
        sockets = bind("127.0.0.1", 0)
        port = port_of(sockets[0])
        made: list[ClientConnection] = []

        def factory() -> ClientConnection:
            made.append(ClientConnection(scene.runtime))
            return made[-1]

        bound = Bound("amqp", "127.0.0.1", sockets)
        (server,) = await listen(bound, factory, backlog=300, context=None, login=1)
        clients = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(200)]
        accepted = []
        while len(made) < 200:
            before = len(made)
            await asyncio.sleep(0)
            accepted.append(len(made) - before)
        for client in clients:
            client.close()
        await until(lambda: not scene.runtime.connections)
        server.close()
        await scene.bench.close()
        assert max(accepted) <= ACCEPTED, "and none of 200 was refused by the kernel"

    on_loop(test)

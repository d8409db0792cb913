"""Connections end cleanly when the client closes them, and at once when the client is silent."""

from __future__ import annotations

import random

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.amqp091 import spec
from tests.harness.client import SimClient
from tests.harness.server import SimServer


def server_with_clients(count: int) -> tuple[SimServer, list[SimClient]]:
    server = SimServer(MemoryStorage(random.Random(1)))
    return server, [SimClient(server, f"client {i}") for i in range(count)]


def test_every_close_is_answered_until_the_client_closes_the_socket() -> None:
    _, (client,) = server_with_clients(1)
    for _ in range(3):
        client.call(0, spec.ConnectionClose(200, "bye"), spec.ConnectionCloseOk)
    assert not client.closed
    client.lose()
    assert client.closed


def test_a_closed_connection_is_dropped_if_the_client_keeps_its_socket_open() -> None:
    server, (client,) = server_with_clients(1)
    client.call(0, spec.ConnectionClose(200, "bye"), spec.ConnectionCloseOk)
    for _ in range(10):
        server.now += 1000
        client.port.endpoint.tick(server.now, 1000, 1000)
        server.end_turn()
    assert client.closed


def test_a_silent_client_loses_its_exclusive_queues_at_once() -> None:
    server, (silent, other) = server_with_clients(2)
    silent.port.endpoint.heartbeat = 1
    silent.open_channel(1)
    silent.declare(1, "its own", durable=False, exclusive=True)
    silent.call(1, spec.ChannelClose(200, "bye"), spec.ChannelCloseOk)
    silent.port.endpoint.tick(server.now, 2001, 0)
    server.end_turn()
    assert silent.closed
    other.open_channel(1)
    other.send(1, spec.QueueDeclare("its own", passive=True))
    assert other.expect(1, spec.ChannelClose).reply_code == 404

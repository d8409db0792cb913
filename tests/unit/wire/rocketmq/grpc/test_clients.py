"""Telemetry: settings up and down, one stream for each client."""

from __future__ import annotations

import pytest

from escrowmq.wire.http2.frames import ErrorCode
from escrowmq.wire.rocketmq.grpc.framing import prefixed
from escrowmq.wire.rocketmq.grpc.status import GrpcStatus
from escrowmq.wire.rocketmq.proto.definition_pb2 import ClientType, Code, Publishing, Resource, Settings
from escrowmq.wire.rocketmq.proto.service_pb2 import (
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    TelemetryCommand,
)
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, server

SETTINGS = Settings(client_type=ClientType.PRODUCER, publishing=Publishing(topics=[Resource(name="t")]))


def test_settings_are_answered_with_a_status() -> None:
    peer = GrpcPeer(server())
    number = peer.open("Telemetry")
    for _ in range(2):
        peer.send(number, TelemetryCommand(settings=SETTINGS))
        peer.exchange()
    found = peer.responses("Telemetry", number)
    assert [answer.status.code for answer in found] == [Code.OK] * 2
    assert found[0].settings.publishing.max_body_size > 0
    clients = peer.endpoint.describe()["clients"]
    assert clients == [{"id": "client-1", "language": "TEST", "kind": "producer", "telemetry": True}]


def test_a_later_stream_replaces_the_earlier_one() -> None:
    peer = GrpcPeer(server())
    first, second = peer.open("Telemetry"), peer.open("Telemetry")
    peer.exchange()
    assert peer.status(first) == 0
    assert peer.status(second) is None


def test_the_end_of_the_requests_ends_the_stream() -> None:
    peer = GrpcPeer(server())
    number = peer.open("Telemetry")
    peer.exchange()
    peer.client.end_stream(number)
    peer.exchange()
    assert peer.status(number) == 0


def test_a_malformed_command_ends_the_stream() -> None:
    peer = GrpcPeer(server())
    number = peer.open("Telemetry")
    peer.send(number, prefixed(b"\xff\xff"))
    peer.exchange()
    assert peer.status(number) == GrpcStatus.INTERNAL


def test_a_stream_without_client_id_is_refused() -> None:
    peer = GrpcPeer(server(), client_id="")
    number = peer.open("Telemetry")
    peer.exchange()
    assert peer.status(number) == GrpcStatus.INVALID_ARGUMENT


def test_a_client_that_ends_is_forgotten() -> None:
    peer = GrpcPeer(server())
    number = peer.open("Telemetry")
    peer.run("Heartbeat", HeartbeatRequest(client_type=ClientType.PRODUCER))
    peer.run("NotifyClientTermination", NotifyClientTerminationRequest())
    assert peer.status(number) == 0
    assert peer.endpoint.describe()["clients"] == []


def test_too_many_clients_on_one_connection_are_refused() -> None:
    peer = GrpcPeer(server())
    for i in range(100):
        peer.run("Heartbeat", HeartbeatRequest(), x_mq_client_id=f"c{i}")
    assert peer.run("Heartbeat", HeartbeatRequest()).status.code == Code.TOO_MANY_REQUESTS


def test_a_client_of_an_unknown_kind_can_be_listed() -> None:
    peer = GrpcPeer(server())
    peer.run("Heartbeat", HeartbeatRequest(client_type=99))  # type: ignore[arg-type]
    assert peer.endpoint.describe()["clients"] == [
        {"id": "client-1", "language": "TEST", "kind": "", "telemetry": False}
    ]


@pytest.mark.rule("FAIR-3")
def test_a_flood_of_settings_ends_the_connection() -> None:
    peer = GrpcPeer(server())
    number = peer.open("Telemetry")
    for _ in range(4):
        peer.client.send_data(number, prefixed(TelemetryCommand(settings=SETTINGS).SerializeToString()) * 100)
        peer.server.receive(peer.port, peer.client.data_to_send())
        peer.server.end_turn()
    assert [code for code, _ in peer.server.faults] == [ErrorCode.ENHANCE_YOUR_CALM.name]

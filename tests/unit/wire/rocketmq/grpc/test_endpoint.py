"""Calls over one connection: refused, divided, given up, late, before and after the login."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.budget import METHOD
from escrowmq.wire.http2.frames import ErrorCode
from escrowmq.wire.rocketmq.grpc.framing import LARGEST, prefixed
from escrowmq.wire.rocketmq.grpc.status import GrpcStatus
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, Resource
from escrowmq.wire.rocketmq.proto.service_pb2 import HeartbeatRequest, QueryRouteRequest, SendMessageRequest
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, message, server

BEAT = HeartbeatRequest()


def test_a_call_is_answered() -> None:
    peer = GrpcPeer(server())
    assert peer.run("Heartbeat", BEAT).status.code == Code.OK
    assert peer.server.admissions == [("guest", "/")]
    assert peer.endpoint.describe()["user"] == "guest"


@pytest.mark.parametrize("name", ["None", ""])
def test_an_unknown_method_is_unimplemented(name: str) -> None:
    peer = GrpcPeer(server())
    assert peer.status(peer.begin(name, BEAT)) == GrpcStatus.UNIMPLEMENTED


@pytest.mark.parametrize("given", ["text/plain", ""])
def test_a_request_that_is_not_grpc_is_refused_at_its_end(given: str) -> None:
    peer = GrpcPeer(server())
    number = peer.open("Heartbeat", content_type=given)
    peer.send(number, b"anything")
    peer.exchange()
    assert number not in peer.trailers
    peer.client.end_stream(number)
    peer.exchange()
    assert peer.trailers[number] == {":status": "415", "content-type": "text/plain"}
    assert peer.bodies[number] == b"this port serves gRPC\n"
    assert peer.run("Heartbeat", BEAT).status.code == Code.OK


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"grpc_timeout": "soon"}, GrpcStatus.INVALID_ARGUMENT),
        ({"grpc_encoding": "zstd"}, GrpcStatus.UNIMPLEMENTED),
        ({"authorization": "Basic abc"}, GrpcStatus.UNAUTHENTICATED),
    ],
)
def test_headers_of_no_call_are_refused(headers: dict[str, Any], status: GrpcStatus) -> None:
    peer = GrpcPeer(server())
    assert peer.status(peer.begin("Heartbeat", BEAT, **headers)) == status
    assert peer.run("Heartbeat", BEAT).status.code == Code.OK


@pytest.mark.parametrize("data", [b"", prefixed(b"") * 2, prefixed(b"")[:3]])
def test_a_call_has_exactly_one_request(data: bytes) -> None:
    peer = GrpcPeer(server())
    assert peer.status(peer.begin("Heartbeat", data)) == GrpcStatus.INVALID_ARGUMENT


def test_a_request_that_is_no_message_is_refused() -> None:
    peer = GrpcPeer(server())
    assert peer.status(peer.begin("Heartbeat", prefixed(b"\xff\xff"))) == GrpcStatus.INTERNAL


def test_a_client_without_id_is_told() -> None:
    peer = GrpcPeer(server(), client_id="")
    assert peer.run("Heartbeat", BEAT).status.code == Code.CLIENT_ID_REQUIRED


@pytest.mark.rule("FAIR-3")
def test_a_request_beyond_the_limit_ends_its_call_only() -> None:
    peer = GrpcPeer(server())
    number = peer.open("Heartbeat")
    peer.send(number, b"\x00" + (LARGEST + 1).to_bytes(4, "big"))
    peer.exchange()
    assert peer.status(number) == GrpcStatus.RESOURCE_EXHAUSTED
    assert peer.run("Heartbeat", BEAT).status.code == Code.OK


@pytest.mark.rule("FAIR-3")
def test_incomplete_requests_are_bounded_together() -> None:
    peer = GrpcPeer(server())
    chunk = b"\x00" + LARGEST.to_bytes(4, "big") + bytes(4 << 20)
    numbers = []
    for _ in range(8):
        numbers.append(peer.open("Heartbeat"))
        peer.send(numbers[-1], chunk)
        peer.exchange()
    assert [peer.status(number) for number in numbers] == [*[None] * 7, GrpcStatus.RESOURCE_EXHAUSTED]
    peer.client.reset_stream(numbers[0])
    peer.exchange()
    assert peer.run("Heartbeat", BEAT).status.code == Code.OK


@pytest.mark.parametrize(
    "options", [RocketmqOptions(anonymous_user=""), RocketmqOptions(anonymous_user="none"), RocketmqOptions(vhost="x")]
)
def test_a_client_that_may_not_log_in_is_refused(options: RocketmqOptions) -> None:
    peer = GrpcPeer(server(rocketmq=options))
    assert peer.status(peer.begin("Heartbeat", BEAT)) == GrpcStatus.UNAUTHENTICATED
    assert peer.server.admissions == []


def test_a_send_is_answered_when_it_is_on_disk() -> None:
    peer = GrpcPeer(server())
    peer.topic("t")
    number = peer.begin("SendMessage", SendMessageRequest(messages=[message("t")]), disk=False)
    assert peer.status(number) is None
    assert peer.run("Heartbeat", BEAT).status.code == Code.OK
    assert peer.status(number) == 0


def test_a_call_whose_deadline_passes_ends() -> None:
    peer = GrpcPeer(server())
    number = peer.open("Telemetry", grpc_timeout="5S")
    peer.exchange()
    assert peer.status(number) is None
    peer.server.after(5000)
    peer.exchange()
    assert peer.status(number) == GrpcStatus.DEADLINE_EXCEEDED


def test_a_fault_of_the_connection_is_logged_and_ends_it() -> None:
    peer = GrpcPeer(server())
    peer.server.receive(peer.port, b"\x00\x00\x08\x06\x00\x00\x00\x00\x01" + bytes(8))
    peer.server.end_turn()
    assert peer.server.faults == [(ErrorCode.PROTOCOL_ERROR.name, "PING for a stream")]
    assert peer.port.closed


def test_an_operator_closes_the_connection_with_goaway() -> None:
    peer = GrpcPeer(server())
    peer.run("Heartbeat", BEAT)
    peer.endpoint.shut("maintenance")
    peer.server.end_turn()
    assert peer.port.closed
    assert b"maintenance" in peer.port.sent


def test_a_silent_client_is_probed_and_then_given_up() -> None:
    peer = GrpcPeer(server(heartbeat=60))
    peer.exchange()
    peer.endpoint.tick(0, 61_000, 0)
    peer.server.end_turn()
    assert bytes(peer.port.sent)[3] == 6
    peer.endpoint.tick(0, 121_000, 0)
    peer.server.end_turn()
    assert peer.port.closed


def test_an_alarm_refuses_messages_and_nothing_else() -> None:
    peer = GrpcPeer(server())
    peer.topic("t")
    peer.endpoint.block("short of memory")
    assert peer.run("Heartbeat", BEAT).status.code == Code.OK
    assert peer.run("SendMessage", SendMessageRequest(messages=[message("t")])).status.code == Code.TOO_MANY_REQUESTS
    peer.endpoint.block("")
    assert peer.run("SendMessage", SendMessageRequest(messages=[message("t")])).status.code == Code.OK
    assert peer.server.publishers == [peer.endpoint]


def test_a_topic_that_does_not_exist_has_no_route() -> None:
    peer = GrpcPeer(server())
    status = peer.run("QueryRoute", QueryRouteRequest(topic=Resource(name="none"))).status
    assert status.code == Code.TOPIC_NOT_FOUND
    assert status.message == "CODE: 17  DESC: No topic route info in name server for the topic: none"


def test_work_of_one_read_is_divided_into_turns() -> None:
    peer = GrpcPeer(server())
    numbers = []
    for _ in range(300):
        numbers.append(peer.open("Heartbeat"))
        peer.send(numbers[-1], BEAT, ends=True)
    peer.exchange()
    assert all(peer.status(number) == 0 for number in numbers)


@pytest.mark.rule("FAIR-3")
def test_a_second_request_of_a_call_is_refused_before_its_end() -> None:
    peer = GrpcPeer(server())
    number = peer.open("Heartbeat")
    peer.send(number, prefixed(b"") * 2)
    peer.exchange()
    assert peer.status(number) == GrpcStatus.INVALID_ARGUMENT


@pytest.mark.rule("FAIR-3")
def test_complete_requests_of_calls_that_do_not_end_are_bounded_together() -> None:
    peer = GrpcPeer(server())
    numbers = []
    for size in [(4 << 20) - 100] * 8 + [1000]:
        numbers.append(peer.open("SendMessage"))
        peer.send(numbers[-1], prefixed(bytes(size)))
        peer.exchange()
    assert [peer.status(number) for number in numbers] == [*[None] * 8, GrpcStatus.RESOURCE_EXHAUSTED]


@pytest.mark.rule("FAIR-3")
def test_refused_requests_do_not_widen_the_bound_of_incomplete_ones() -> None:
    peer = GrpcPeer(server())
    for _ in range(300):
        number = peer.open("Heartbeat")
        peer.send(number, b"\x00\xff\xff\xff\xff" + bytes(15_000))
    peer.exchange()
    chunk = b"\x00" + LARGEST.to_bytes(4, "big") + bytes(4 << 20)
    numbers = []
    for _ in range(8):
        numbers.append(peer.open("Heartbeat"))
        peer.send(numbers[-1], chunk)
        peer.exchange()
    assert [peer.status(number) for number in numbers] == [*[None] * 7, GrpcStatus.RESOURCE_EXHAUSTED]


@pytest.mark.rule("FAIR-3")
def test_a_call_that_ends_at_its_deadline_counts_no_more() -> None:
    peer = GrpcPeer(server())
    chunk = b"\x00" + LARGEST.to_bytes(4, "big") + bytes(4 << 20)
    for _ in range(9):
        number = peer.open("Telemetry", grpc_timeout="1S")
        peer.send(number, chunk)
        peer.exchange()
        assert peer.status(number) is None
        peer.server.after(1000)
        peer.exchange()
        assert peer.status(number) == GrpcStatus.DEADLINE_EXCEEDED


@pytest.mark.rule("FAIR-1")
def test_data_in_single_octets_is_divided_into_turns() -> None:
    peer = GrpcPeer(server())
    number = peer.open("Heartbeat")
    peer.exchange()
    before = peer.server.broker.engine.requests.left
    for octet in prefixed(bytes(100))[:100]:
        peer.client.send_data(number, bytes((octet,)))
    peer.server.receive(peer.port, peer.client.data_to_send())
    assert peer.server.broker.engine.requests.left <= before - 100


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize(
    ("name", "headers"),
    [
        ("None", {}),
        ("Telemetry", {}),
        ("Heartbeat", {"content_type": "text/plain"}),
        ("Heartbeat", {"authorization": "Basic x"}),
        ("Heartbeat", {"grpc_timeout": "soon"}),
    ],
)
def test_calls_that_carry_out_nothing_are_divided_into_turns(name: str, headers: dict[str, str]) -> None:
    peer = GrpcPeer(server())
    budget = peer.server.broker.engine.requests
    peer.server.end_turn()
    for _ in range(100):
        number = peer.open(name, **headers)
        if name != "Telemetry":
            peer.client.end_stream(number)
    peer.server.receive(peer.port, peer.client.data_to_send())
    assert -METHOD < budget.left <= 0
    peer.exchange()
    assert peer.run("Heartbeat", BEAT).status.code == Code.OK

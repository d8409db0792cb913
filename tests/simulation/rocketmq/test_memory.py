"""RocketMQ clients use a connection in every way and abort it. No memory may be left, without the garbage collector."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator

import pytest
from google.protobuf.duration_pb2 import Duration

from escrowmq.wire.rocketmq.grpc.endpoint import GrpcEndpoint
from escrowmq.wire.rocketmq.grpc.framing import prefixed
from escrowmq.wire.rocketmq.proto import service_pb2 as messages
from escrowmq.wire.rocketmq.proto.definition_pb2 import MessageQueue, MessageType, Publishing, Resource, Settings
from escrowmq.wire.rocketmq.remoting.codes import Code
from escrowmq.wire.rocketmq.remoting.frames import Command, encode
from tests.harness.memory import assert_nothing_is_left
from tests.harness.server import SimServer
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, message
from tests.unit.wire.rocketmq.grpc.peer import server as grpc_server
from tests.unit.wire.rocketmq.remoting.clients import Client, create, pull_fields, send_fields, server

ABORTED = 300
KEPT = 100  # objects that may remain of all connections together, such as caches of a fixed size
MINUTE_MS = 60_000
GROUP, TOPIC, EMPTY = Resource(name="g"), Resource(name="t"), Resource(name="empty")
LEFT_BYTES = ABORTED * 2048
"""Memory that may remain of all connections together. A connection once left 4 kB."""


def _telemetry(peer: GrpcPeer) -> None:
    """A producer and a consumer share the connection. One of them has sent half of a command."""
    settings = Settings(publishing=Publishing(topics=[TOPIC, EMPTY]))
    number = peer.open("Telemetry")
    peer.send(number, messages.TelemetryCommand(settings=settings))
    other = peer.open("Telemetry", x_mq_client_id="other", grpc_timeout="100S")
    peer.send(other, prefixed(bytes(100))[:50])
    peer.exchange()


def _polling(peer: GrpcPeer) -> None:
    for _ in range(5):
        request = messages.ReceiveMessageRequest(group=GROUP, message_queue=MessageQueue(topic=EMPTY, id=-1))
        peer.begin("ReceiveMessage", request, grpc_timeout="30S")


def _receiving(peer: GrpcPeer) -> None:
    """It has leases that the broker renews, and others."""
    queue = MessageQueue(topic=TOPIC, id=-1)
    for renews in (True, False):
        request = messages.ReceiveMessageRequest(
            group=GROUP, message_queue=queue, batch_size=2, auto_renew=renews, attempt_id="a"
        )
        if not renews:
            request.invisible_duration.CopyFrom(Duration(seconds=20))
        peer.begin("ReceiveMessage", request)


def _uploading(peer: GrpcPeer) -> None:
    """It has sent half of a message, and a whole one whose call has not ended."""
    for data in (prefixed(bytes(200_000))[:100_000], prefixed(bytes(100_000))):
        peer.send(peer.open("SendMessage"), data)
    peer.exchange()


def _not_reading(peer: GrpcPeer) -> None:
    peer.endpoint.congested(2 << 20)
    _receiving(peer)


def _in_a_transaction(peer: GrpcPeer) -> None:
    """It has been asked about its half message."""
    peer.send(peer.open("Telemetry"), messages.TelemetryCommand(settings=Settings(publishing=Publishing())))
    half = message("x", ident="H", kind=MessageType.TRANSACTION)
    peer.begin("SendMessage", messages.SendMessageRequest(messages=[half]))


def _in_error(peer: GrpcPeer) -> None:
    peer.begin("None", b"")
    peer.begin("Heartbeat", b"")
    peer.begin("SendMessage", prefixed(b"\xff"))


def _subscribed(client: Client) -> None:
    client.heartbeat("g", producer="pg", t="*", empty="a || b")
    client.heartbeat("h", "other id", t="*")
    body = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": [{"topic": "t", "queueId": 0}]}).encode()
    client.ok(Code.LOCK_QUEUES, body=body)


def _pulling(client: Client) -> None:
    waits = pull_fields("empty", sysFlag="6", suspendTimeoutMillis="30000")
    for _ in range(5):
        client.send(Code.PULL, waits)
    client.pull("t")


def _storing_half(client: Client) -> None:
    client.heartbeat(producer="pg")
    client.ok(Code.SEND_V2, send_fields("x", TRAN_MSG="true", UNIQ_KEY="A1", PGROUP="pg"), b"half")


def _asking(client: Client) -> None:
    """A search goes on, and a member has been asked that does not answer."""
    client.send(Code.QUERY_MESSAGE, {"topic": "t", "key": "none"})
    client.heartbeat("g", "c", t="*")
    client.send(Code.RUNNING_INFO, {"consumerGroup": "g", "clientId": "c"})


def _sending_a_part(client: Client) -> None:
    data = encode(Command(Code.SEND_V2, send_fields("t"), bytes(400_000), 1))
    client.server.receive(client.port, data[:200_000])


def _reading_nothing(client: Client) -> None:
    client.port.endpoint.congested(2 << 20)
    _pulling(client)


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _recorded(use: Callable[[GrpcPeer], None]) -> list[bytes]:
    """Return the octets that a client sends. The library of the client needs the collector, so they are sent again."""
    made, sent = grpc_server(), list[bytes]()
    peer = GrpcPeer(made)
    for name, kind in (("t", "normal"), ("empty", "normal"), ("x", "transaction")):
        peer.topic(name, kind)
    peer.end()
    receive = made.receive

    def noted(port: object, data: bytes) -> None:
        sent.append(data)
        receive(port, data)  # type: ignore[arg-type]

    made.receive = noted  # type: ignore[method-assign]
    use(GrpcPeer(made))
    return sent


def _filled() -> tuple[SimServer, Client]:
    """Return a server with topics and messages, and the client that has sent them."""
    made = server()
    client = Client(made)
    create(client, "x", 1, "+message.type=TRANSACTION")
    create(client, "empty")
    client.ok(Code.UPDATE_GROUP, body=b'{"groupName": "g", "retryMaxTimes": 999}')
    for _ in range(40):
        client.publish("t")
    return made, client


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.rule("FAIR-2")
class TestMemory:
    @pytest.mark.parametrize(
        "use", [_telemetry, _polling, _receiving, _uploading, _not_reading, _in_a_transaction, _in_error]
    )
    def test_nothing_is_left_of_aborted_grpc_connections(self, use: Callable[[GrpcPeer], None]) -> None:
        sent, (made, _) = _recorded(use), _filled()

        def once() -> None:
            port = made.open(GrpcEndpoint)
            if use is _not_reading:
                port.endpoint.congested(2 << 20)
            for data in sent:
                made.receive(port, data)
                made.end_turn()
                made.run_disk()
            made.lose(port)
            made.now += 2 * MINUTE_MS
            made.end_turn()
            made.run_disk()

        assert_nothing_is_left(once, ABORTED, KEPT, LEFT_BYTES)

    @pytest.mark.parametrize("use", [_subscribed, _pulling, _storing_half, _asking, _sending_a_part, _reading_nothing])
    def test_nothing_is_left_of_aborted_remoting_connections(self, use: Callable[[Client], None]) -> None:
        made, _ = _filled()

        def once() -> None:
            other = Client(made, "other")
            use(other)
            other.lose()
            made.now += 2 * MINUTE_MS
            made.end_turn()
            made.run_disk()

        assert_nothing_is_left(once, ABORTED, KEPT, LEFT_BYTES)

"""The table of methods covers the service, and names operations that have a rule."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.access.table import TABLE
from escrowmq.wire.rocketmq.content import MessageContent, envelope_of
from escrowmq.wire.rocketmq.grpc.methods import METHODS, SERVICE, UnaryMethod
from escrowmq.wire.rocketmq.proto import service_pb2 as messages
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, MessageQueue, Resource
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, message, server


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("path", METHODS)
def test_every_method_has_operations_with_a_rule(path: bytes) -> None:
    assert path.startswith(SERVICE)
    assert all(operation in TABLE for operation in METHODS[path].operations)


@pytest.mark.parametrize("path", METHODS)
def test_requests_and_responses_have_the_names_of_their_methods(path: bytes) -> None:
    method, name = METHODS[path], path.removeprefix(SERVICE).decode()
    if isinstance(method, UnaryMethod):
        assert method.request.DESCRIPTOR.name == name + "Request"
        assert method.response.DESCRIPTOR.name == name + "Response"


GROUP, TOPIC = Resource(name="g"), Resource(name="t")
QUEUE = MessageQueue(topic=TOPIC)
REFUSED: dict[str, Any] = {
    "QueryRoute": messages.QueryRouteRequest(topic=TOPIC),
    "QueryAssignment": messages.QueryAssignmentRequest(topic=TOPIC, group=GROUP),
    "SendMessage": messages.SendMessageRequest(messages=[message("t")]),
    "EndTransaction": messages.EndTransactionRequest(topic=Resource(name="x"), message_id="H", transaction_id="H"),
    "ReceiveMessage": messages.ReceiveMessageRequest(group=GROUP, message_queue=QUEUE),
    "AckMessage": messages.AckMessageRequest(
        group=GROUP, topic=TOPIC, entries=[messages.AckMessageEntry(receipt_handle="1-1-1-1")]
    ),
    "ChangeInvisibleDuration": messages.ChangeInvisibleDurationRequest(
        group=GROUP, topic=TOPIC, receipt_handle="1-1-1-1"
    ),
    "ForwardMessageToDeadLetterQueue": messages.ForwardMessageToDeadLetterQueueRequest(
        group=GROUP, topic=TOPIC, receipt_handle="1-1-1-1"
    ),
    "GetOffset": messages.GetOffsetRequest(group=GROUP, message_queue=QUEUE),
    "UpdateOffset": messages.UpdateOffsetRequest(group=GROUP, message_queue=QUEUE, offset=1),
    "QueryOffset": messages.QueryOffsetRequest(message_queue=QUEUE),
    "RecallMessage": messages.RecallMessageRequest(topic=TOPIC, recall_handle="1-1-a"),
}
"""For each method that needs rights, a request of a user who has none."""


@pytest.mark.rule("SEC-1")
def test_every_method_with_needs_is_tried() -> None:
    needs = {path for path, method in METHODS.items() if any(TABLE[each] for each in method.operations)}
    assert needs == {SERVICE + name.encode() for name in REFUSED}


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("name", REFUSED)
def test_a_call_without_the_right_is_refused(name: str) -> None:
    peer = GrpcPeer(server())
    peer.topic("t")
    peer.topic("x", "transaction")
    broker = peer.server.broker
    topic = broker.topics.find(broker.directory.vhost("/"), "x")
    assert topic is not None
    content = MessageContent(b"", b"body").pack()
    broker.half.store("/", "x", "H", envelope_of("x", ""), content, topic.streams[0], group="x", user="owner")
    broker.access.set_permission("guest", "/", "^$", "^$", "^$")
    number = peer.begin(name, REFUSED[name])
    assert peer.responses(name, number)[0].status.code == Code.FORBIDDEN

"""Names of topics and groups, and topics that sending creates."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.grpc.answers import named
from escrowmq.wire.rocketmq.grpc.session import unknown_topic
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, MessageType, Resource
from escrowmq.wire.rocketmq.proto.service_pb2 import SendMessageRequest
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, message, server


def test_a_namespace_is_a_part_of_the_name() -> None:
    assert named(Resource(name="t")) == "t"
    assert named(Resource(resource_namespace="n", name="t")) == "n%t"
    assert unknown_topic("t").status.code == Code.TOPIC_NOT_FOUND


def test_sending_creates_a_topic_of_the_message_type() -> None:
    peer = GrpcPeer(server())
    sent = message("new", kind=MessageType.FIFO, message_group="g")
    assert peer.run("SendMessage", SendMessageRequest(messages=[sent])).status.code == Code.OK
    broker = peer.server.broker
    found = broker.topics.find(broker.directory.vhost("/"), "new")
    assert found is not None
    assert (found.message_type, len(found.streams)) == ("fifo", 8)


@pytest.mark.rule("SEC-1")
def test_a_topic_is_not_created_without_the_right_or_the_option() -> None:
    peer = GrpcPeer(server(rocketmq=RocketmqOptions(auto_create=False)))
    request = SendMessageRequest(messages=[message("new")])
    assert peer.run("SendMessage", request).status.code == Code.TOPIC_NOT_FOUND
    made = server()
    made.broker.access.set_permission("guest", "/", "^$", ".*", ".*")
    assert GrpcPeer(made).run("SendMessage", request).status.code == Code.TOPIC_NOT_FOUND


@pytest.mark.parametrize("name", ["", "a b", "RMQ_SYS_TRANS_HALF_TOPIC", "t" * 200])
def test_names_of_no_topic_are_refused(name: str) -> None:
    request = SendMessageRequest(messages=[message(name)])
    assert GrpcPeer(server()).run("SendMessage", request).status.code == Code.ILLEGAL_TOPIC

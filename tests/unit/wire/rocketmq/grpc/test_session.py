"""Names of topics and groups, and topics that sending creates."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.grpc.answers import named
from escrowmq.wire.rocketmq.grpc.session import unknown_topic
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, Resource
from escrowmq.wire.rocketmq.proto.service_pb2 import SendMessageRequest
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, message, server


def test_a_namespace_is_a_part_of_the_name() -> None:
    assert named(Resource(name="t")) == "t"
    assert named(Resource(resource_namespace="n", name="t")) == "n%t"
    assert unknown_topic("t").status.code == Code.TOPIC_NOT_FOUND


def test_a_missing_topic_is_not_created() -> None:
    peer = GrpcPeer(server())
    assert peer.run("SendMessage", SendMessageRequest(messages=[message("new")])).status.code == Code.TOPIC_NOT_FOUND
    broker = peer.server.broker
    assert broker.topics.find(broker.directory.vhost("/"), "new") is None


@pytest.mark.parametrize("name", ["", "a b", "RMQ_SYS_TRANS_HALF_TOPIC", "t" * 200])
def test_names_of_no_topic_are_refused(name: str) -> None:
    request = SendMessageRequest(messages=[message(name)])
    assert GrpcPeer(server()).run("SendMessage", request).status.code == Code.ILLEGAL_TOPIC

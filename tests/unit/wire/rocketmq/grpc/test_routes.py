"""Routes and assignments lead to the address that the client uses."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.proto.definition_pb2 import (
    Address,
    AddressScheme,
    Code,
    Endpoints,
    MessageType,
    Permission,
    Resource,
)
from escrowmq.wire.rocketmq.proto.service_pb2 import QueryAssignmentRequest, QueryRouteRequest
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, server

HERE = Endpoints(scheme=AddressScheme.DOMAIN_NAME, addresses=[Address(host="broker", port=8081)])


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        ("normal", [MessageType.NORMAL]),
        ("transaction", [MessageType.TRANSACTION]),
        ("mixed", [MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION]),
    ],
)
def test_a_route_has_each_queue_with_the_types_of_the_topic(kind: str, types: list[MessageType]) -> None:
    peer = GrpcPeer(server())
    peer.topic("t", kind)
    found = peer.run("QueryRoute", QueryRouteRequest(topic=Resource(name="t"), endpoints=HERE))
    assert found.status.code == Code.OK
    assert [queue.id for queue in found.message_queues] == [0, 1, 2, 3]
    for queue in found.message_queues:
        assert (queue.broker.id, queue.broker.endpoints, queue.permission) == (0, HERE, Permission.READ_WRITE)
        assert list(queue.accept_message_types) == types
        assert queue.topic.name == "t"


def test_an_assignment_to_a_shared_group_is_one_queue_that_stands_for_all() -> None:
    peer = GrpcPeer(server())
    peer.topic("t")
    request = QueryAssignmentRequest(topic=Resource(name="t"), group=Resource(name="g"), endpoints=HERE)
    found = peer.run("QueryAssignment", request)
    assert [each.message_queue.id for each in found.assignments] == [-1]


def test_a_group_needs_a_name() -> None:
    peer = GrpcPeer(server())
    peer.topic("t")
    found = peer.run("QueryAssignment", QueryAssignmentRequest(topic=Resource(name="t")))
    assert found.status.code == Code.ILLEGAL_CONSUMER_GROUP

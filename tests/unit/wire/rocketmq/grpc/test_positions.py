"""Offsets begin with 0, and those of a group never go back."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.rocketmq.grpc.outgoing import timestamp
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, MessageQueue, QueryOffsetPolicy, Resource
from escrowmq.wire.rocketmq.proto.service_pb2 import GetOffsetRequest, QueryOffsetRequest, UpdateOffsetRequest
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer
from tests.unit.wire.rocketmq.grpc.test_receiving import begun, send

GROUP = Resource(name="g")


def queue(number: int = 1) -> MessageQueue:
    return MessageQueue(topic=Resource(name="t"), id=number)


def get(peer: GrpcPeer, number: int = 1) -> Any:
    return peer.run("GetOffset", GetOffsetRequest(group=GROUP, message_queue=queue(number)))


def update(peer: GrpcPeer, offset: int) -> int:
    request = UpdateOffsetRequest(group=GROUP, message_queue=queue(), offset=offset)
    return int(peer.run("UpdateOffset", request).status.code)


@pytest.mark.rule("GRP-5")
def test_the_offset_of_a_group_never_goes_back() -> None:
    peer = begun()
    send(peer, *[b"%d" % i for i in range(8)])
    assert get(peer).status.code == Code.OFFSET_NOT_FOUND
    assert update(peer, 2) == Code.OK
    assert get(peer).offset == 2
    assert update(peer, 1) == Code.OK
    assert get(peer).offset == 2
    assert update(peer, -1) == Code.ILLEGAL_OFFSET


def test_the_offsets_of_a_queue() -> None:
    peer = begun()
    send(peer, *[b"%d" % i for i in range(8)])
    found = {
        policy: peer.run("QueryOffset", QueryOffsetRequest(message_queue=queue(), query_offset_policy=policy)).offset
        for policy in (QueryOffsetPolicy.BEGINNING, QueryOffsetPolicy.END)
    }
    assert found == {QueryOffsetPolicy.BEGINNING: 0, QueryOffsetPolicy.END: 2}
    request = QueryOffsetRequest(
        message_queue=queue(), query_offset_policy=QueryOffsetPolicy.TIMESTAMP, timestamp=timestamp(1)
    )
    assert peer.run("QueryOffset", request).offset == 0


@pytest.mark.parametrize("number", [-1, 4])
def test_a_queue_that_does_not_exist_is_refused(number: int) -> None:
    assert get(begun(), number).status.code == Code.BAD_REQUEST


@pytest.mark.rule("SEC-1")
def test_the_permission_for_an_offset_is_that_of_the_topic_with_its_namespace() -> None:
    peer = begun()
    peer.topic("secret%t")
    peer.server.broker.access.set_permission("guest", "/", ".*", ".*", "^(t|g)$")
    place = MessageQueue(topic=Resource(resource_namespace="secret", name="t"), id=0)
    found = peer.run("UpdateOffset", UpdateOffsetRequest(group=GROUP, message_queue=place, offset=1))
    assert found.status.code == Code.FORBIDDEN

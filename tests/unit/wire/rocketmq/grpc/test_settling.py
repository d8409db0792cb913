"""Acknowledgements, other invisible times, and dead letters, by receipt handle."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.rocketmq.grpc.settings import duration
from escrowmq.wire.rocketmq.proto.definition_pb2 import ClientType, Code, Resource
from escrowmq.wire.rocketmq.proto.service_pb2 import (
    AckMessageEntry,
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
    ForwardMessageToDeadLetterQueueRequest,
    HeartbeatRequest,
)
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer
from tests.unit.wire.rocketmq.grpc.test_publishing import stored
from tests.unit.wire.rocketmq.grpc.test_receiving import begun, bodies, poll, received, send

GROUP, TOPIC = Resource(name="g"), Resource(name="t")


def leased(peer: GrpcPeer, *sent: bytes) -> list[str]:
    send(peer, *sent)
    return [each.system_properties.receipt_handle for each in received(peer, poll(peer))]


def ack(peer: GrpcPeer, *handles: str, group: Resource = GROUP) -> Any:
    entries = [AckMessageEntry(message_id="m", receipt_handle=handle) for handle in handles]
    return peer.run("AckMessage", AckMessageRequest(group=group, topic=TOPIC, entries=entries))


def change(peer: GrpcPeer, handle: str, ms: int) -> Any:
    request = ChangeInvisibleDurationRequest(
        group=GROUP, topic=TOPIC, receipt_handle=handle, invisible_duration=duration(ms)
    )
    return peer.run("ChangeInvisibleDuration", request)


@pytest.mark.rule("GRP-2")
def test_an_acknowledged_message_never_comes_again_and_its_handle_is_stale() -> None:
    peer = begun()
    handles = leased(peer, b"1", b"2")
    found = ack(peer, *handles)
    assert [entry.status.code for entry in found.entries] == [found.status.code] * 2 == [Code.OK] * 2
    assert ack(peer, handles[0]).status.code == Code.INVALID_RECEIPT_HANDLE
    peer.server.after(60_000)
    assert received(peer, poll(peer)) == []


def test_each_entry_has_a_result() -> None:
    peer = begun()
    (handle,) = leased(peer, b"1")
    found = ack(peer, handle, "nonsense")
    assert found.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in found.entries] == [Code.OK, Code.INVALID_RECEIPT_HANDLE]
    assert ack(peer).status.code == Code.BAD_REQUEST


@pytest.mark.rule("GRP-2")
def test_a_stale_handle_settles_nothing() -> None:
    peer = begun()
    (handle,) = leased(peer, b"1")
    peer.server.after(31_000)
    assert ack(peer, handle).status.code == Code.INVALID_RECEIPT_HANDLE
    assert bodies(peer, poll(peer)) == [b"1"]


def test_another_group_cannot_settle() -> None:
    peer = begun()
    (handle,) = leased(peer, b"1")
    assert ack(peer, handle, group=Resource(name="none")).status.code == Code.CONSUMER_GROUP_NOT_FOUND
    poll(peer, group="other")
    assert ack(peer, handle, group=Resource(name="other")).status.code == Code.INVALID_RECEIPT_HANDLE


def test_a_changed_lease_has_another_handle() -> None:
    peer = begun()
    (handle,) = leased(peer, b"1")
    found = change(peer, handle, 100_000)
    assert found.status.code == Code.OK
    assert change(peer, handle, 100_000).status.code == Code.INVALID_RECEIPT_HANDLE
    peer.server.after(60_000)
    assert ack(peer, found.receipt_handle).status.code == Code.OK


@pytest.mark.rule("GRP-4")
def test_a_push_consumer_gives_a_message_back_for_a_later_attempt() -> None:
    peer = begun()
    peer.run("Heartbeat", HeartbeatRequest(client_type=ClientType.PUSH_CONSUMER))
    (handle,) = leased(peer, b"1")
    assert change(peer, handle, 5_000).status.code == Code.OK
    peer.server.after(5_001)
    (again,) = received(peer, poll(peer))
    assert again.system_properties.delivery_attempt == 2


@pytest.mark.parametrize("ms", [-1000, 12 * 3600 * 1000 + 1])
def test_an_invisible_time_out_of_range_is_refused(ms: int) -> None:
    peer = begun()
    (handle,) = leased(peer, b"1")
    assert change(peer, handle, ms).status.code == Code.ILLEGAL_INVISIBLE_TIME
    assert ack(peer, handle).status.code == Code.OK


@pytest.mark.rule("GRP-4")
def test_a_message_is_moved_to_the_dead_letter_topic() -> None:
    peer = begun()
    (handle,) = leased(peer, b"1")
    request = ForwardMessageToDeadLetterQueueRequest(group=GROUP, topic=TOPIC, receipt_handle=handle, message_id="m")
    assert peer.run("ForwardMessageToDeadLetterQueue", request).status.code == Code.OK
    assert peer.run("ForwardMessageToDeadLetterQueue", request).status.code == Code.INVALID_RECEIPT_HANDLE
    assert sum(map(len, stored(peer, "%DLQ%g"))) == 1


@pytest.mark.rule("SEC-1")
def test_a_user_without_the_right_settles_nothing() -> None:
    peer = begun()
    (handle,) = leased(peer, b"1")
    peer.server.broker.access.set_permission("guest", "/", ".*", ".*", "^$")
    assert ack(peer, handle).status.code == Code.FORBIDDEN

"""RecallMessage: delayed messages are withdrawn by their handles."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, MessageType, Resource
from escrowmq.wire.rocketmq.proto.service_pb2 import RecallMessageRequest, SendMessageRequest
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, Server, message, server


def prepared(made: Server | None = None) -> GrpcPeer:
    peer = GrpcPeer(made or server())
    peer.topic("later", "delay", 1)
    return peer


def delayed(peer: GrpcPeer, ident: str = "ID1", seconds: int = 60) -> str:
    """Send a delayed message, and return its recall handle."""
    due = Timestamp(seconds=peer.server.broker.engine.now // 1000 + seconds)
    sent = message("later", ident=ident, kind=MessageType.DELAY, delivery_timestamp=due)
    (entry,) = peer.run("SendMessage", SendMessageRequest(messages=[sent])).entries
    return str(entry.recall_handle)


def recall(peer: GrpcPeer, handle: str, topic: str = "later") -> Any:
    return peer.run("RecallMessage", RecallMessageRequest(topic=Resource(name=topic), recall_handle=handle))


def arrived(peer: GrpcPeer, seconds: int = 120) -> int:
    peer.server.after(seconds * 1000)
    peer.exchange()
    broker = peer.server.broker
    topic = broker.topics.find(broker.directory.vhost("/"), "later")
    assert topic is not None
    return topic.streams[0].end - topic.streams[0].begin


@pytest.mark.rule("DLY-1")
def test_a_recalled_message_never_arrives_and_others_do() -> None:
    peer = prepared()
    handles = [delayed(peer, f"ID{i}") for i in range(3)]
    answer = recall(peer, handles[1])
    assert (answer.status.code, answer.message_id) == (Code.OK, "ID1")
    assert arrived(peer) == 2


def test_a_recall_is_answered_when_it_is_on_disk() -> None:
    peer = prepared()
    request = RecallMessageRequest(topic=Resource(name="later"), recall_handle=delayed(peer))
    call = peer.begin("RecallMessage", request, disk=False)
    assert peer.status(call) is None
    peer.exchange()
    assert peer.status(call) == 0


def test_a_message_is_recalled_once_and_not_after_its_delivery() -> None:
    peer = prepared()
    first, second = delayed(peer, "A"), delayed(peer, "B")
    assert recall(peer, first).status.code == Code.OK
    assert recall(peer, first).status.code == Code.MESSAGE_NOT_FOUND
    assert arrived(peer) == 1
    assert recall(peer, second).status.code == Code.MESSAGE_NOT_FOUND


def test_a_message_that_is_due_at_once_has_no_handle() -> None:
    assert delayed(prepared(), seconds=-5) == ""


@pytest.mark.parametrize(
    "handle", ["", "x", "1-2", "-1-2-ID", "g-1-ID", f"{1 << 64:x}-1-ID", "1-1-" + "x" * 600, "1-1-é"]
)
def test_a_malformed_handle_is_refused(handle: str) -> None:
    assert recall(prepared(), handle).status.code == Code.ILLEGAL_MESSAGE_ID


def test_a_handle_of_another_message_or_topic_recalls_nothing() -> None:
    peer = prepared()
    peer.topic("other", "delay")
    handle = delayed(peer)
    assert recall(peer, handle.replace("ID1", "ID2")).status.code == Code.MESSAGE_NOT_FOUND
    assert recall(peer, handle, "other").status.code == Code.MESSAGE_NOT_FOUND
    assert recall(peer, handle, "missing").status.code == Code.TOPIC_NOT_FOUND
    assert arrived(peer) == 1


@pytest.mark.rule("SEC-1")
def test_a_recall_takes_the_right_to_send() -> None:
    made = server()
    peer = prepared(made)
    handle = delayed(peer)
    made.broker.access.set_permission("guest", "/", ".*", "^$", ".*")
    assert recall(peer, handle).status.code == Code.FORBIDDEN
    assert arrived(peer) == 1

"""Messages arrive in the streams of their topics, in the form that both generations read."""

from __future__ import annotations

import gzip

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from escrowmq.core.messages.entry import Entry
from escrowmq.wire.rocketmq.content import PROTOCOL, unpack
from escrowmq.wire.rocketmq.proto.definition_pb2 import Code, Encoding, MessageType
from escrowmq.wire.rocketmq.proto.service_pb2 import SendMessageRequest
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, message, server


def stored(peer: GrpcPeer, topic: str) -> list[list[Entry]]:
    """Return the messages of each stream."""
    broker = peer.server.broker
    found = broker.topics.find(broker.directory.vhost("/"), topic)
    assert found is not None
    result = []
    for stream in found.streams:
        entries: list[Entry] = []
        while got := stream.read(stream.begin + len(entries), 100):
            entries += got
        result.append(entries)
    return result


def test_messages_are_spread_over_the_queues() -> None:
    peer = GrpcPeer(server())
    peer.topic("t")
    for i in range(8):
        sent = message("t", b"%d" % i, f"ID{i}", tag="a")
        found = peer.run("SendMessage", SendMessageRequest(messages=[sent]))
        assert found.status.code == Code.OK
        (entry,) = found.entries
        assert (entry.message_id, entry.transaction_id, entry.offset) == (f"ID{i}", f"ID{i}", i // 4)
    streams = stored(peer, "t")
    assert [len(entries) for entries in streams] == [2, 2, 2, 2]
    first = streams[1][0]
    assert (first.run.envelope.exchange, first.run.envelope.routing_key) == ("t", "a")
    assert first.run.envelope.protocol == PROTOCOL
    assert unpack(first.content).body == b"0"


@pytest.mark.rule("GRP-3")
def test_messages_of_one_group_are_in_one_queue_in_order() -> None:
    peer = GrpcPeer(server())
    peer.topic("t", "fifo")
    for i in range(10):
        sent = message("t", b"%d" % i, f"ID{i}", MessageType.FIFO, message_group="g")
        assert peer.run("SendMessage", SendMessageRequest(messages=[sent])).status.code == Code.OK
    (entries,) = [each for each in stored(peer, "t") if each]
    assert [unpack(entry.content).body for entry in entries] == [b"%d" % i for i in range(10)]


@pytest.mark.rule("DLY-1")
def test_a_delayed_message_arrives_at_its_time() -> None:
    peer = GrpcPeer(server())
    peer.topic("t", "delay")
    due = Timestamp(seconds=peer.server.now // 1000 + 60)
    sent = message("t", kind=MessageType.DELAY, delivery_timestamp=due)
    assert peer.run("SendMessage", SendMessageRequest(messages=[sent])).status.code == Code.OK
    peer.server.after(59_000)
    assert sum(map(len, stored(peer, "t"))) == 0
    peer.server.after(2_000)
    assert sum(map(len, stored(peer, "t"))) == 1


@pytest.mark.rule("HALF-7")
def test_a_message_of_another_type_is_refused() -> None:
    peer = GrpcPeer(server())
    peer.topic("t", "transaction")
    found = peer.run("SendMessage", SendMessageRequest(messages=[message("t")]))
    assert found.status.code == found.entries[0].status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert found.status.message == (
        "TopicMessageType validate failed, the expected type is TRANSACTION, but actual type is NORMAL"
    )


@pytest.mark.rule("SEC-1")
def test_a_user_without_the_right_to_write_is_refused() -> None:
    made = server()
    peer = GrpcPeer(made)
    peer.topic("t")
    made.broker.access.set_permission("guest", "/", "^$", "^$", "^$")
    assert peer.run("SendMessage", SendMessageRequest(messages=[message("t")])).status.code == Code.FORBIDDEN


def test_each_message_of_a_request_has_a_result() -> None:
    peer = GrpcPeer(server())
    peer.topic("t")
    found = peer.run("SendMessage", SendMessageRequest(messages=[message("t"), message("t", b"")]))
    assert found.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in found.entries] == [Code.OK, Code.MESSAGE_BODY_EMPTY]


@pytest.mark.parametrize("count", [0, 1025])
def test_the_number_of_messages_is_bounded(count: int) -> None:
    peer = GrpcPeer(server())
    peer.topic("t")
    found = peer.run("SendMessage", SendMessageRequest(messages=[message("t")] * count))
    assert found.status.code == Code.BAD_REQUEST


@pytest.mark.rule("FAIR-1")
def test_the_decompressed_bodies_of_a_request_are_bounded_together() -> None:
    peer = GrpcPeer(server())
    peer.topic("t")
    body = gzip.compress(bytes(3 << 20))
    sent = [message("t", body, f"ID{i}") for i in range(4)]
    for each in sent:
        each.system_properties.body_encoding = Encoding.GZIP
    found = peer.run("SendMessage", SendMessageRequest(messages=sent))
    codes = [entry.status.code for entry in found.entries]
    assert codes == [Code.OK, Code.OK, Code.MESSAGE_BODY_TOO_LARGE, Code.MESSAGE_BODY_TOO_LARGE]

"""Long polls: answered at once, when a message comes, or when their time is over."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.rocketmq.grpc.settings import duration
from escrowmq.wire.rocketmq.proto.definition_pb2 import (
    Code,
    FilterExpression,
    FilterType,
    MessageQueue,
    MessageType,
    Resource,
)
from escrowmq.wire.rocketmq.proto.service_pb2 import ReceiveMessageRequest, SendMessageRequest
from tests.unit.wire.rocketmq.grpc.peer import GrpcPeer, message, server

TAG, SQL = FilterType.TAG, FilterType.SQL


def request(group: str = "g", topic: str = "t", **fields: Any) -> ReceiveMessageRequest:
    given: dict[str, Any] = {"batch_size": 32, "invisible_duration": duration(30_000)} | fields
    return ReceiveMessageRequest(
        group=Resource(name=group), message_queue=MessageQueue(topic=Resource(name=topic), id=-1), **given
    )


def begun(kind: str = "normal", **options: Any) -> GrpcPeer:
    peer = GrpcPeer(server(**options))
    peer.topic("t", kind)
    return peer


def send(peer: GrpcPeer, *bodies: bytes, **fields: Any) -> None:
    for body in bodies:
        sent = message("t", body, f"ID-{body.decode()}", **fields)
        assert peer.run("SendMessage", SendMessageRequest(messages=[sent])).status.code == Code.OK


def poll(peer: GrpcPeer, **fields: Any) -> int:
    return peer.begin("ReceiveMessage", request(**fields), grpc_timeout="30S")


def code(peer: GrpcPeer, number: int) -> int:
    return int(peer.responses("ReceiveMessage", number)[0].status.code)


def received(peer: GrpcPeer, number: int) -> list[Any]:
    return [
        each.message for each in peer.responses("ReceiveMessage", number) if each.WhichOneof("content") == "message"
    ]


def bodies(peer: GrpcPeer, number: int) -> list[bytes]:
    return sorted(each.body for each in received(peer, number))


def test_messages_of_all_queues_are_answered_at_once() -> None:
    peer = begun()
    send(peer, b"1", b"2", b"3", b"4", b"5")
    number = poll(peer)
    found = peer.responses("ReceiveMessage", number)
    assert found[0].status.code == Code.OK
    assert found[-1].HasField("delivery_timestamp")
    assert bodies(peer, number) == [b"1", b"2", b"3", b"4", b"5"]
    assert {each.system_properties.delivery_attempt for each in received(peer, number)} == {1}
    assert len({each.system_properties.receipt_handle for each in received(peer, number)}) == 5


@pytest.mark.rule("GRP-1", "GRP-2")
def test_a_leased_message_is_offered_again_when_its_lease_runs_out() -> None:
    peer = begun()
    send(peer, b"1")
    assert bodies(peer, poll(peer)) == [b"1"]
    number = poll(peer)
    assert peer.responses("ReceiveMessage", number) == []
    assert bodies(peer, poll(peer, group="other")) == [b"1"]
    peer.server.after(19_000)
    peer.exchange()
    assert peer.status(number) is None
    number = poll(peer)
    peer.server.after(12_000)
    peer.exchange()
    (again,) = received(peer, number)
    assert again.system_properties.delivery_attempt == 2


def test_a_poll_is_answered_when_a_message_comes() -> None:
    peer = begun()
    number = poll(peer)
    assert peer.status(number) is None
    send(peer, b"1")
    peer.exchange()
    assert bodies(peer, number) == [b"1"]


@pytest.mark.parametrize(("given", "expected_ms"), [(None, 20_000), (8_000, 8_000), (1_000, 5_000), (90_000, 20_000)])
def test_a_poll_ends_after_its_time(given: int | None, expected_ms: int) -> None:
    peer = begun()
    number = poll(peer, **({} if given is None else {"long_polling_timeout": duration(given)}))
    peer.server.after(expected_ms - 1)
    peer.exchange()
    assert peer.status(number) is None
    peer.server.after(1)
    peer.exchange()
    assert code(peer, number) == Code.MESSAGE_NOT_FOUND
    assert peer.status(number) == 0


def test_a_poll_ends_before_its_deadline() -> None:
    peer = begun()
    number = peer.begin("ReceiveMessage", request(), grpc_timeout="6S")
    peer.server.after(5_950)
    peer.exchange()
    assert code(peer, number) == Code.MESSAGE_NOT_FOUND


def test_a_deadline_that_is_too_near_is_refused() -> None:
    peer = begun()
    number = peer.begin("ReceiveMessage", request(), grpc_timeout="4S")
    assert code(peer, number) == Code.ILLEGAL_POLLING_TIME


def test_a_poll_that_is_cancelled_takes_no_message() -> None:
    peer = begun()
    number = poll(peer)
    peer.client.reset_stream(number)
    peer.exchange()
    send(peer, b"1")
    assert bodies(peer, poll(peer)) == [b"1"]


def test_a_lost_connection_leaves_no_poll() -> None:
    peer = begun()
    poll(peer)
    other = GrpcPeer(peer.server)
    peer.end()
    send(other, b"1")
    assert bodies(other, poll(other)) == [b"1"]


@pytest.mark.rule("GRP-6")
@pytest.mark.parametrize(
    ("kind", "expression", "expected"),
    [
        (TAG, "*", [b"1", b"2", b"3"]),
        (TAG, "a", [b"1"]),
        (TAG, "a || b", [b"1", b"2"]),
        (SQL, "n > 1", [b"2", b"3"]),
        (SQL, "TAGS = 'b' AND n = 2", [b"2"]),
    ],
)
def test_filters_decide_on_the_broker(kind: FilterType, expression: str, expected: list[bytes]) -> None:
    peer = begun()
    for body, tag in ((b"1", "a"), (b"2", "b"), (b"3", "c")):
        send(peer, body, tag=tag, properties={"n": body.decode()})
    number = poll(peer, filter_expression=FilterExpression(type=kind, expression=expression))
    assert bodies(peer, number) == expected


def test_a_malformed_filter_is_refused() -> None:
    peer = begun()
    number = poll(peer, filter_expression=FilterExpression(type=SQL, expression="n >"))
    assert code(peer, number) == Code.ILLEGAL_FILTER_EXPRESSION


@pytest.mark.parametrize("given", [9_999, 12 * 3600 * 1000 + 1])
def test_an_invisible_time_out_of_range_is_refused(given: int) -> None:
    peer = begun()
    assert code(peer, poll(peer, invisible_duration=duration(given))) == Code.ILLEGAL_INVISIBLE_TIME


def test_the_lease_of_a_push_consumer_is_renewed() -> None:
    peer = begun()
    send(peer, b"1")
    number = peer.begin(
        "ReceiveMessage",
        ReceiveMessageRequest(
            group=Resource(name="g"),
            message_queue=MessageQueue(topic=Resource(name="t")),
            batch_size=1,
            auto_renew=True,
        ),
    )
    assert bodies(peer, number) == [b"1"]
    for _ in range(10):
        peer.server.after(20_000)
    again = poll(peer)
    assert received(peer, again) == []


@pytest.mark.rule("FAIR-3")
def test_large_messages_are_answered_a_few_at_a_time() -> None:
    peer = begun()
    for i in range(10):
        sent = message("t", bytes(2_000_000), f"ID{i}")
        assert peer.run("SendMessage", SendMessageRequest(messages=[sent])).status.code == Code.OK
    assert 1 < len(received(peer, poll(peer))) <= 8


@pytest.mark.rule("GRP-3")
def test_a_fifo_group_gets_one_message_group_in_order() -> None:
    peer = begun("fifo")
    send(peer, b"1", b"2", b"3", kind=MessageType.FIFO, message_group="g")
    found = [each.body for each in received(peer, poll(peer))]
    assert found == [b"1", b"2", b"3"]


@pytest.mark.rule("SEC-1", "SEC-3")
def test_a_user_without_the_right_to_read_gets_nothing_also_while_waiting() -> None:
    peer = begun()
    waiting = poll(peer)
    peer.server.broker.access.set_permission("guest", "/", ".*", ".*", "^$")
    assert code(peer, poll(peer)) == Code.FORBIDDEN
    send(peer, b"1")
    peer.exchange()
    assert code(peer, waiting) == Code.FORBIDDEN


def test_unknown_topics_and_nameless_groups_are_refused() -> None:
    peer = begun()
    assert code(peer, poll(peer, topic="none")) == Code.TOPIC_NOT_FOUND
    assert code(peer, poll(peer, group="")) == Code.ILLEGAL_CONSUMER_GROUP


@pytest.mark.rule("GRP-1", "GRP-2")
@pytest.mark.parametrize("disk", [False, True])
def test_messages_for_a_client_that_is_lost_come_again_once_after_their_lease(disk: bool) -> None:
    """The connection is lost while the answer waits for the disk, or after it was sent."""
    peer = begun()
    send(peer, b"1", b"2")
    other = GrpcPeer(peer.server, "client-2")
    other.begin("ReceiveMessage", request(), grpc_timeout="30S", disk=disk)
    other.end()
    number = poll(peer)
    assert received(peer, number) == []
    peer.server.after(30_000)
    peer.exchange()
    found = bodies(peer, number) or bodies(peer, poll(peer))
    assert found == [b"1", b"2"]
    assert bodies(peer, poll(peer)) == []


@pytest.mark.rule("GRP-1")
def test_a_waiting_client_that_is_lost_takes_no_message_that_comes_in_the_same_turn() -> None:
    peer = begun()
    other = GrpcPeer(peer.server, "client-2")
    poll(other)
    number = poll(peer)
    sent = peer.open("SendMessage")
    peer.send(sent, SendMessageRequest(messages=[message("t", b"1")]), ends=True)
    peer.server.receive(peer.port, peer.client.data_to_send())
    other.end()
    peer.exchange()
    assert bodies(peer, number) == [b"1"]

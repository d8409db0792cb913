"""Half messages and decisions as topics that operators read."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.names import HALF_TOPIC, OPERATION_TOPIC, PARKING_TOPIC
from escrowmq.wire.rocketmq.properties import parse
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from tests.unit.wire.rocketmq.remoting.clients import Client, found, messages, server
from tests.unit.wire.rocketmq.remoting.test_producing import COMMIT, ROLL_BACK, end, half

VIEWS = (HALF_TOPIC, OPERATION_TOPIC, PARKING_TOPIC)


def shown(client: Client, topic: str, offset: int = 1) -> list[tuple[int, bytes, dict[str, str]]]:
    """Return offset, body and properties of the messages in a view."""
    pulled = client.pull(topic, 0, offset)
    return [(each.offset, each.content.body, parse(each.content.properties)) for each in messages(pulled.body)]


@pytest.mark.rule("HALF-10")
def test_each_view_is_a_topic_with_one_queue_that_can_only_be_read() -> None:
    client = Client(server())
    for topic in VIEWS:
        (queue,) = found(client, Code.ROUTE, topic=topic)["queueDatas"]
        assert (queue["perm"], queue["readQueueNums"]) == (4, 1)
        assert found(client, Code.TOPIC_CONFIG, topic=topic)["perm"] == 4
        assert client.publish(topic).code == ResultCode.NO_PERMISSION
        assert b'"maxOffset": 0, "minOffset": 0' in client.ok(Code.TOPIC_STATS, {"topic": topic}).body


@pytest.mark.rule("HALF-10")
def test_undecided_messages_and_decisions_are_in_views_of_their_own() -> None:
    client = Client(server())
    numbers = [int(half(client, key).fields["queueOffset"]) for key in ("a", "b", "c")]
    assert [offset for offset, _, _ in shown(client, HALF_TOPIC)] == numbers
    assert shown(client, OPERATION_TOPIC) == []
    for key, outcome in (("a", COMMIT), ("c", ROLL_BACK)):
        end(client, half(client, key), outcome)
    ((offset, body, properties),) = shown(client, HALF_TOPIC)
    assert (offset, body, properties["REAL_TOPIC"], properties["REAL_QID"]) == (numbers[1], b"half", "t", "1")
    assert [
        (offset, body, properties["TAGS"], properties["TRANSACTION_STATE"])
        for offset, body, properties in shown(client, OPERATION_TOPIC)
    ] == [(numbers[0], b"1,", "d", "COMMITTED"), (numbers[2], b"3,", "d", "ROLLED_BACK")]


@pytest.mark.rule("HALF-6", "HALF-10")
def test_a_message_without_a_decision_after_the_last_check_is_in_the_parking_topic() -> None:
    client = Client(server())
    sent = half(client)
    for _ in range(17):
        client.server.now += 30_000
        client.server.end_turn()
    assert len(client.requests(Code.CHECK_TRANSACTION)) == 15
    assert shown(client, HALF_TOPIC) == []
    ((_, body, properties),) = shown(client, PARKING_TOPIC)
    assert (body, properties["REAL_TOPIC"], properties["TRANSACTION_CHECK_TIMES"]) == (b"half", "t", "15")
    assert end(client, sent, COMMIT) == ResultCode.ILLEGAL_OPERATION
    assert len(shown(client, PARKING_TOPIC)) == 1


def test_offsets_of_a_view_are_the_numbers_of_its_messages() -> None:
    client = Client(server())
    half(client, "a")
    client.server.now += 1000
    half(client, "b")
    place = {"topic": HALF_TOPIC, "queueId": "0"}
    assert client.ok(Code.MIN_OFFSET, place).fields == {"offset": "1"}
    assert client.ok(Code.MAX_OFFSET, place).fields == {"offset": "3"}
    for time, offset in ((0, "1"), (client.server.now, "2"), (client.server.now + 1, "3")):
        assert client.ok(Code.SEARCH_OFFSET, {**place, "timestamp": str(time)}).fields == {"offset": offset}


@pytest.mark.rule("SEC-1")
def test_a_view_has_only_messages_of_topics_that_the_user_may_read() -> None:
    client = Client(server())
    half(client)
    client.server.broker.access.set_permission("guest", "/", ".*", ".*", "^(g|RMQ.*)$")
    assert shown(client, HALF_TOPIC) == []
    client.server.broker.access.set_permission("guest", "/", ".*", ".*", "^(g|t)$")
    assert len(shown(client, HALF_TOPIC)) == 1

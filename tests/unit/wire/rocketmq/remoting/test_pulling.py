"""Pulls of classic clients."""

from __future__ import annotations

import pytest

from escrowmq.core.budget import EXAMINED, METHOD
from escrowmq.wire.endpoint import EndpointLimits
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.frames import Command, encode
from escrowmq.wire.rocketmq.remoting.pulling import MOST_BYTES, MOST_EXAMINED
from tests.harness.server import Options
from tests.unit.wire.rocketmq.remoting.clients import Client, messages, pull_fields, send_fields, server

HOLD = {"sysFlag": "6", "suspendTimeoutMillis": "15000"}


def filled(count: int = 3, tag: str = "a") -> Client:
    client = Client(server())
    for number in range(count):
        client.publish("t", b"%d" % number, TAGS=tag)
    return client


def test_a_pull_returns_messages_from_an_offset_on() -> None:
    client = filled()
    pulled = client.pull("t", 0, 1, maxMsgNums="1")
    assert [each.content.body for each in messages(pulled.body)] == [b"1"]
    assert {name: pulled.fields[name] for name in ("nextBeginOffset", "minOffset", "maxOffset")} == {
        "nextBeginOffset": "2",
        "minOffset": "0",
        "maxOffset": "3",
    }


def test_a_pull_is_limited_in_bytes_but_has_a_message() -> None:
    client = Client(server())
    for _ in range(3):
        client.publish("t", b"x" * (MOST_BYTES - 1000))
    assert len(messages(client.pull("t").body)) == 1


@pytest.mark.parametrize(("offset", "begin"), [(-1, "0"), (4, "3"), (99, "3")])
def test_an_offset_outside_of_the_queue_is_moved(offset: int, begin: str) -> None:
    pulled = filled().pull("t", 0, offset)
    assert (pulled.code, pulled.fields["nextBeginOffset"]) == (ResultCode.PULL_OFFSET_MOVED, begin)


def test_an_empty_queue_has_nothing_to_pull() -> None:
    assert filled().pull("t", 0, 3).code == ResultCode.PULL_NOT_FOUND


def test_a_pull_can_wait_for_a_message() -> None:
    client = filled()
    number = client.send(Code.LITE_PULL, pull_fields("t", 0, 3, **HOLD))
    assert client.response(number) is None
    client.publish("t", b"new")
    found = client.response(number)
    assert found is not None
    assert [each.content.body for each in messages(found.body)] == [b"new"]


def test_a_pull_waits_only_so_long() -> None:
    client = filled()
    number = client.send(Code.LITE_PULL, pull_fields("t", 0, 3, **HOLD))
    client.server.now += 15_000
    client.server.end_turn()
    found = client.response(number)
    assert found is not None
    assert (found.code, found.fields["nextBeginOffset"]) == (ResultCode.PULL_NOT_FOUND, "3")


def waits_for_the_disk(client: Client, code: Code, fields: dict[str, str]) -> Command:
    """Send a message and a request before the disk has the message. Return the response, which waits for that."""
    client.send(Code.SEND_V2, send_fields("t", 0), b"new")
    number = client.send(code, fields)
    assert client.response(number) is None
    client.server.run_disk()
    found = client.response(number)
    assert found is not None
    return found


@pytest.mark.rule("GRP-1")
def test_offsets_are_told_once_their_messages_are_on_disk() -> None:
    """Otherwise another message may have the offset after a crash, and the client, which keeps it, misses that one."""
    pulled = waits_for_the_disk(filled(), Code.LITE_PULL, pull_fields("t", 0, 3))
    assert [each.content.body for each in messages(pulled.body)] == [b"new"]
    moved = waits_for_the_disk(filled(), Code.LITE_PULL, pull_fields("t", 0, 99))
    assert (moved.code, moved.fields["nextBeginOffset"]) == (ResultCode.PULL_OFFSET_MOVED, "4")
    passed = waits_for_the_disk(filled(), Code.LITE_PULL, pull_fields("t", 0, 3, subscription="other"))
    assert (passed.code, passed.fields["nextBeginOffset"]) == (ResultCode.PULL_RETRY_IMMEDIATELY, "4")
    place = {"topic": "t", "queueId": "0"}
    assert waits_for_the_disk(filled(), Code.MAX_OFFSET, place).fields["offset"] == "4"
    late = place | {"timestamp": str(1 << 60)}
    assert waits_for_the_disk(filled(), Code.SEARCH_OFFSET, late).fields["offset"] == "4"


@pytest.mark.rule("GRP-1")
def test_a_pull_that_waited_is_answered_once_its_message_is_on_disk() -> None:
    client = filled()
    number = client.send(Code.LITE_PULL, pull_fields("t", 0, 3, **HOLD))
    client.send(Code.SEND_V2, send_fields("t", 0), b"new")
    assert client.response(number) is None
    client.server.run_disk()
    assert client.response(number) is not None


def test_the_pulls_that_wait_are_limited() -> None:
    options = Options(limits=EndpointLimits(rocketmq=RocketmqOptions(held_pulls=1)))
    client = Client(server(options=options))
    client.publish("t")
    first = client.send(Code.LITE_PULL, pull_fields("t", 0, 1, **HOLD))
    assert client.pull("t", 0, 1, **HOLD).code == ResultCode.PULL_NOT_FOUND
    assert client.response(first) is None


def test_a_pull_that_waits_ends_with_its_topic() -> None:
    client = filled()
    number = client.send(Code.LITE_PULL, pull_fields("t", 0, 3, **HOLD))
    client.server.broker.topics.delete(client.server.broker.directory.vhost("/"), "t")
    client.server.end_turn()
    found = client.response(number)
    assert found is not None
    assert found.code == ResultCode.TOPIC_NOT_EXIST


def test_a_pull_that_waits_ends_with_its_connection() -> None:
    client = filled()
    client.send(Code.LITE_PULL, pull_fields("t", 0, 3, **HOLD))
    client.lose()
    other = Client(client.server)
    other.publish("t", b"new")
    client.server.now += 60_000
    client.server.end_turn()


@pytest.mark.rule("GRP-6")
def test_a_filter_decides_on_the_broker() -> None:
    client = filled(3, "a")
    client.publish("t", b"b", TAGS="b")
    pulled = client.pull("t", subscription="b")
    assert [each.content.body for each in messages(pulled.body)] == [b"b"]
    skipped = client.pull("t", subscription="c")
    assert (skipped.code, skipped.fields["nextBeginOffset"]) == (ResultCode.PULL_RETRY_IMMEDIATELY, "4")
    found = client.pull("t", subscription="TAGS = 'b'", expressionType="SQL92")
    assert len(messages(found.body)) == 1
    assert client.pull("t", subscription="(", expressionType="SQL92").code == ResultCode.SUBSCRIPTION_PARSE_FAILED


def test_a_pull_examines_a_limited_number_of_messages() -> None:
    client = filled(1)
    stream = client.server.broker.topics.find(client.server.broker.directory.vhost("/"), "t")
    assert stream is not None
    entry = stream.streams[0].read(1, 1)[0]
    client.server.broker.engine.publish(entry.run.envelope, [entry.content] * (MOST_EXAMINED + 10), stream.streams[:1])
    client.server.run_disk()
    skipped = client.pull("t", subscription="c")
    assert (skipped.code, skipped.fields["nextBeginOffset"]) == (ResultCode.PULL_RETRY_IMMEDIATELY, str(MOST_EXAMINED))


def test_the_filter_of_a_heartbeat_counts_for_pulls_without_one() -> None:
    client = filled(1, "a")
    fields = pull_fields("t", sysFlag="0")
    assert client.call(Code.PULL, fields).code == ResultCode.SUBSCRIPTION_NOT_EXIST
    client.heartbeat("g", t="b")
    assert client.call(Code.PULL, fields).code == ResultCode.PULL_RETRY_IMMEDIATELY
    client.heartbeat("g", t="*")
    assert client.call(Code.PULL, fields).code == ResultCode.SUCCESS


def test_a_pull_carries_the_progress_of_its_group() -> None:
    client = filled()
    client.pull("t", 0, 2, sysFlag="5", commitOffset="2")
    offset = client.ok(Code.QUERY_OFFSET, {"consumerGroup": "g", "topic": "t", "queueId": "0"}).fields["offset"]
    assert offset == "2"


@pytest.mark.parametrize(
    ("topic", "queue", "result"), [("x", 0, ResultCode.TOPIC_NOT_EXIST), ("t", 8, ResultCode.INVALID_PARAMETER)]
)
def test_a_missing_queue_is_refused(topic: str, queue: int, result: ResultCode) -> None:
    assert filled().pull(topic, queue).code == result


@pytest.mark.rule("SEC-1")
def test_a_pull_needs_permissions() -> None:
    client = filled()
    client.server.broker.access.set_permission("guest", "/", ".*", ".*", "^(t|h)$")
    assert client.pull("t", group="h").code == ResultCode.SUCCESS
    assert client.pull("t", group="g").code == ResultCode.NO_PERMISSION


def test_a_slow_reader_gets_no_further_messages() -> None:
    client = filled()
    number = client.send(Code.LITE_PULL, pull_fields("t", 0, 3, **HOLD))
    endpoint = client.port.endpoint
    endpoint.congested(1 << 30)
    Client(client.server).publish("t", b"new")
    assert client.response(number) is None
    endpoint.congested(0)
    client.server.end_turn()
    assert client.response(number) is not None


@pytest.mark.rule("FAIR-1")
def test_messages_that_a_pull_passes_over_cost_work() -> None:
    client = Client(server())
    client.publish("t")
    group = client.server.broker.groups
    for _ in range(63):
        client.publish("t")
    client.ok(Code.UPDATE_GROUP, body=b'{"groupName": "g"}')
    found = group.find("/", "g")
    topic = client.server.broker.topics.find(client.server.broker.directory.vhost("/"), "t")
    assert found is not None
    assert topic is not None
    leased = found.lease(topic.streams[:1], 64, 60_000)
    found.settle([each.handle for each in leased.leases[1:]])
    budget = client.server.broker.engine.requests
    client.server.end_turn()
    before = budget.left
    client.server.receive(client.port, encode(Command(Code.LITE_PULL, pull_fields("t", offset=1), b"", 99)))
    assert before - budget.left >= METHOD + 63 // EXAMINED

"""The progress of consumer groups, shown, reset and copied."""

from __future__ import annotations

import json

import pytest

from escrowmq.core.groups.group import Group
from escrowmq.core.queues.stream import StreamQueue
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from tests.unit.wire.rocketmq.remoting.clients import Client, found, messages, pull_fields, server

PLACE = {"consumerGroup": "g", "topic": "t", "queueId": "0"}


def consumed(count: int = 5) -> Client:
    """A client of group g that has consumed `count` messages of queue 0."""
    client = Client(server())
    for _ in range(count):
        client.publish("t")
        client.server.now += 1000
    client.heartbeat("g", t="*")
    client.ok(Code.UPDATE_OFFSET, {**PLACE, "commitOffset": str(count)})
    return client


def offset(client: Client, group: str = "g") -> str:
    return client.ok(Code.QUERY_OFFSET, {**PLACE, "consumerGroup": group}).fields["offset"]


def test_the_progress_of_a_group_is_shown() -> None:
    client = Client(server())
    client.publish("t")
    client.heartbeat("g", t="*")
    client.ok(Code.UPDATE_OFFSET, {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": "1"})
    table = client.ok(Code.CONSUME_STATS, {"consumerGroup": "g"}).body.decode()
    assert '"queueId": 0, "topic": "t"}:{"brokerOffset": 1, "consumerOffset": 1' in table
    other = client.ok(Code.CONSUME_STATS, {"consumerGroup": "g", "topic": "u"}).body
    assert json.loads(other)["offsetTable"] == {}


def test_the_progress_of_all_groups_is_shown() -> None:
    client = consumed()
    client.publish("t")
    body = client.ok(Code.BROKER_CONSUME_STATS, {"isOrder": "false"}).body.decode()
    assert '{"g":[{"consumeTps":0.0,"offsetTable":' in body
    assert '"totalDiff":1' in body


@pytest.mark.rule("GRP-5")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"timestamp": "0"}, "0"),
        ({"timestamp": "-1"}, "5"),
        ({"timestamp": "-1", "offset": "-1"}, "5"),
        ({"timestamp": "1002000"}, "2"),
        ({"timestamp": "-1", "queueId": "0", "offset": "3"}, "3"),
        ({"timestamp": "0", "queueId": "1"}, "5"),
    ],
)
def test_an_operator_resets_the_progress(fields: dict[str, str], expected: str) -> None:
    client = consumed()
    body = client.ok(Code.RESET_PROGRESS, {"topic": "t", "group": "g", **fields}).body.decode()
    assert (f'"queueId": 0, "topic": "t"}}:{expected}' in body) is (fields.get("queueId", "0") == "0")
    assert offset(client) == expected


def test_a_reset_that_is_not_forced_only_goes_back() -> None:
    client = consumed(3)
    client.publish("t")
    client.ok(Code.RESET_PROGRESS, {"topic": "t", "group": "g", "timestamp": "-1", "isForce": "false"})
    assert offset(client) == "3"


@pytest.mark.parametrize(
    ("fields", "result"),
    [({"topic": "none"}, ResultCode.TOPIC_NOT_EXIST), ({"queueId": "99"}, ResultCode.INVALID_PARAMETER)],
)
def test_a_reset_of_a_place_that_does_not_exist_is_refused(fields: dict[str, str], result: ResultCode) -> None:
    found = consumed().call(Code.RESET_PROGRESS, {"topic": "t", "group": "g", "timestamp": "0", **fields})
    assert found.code == result


@pytest.mark.rule("GRP-5")
def test_a_member_is_told_of_the_reset_and_its_old_offsets_do_not_count() -> None:
    client = consumed()
    client.ok(Code.RESET_PROGRESS, {"topic": "t", "group": "g", "timestamp": "0"})
    client.ok(Code.UPDATE_OFFSET, {**PLACE, "commitOffset": "5"})
    pulled = client.call(Code.PULL, pull_fields("t", offset=5, sysFlag="3", commitOffset="5"))
    assert (pulled.code, pulled.fields["nextBeginOffset"]) == (ResultCode.PULL_OFFSET_MOVED, "0")
    assert offset(client) == "0"
    assert len(messages(client.call(Code.PULL, pull_fields("t", sysFlag="2")).body)) == 5
    client.ok(Code.UPDATE_OFFSET, {**PLACE, "commitOffset": "2"})
    assert offset(client) == "2"


def test_a_member_that_begins_at_the_new_offset_is_served_at_once() -> None:
    client = consumed()
    client.ok(Code.RESET_PROGRESS, {"topic": "t", "group": "g", "timestamp": "0"})
    assert len(messages(client.call(Code.PULL, pull_fields("t", sysFlag="2")).body)) == 5


def test_a_reset_without_members_needs_no_telling() -> None:
    client = consumed()
    client.ok(Code.UNREGISTER, {"clientID": "c", "consumerGroup": "g"})
    client.ok(Code.RESET_PROGRESS, {"topic": "t", "group": "g", "timestamp": "0"})
    client.ok(Code.UPDATE_OFFSET, {**PLACE, "commitOffset": "4"})
    assert offset(client) == "4"


def test_progress_is_copied_to_another_group() -> None:
    client = consumed()
    client.ok(Code.COPY_PROGRESS, {"topic": "t", "srcGroup": "g", "destGroup": "h", "offline": "true"})
    assert offset(client, "h") == "5"
    assert "h" in found(client, Code.ALL_GROUP_CONFIGS)["subscriptionGroupTable"]


@pytest.mark.rule("FAIR-1")
@pytest.mark.parametrize("code", [Code.BROKER_CONSUME_STATS, Code.GROUPS_OF_TOPIC])
def test_looking_at_all_groups_costs_what_they_consume_not_all_topics_for_each(
    code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = consumed()
    groups, topics = 10, 30
    for number in range(topics):
        client.publish(f"t{number}")
    for number in range(groups - 1):
        client.ok(Code.UPDATE_OFFSET, {**PLACE, "consumerGroup": f"g{number}", "commitOffset": "1"})
    looked = 0
    progress = Group.progress

    def counted(group: Group, stream: StreamQueue) -> int | None:
        nonlocal looked
        looked += 1
        return progress(group, stream)

    monkeypatch.setattr(Group, "progress", counted)
    client.ok(code, {"topic": "t"})
    assert 0 < looked <= groups  # a group with a member that subscribes to the topic needs no look

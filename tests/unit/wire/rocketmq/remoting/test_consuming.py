"""Heartbeats, offsets, locks, and messages sent back."""

from __future__ import annotations

import json

import pytest

from escrowmq.wire.endpoint import EndpointLimits
from escrowmq.wire.rocketmq.ids import offset_of
from escrowmq.wire.rocketmq.properties import parse
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.consuming import LONGEST_WORD, MOST_NEW_GROUPS
from escrowmq.wire.rocketmq.remoting.frames import Command, encode
from tests.harness.server import Options
from tests.unit.wire.rocketmq.remoting.clients import Client, messages, send_fields, server

PLACE = {"consumerGroup": "g", "topic": "t", "queueId": "0"}


def joined(**subscriptions: str) -> Client:
    client = Client(server())
    client.publish("t", b"body", TAGS="a", UNIQ_KEY="u")
    client.heartbeat("g", **(subscriptions or {"t": "*"}))
    return client


def consumers(client: Client, group: str = "g") -> list[str]:
    found = client.call(Code.CONSUMERS_OF_GROUP, {"consumerGroup": group})
    return json.loads(found.body)["consumerIdList"] if found.code == ResultCode.SUCCESS else []


def test_a_heartbeat_makes_a_member_of_a_group() -> None:
    client = joined()
    assert consumers(client) == ["c"]
    assert consumers(client, "h") == []


def test_all_members_are_told_of_a_change() -> None:
    client = joined()
    assert [each.fields for each in client.requests(Code.CONSUMERS_CHANGED)] == [{"consumerGroup": "g"}]
    other = Client(client.server)
    other.heartbeat("g", "d", t="*")
    client.server.end_turn()
    assert len(client.requests(Code.CONSUMERS_CHANGED)) == 1
    assert len(other.requests(Code.CONSUMERS_CHANGED)) == 1
    assert consumers(client) == ["c", "d"]
    other.lose()
    assert len(client.requests(Code.CONSUMERS_CHANGED)) == 1
    assert consumers(client) == ["c"]


def test_a_client_leaves_its_groups() -> None:
    client = joined()
    client.ok(Code.UNREGISTER, {"clientID": "c", "consumerGroup": "g", "producerGroup": "p"})
    assert consumers(client) == []


@pytest.mark.parametrize("body", [b"", b"{}", b'{"clientID":""}'])
def test_a_heartbeat_without_a_client_is_refused(body: bytes) -> None:
    assert Client(server()).call(Code.HEARTBEAT, body=body).code == ResultCode.INVALID_PARAMETER


def test_a_malformed_filter_is_refused() -> None:
    client = Client(server())
    data = {"topic": "t", "subString": "a >", "expressionType": "SQL92"}
    body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": data}).encode()
    assert client.call(Code.CHECK_CLIENT, body=body).code == ResultCode.SUBSCRIPTION_PARSE_FAILED
    assert client.call(Code.CHECK_CLIENT, body=b"{}").code == ResultCode.SUCCESS


def test_a_group_without_progress_begins_with_the_first_message() -> None:
    client = joined()
    assert client.ok(Code.QUERY_OFFSET, PLACE).fields == {"offset": "0"}


@pytest.mark.rule("GRP-5")
def test_the_progress_of_a_group_never_goes_back() -> None:
    client = joined()
    client.publish("t")
    for offset in (2, 1, -1):
        client.ok(Code.UPDATE_OFFSET, {**PLACE, "commitOffset": str(offset)})
        assert client.ok(Code.QUERY_OFFSET, PLACE).fields == {"offset": "2"}


def test_offsets_of_a_queue() -> None:
    client = joined()
    assert client.ok(Code.MAX_OFFSET, PLACE).fields == {"offset": "1"}
    assert client.ok(Code.MIN_OFFSET, PLACE).fields == {"offset": "0"}
    assert client.ok(Code.SEARCH_OFFSET, {**PLACE, "timestamp": "0"}).fields == {"offset": "0"}
    assert client.ok(Code.SEARCH_OFFSET, {**PLACE, "timestamp": str(1 << 50)}).fields == {"offset": "1"}
    assert client.ok(Code.EARLIEST_TIME, PLACE).fields == {"timestamp": str(client.server.now)}
    assert client.ok(Code.EARLIEST_TIME, {**PLACE, "queueId": "1"}).fields == {"timestamp": "-1"}


def locked(client: Client, owner: str, code: Code = Code.LOCK_QUEUES) -> list[int]:
    queues = [{"topic": "t", "queueId": number, "brokerName": "b"} for number in (0, 1, 99)]
    body = json.dumps({"consumerGroup": "g", "clientId": owner, "mqSet": queues}).encode()
    found = client.ok(code, body=body)
    return [each["queueId"] for each in json.loads(found.body)["lockOKMQSet"]] if found.body else []


@pytest.mark.rule("GRP-3")
def test_a_queue_is_locked_for_one_client_at_a_time() -> None:
    client = joined()
    assert locked(client, "c") == [0, 1]
    assert locked(client, "d") == []
    assert locked(client, "c") == [0, 1]
    assert locked(client, "c", Code.UNLOCK_QUEUES) == []
    assert locked(client, "d") == [0, 1]
    client.server.now += 60_001
    assert locked(client, "c") == [0, 1]


def returned(client: Client, topic: str = "t", **fields: str) -> int:
    (message, *_) = messages(client.pull(topic).body)
    return client.call(
        Code.SEND_BACK,
        {
            "offset": str(message.address),
            "group": "g",
            "delayLevel": "1",
            "originMsgId": "u",
            "originTopic": "t",
            **fields,
        },
    ).code


@pytest.mark.rule("HALF-9")
def test_a_message_that_is_sent_back_comes_again_later() -> None:
    client = joined()
    assert returned(client) == ResultCode.SUCCESS
    assert client.pull("%RETRY%g").code == ResultCode.PULL_NOT_FOUND
    client.server.now += 1000
    client.server.end_turn()
    (message,) = messages(client.pull("%RETRY%g").body)
    assert (message.content.body, message.failures) == (b"body", 1)
    found = parse(message.content.properties)
    assert (found["RETRY_TOPIC"], found["UNIQ_KEY"]) == ("t", "u")
    (origin,) = messages(client.call(Code.VIEW_MESSAGE, {"offset": str(offset_of(found["ORIGIN_MESSAGE_ID"]))}).body)
    assert (origin.topic, origin.offset) == ("t", 0)


@pytest.mark.rule("HALF-9")
@pytest.mark.parametrize("fields", [{"delayLevel": "-1"}, {"maxReconsumeTimes": "0"}])
def test_a_message_that_is_given_up_is_a_dead_letter(fields: dict[str, str]) -> None:
    client = joined()
    assert returned(client, **fields) == ResultCode.SUCCESS
    (message,) = messages(client.pull("%DLQ%g").body)
    assert message.content.body == b"body"


def test_the_delay_grows_with_the_failures() -> None:
    client = joined()
    returned(client, delayLevel="0")
    client.server.now += 9_999
    client.server.end_turn()
    assert client.pull("%RETRY%g").code == ResultCode.PULL_NOT_FOUND
    client.server.now += 1
    client.server.end_turn()
    assert returned(client, "%RETRY%g", delayLevel="0") == ResultCode.SUCCESS
    client.server.now += 29_999
    client.server.end_turn()
    assert client.pull("%RETRY%g", offset=1).code == ResultCode.PULL_NOT_FOUND
    client.server.now += 1
    client.server.end_turn()
    (message,) = messages(client.pull("%RETRY%g", offset=1).body)
    assert message.failures == 2


@pytest.mark.rule("GRP-4")
def test_a_message_that_is_sent_back_counts_as_settled_and_is_not_sent_back_twice() -> None:
    client = joined()
    client.publish("t", b"other")
    client.ok(Code.UPDATE_OFFSET, {**PLACE, "commitOffset": "0"})
    (first, second) = messages(client.pull("t").body)
    for _ in range(2):
        fields = {"offset": str(second.address), "group": "g", "delayLevel": "1"}
        assert client.call(Code.SEND_BACK, fields).code == ResultCode.SUCCESS
    assert [each.address for each in messages(client.pull("t").body)] == [first.address]
    assert len(messages(client.pull("t", group="h").body)) == 2
    assert client.ok(Code.QUERY_OFFSET, PLACE).fields == {"offset": "0"}
    client.ok(Code.UPDATE_OFFSET, {**PLACE, "commitOffset": "1"})
    assert client.ok(Code.QUERY_OFFSET, PLACE).fields == {"offset": "2"}
    client.server.now += 1000
    client.server.end_turn()
    assert len(messages(client.pull("%RETRY%g").body)) == 1


@pytest.mark.parametrize("offset", ["0", "-1", "99", str((1 << 38) + 99), str(1 << 62)])
def test_a_message_that_is_not_there_cannot_be_sent_back(offset: str) -> None:
    assert returned(joined(), offset=offset) == ResultCode.SYSTEM_ERROR


@pytest.mark.rule("SEC-1")
def test_a_member_needs_permissions_for_group_and_topics() -> None:
    client = joined()
    client.server.broker.access.set_permission("guest", "/", "^[a-s]$", ".*", "^(t|g)$")
    assert client.heartbeat("g", t="*").code == ResultCode.SUCCESS
    assert client.heartbeat("g", u="*").code == ResultCode.NO_PERMISSION
    assert client.heartbeat("z", t="*").code == ResultCode.NO_PERMISSION
    for code in (Code.QUERY_OFFSET, Code.UPDATE_OFFSET):
        assert client.call(code, {**PLACE, "consumerGroup": "h", "commitOffset": "1"}).code == ResultCode.NO_PERMISSION
    assert client.call(Code.CONSUMERS_OF_GROUP, {"consumerGroup": "h"}).code == ResultCode.NO_PERMISSION


def test_a_message_that_failed_as_often_as_can_be_noted_is_sent_back() -> None:
    client = joined()
    client.call(Code.SEND_V2, send_fields("t") | {"j": str((1 << 31) - 1)}, b"often")
    often = messages(client.pull("t").body)[-1]
    client.ok(Code.SEND_BACK, {"group": "g", "offset": str(often.address)})
    (dead,) = messages(client.pull("%DLQ%g").body)
    assert dead.failures == (1 << 31) - 1


def test_long_ids_of_clients_are_refused() -> None:
    client = joined()
    assert client.heartbeat("g", "c" * 256, t="*").code == ResultCode.INVALID_PARAMETER
    lock = {"consumerGroup": "g", "clientId": "c" * 70_000, "mqSet": [{"topic": "t", "queueId": 0}]}
    assert client.call(Code.LOCK_QUEUES, body=json.dumps(lock).encode()).code == ResultCode.INVALID_PARAMETER


def test_long_names_of_producer_groups_are_refused() -> None:
    client = joined()
    assert client.heartbeat(producer="p" * 256).code == ResultCode.INVALID_PARAMETER


@pytest.mark.rule("FAIR-3")
def test_the_subscriptions_of_a_connection_are_limited() -> None:
    client = Client(server(options=Options(limits=EndpointLimits(subscriptions=3))))
    assert client.heartbeat("g", a="*", b="*").code == ResultCode.SUCCESS
    assert client.heartbeat("h", a="*").code == ResultCode.SUCCESS
    refused = client.heartbeat("h", a="*", b="*")
    assert refused.code == ResultCode.SYSTEM_BUSY
    assert refused.remark == "a connection has at most 3 subscriptions, the limit"
    assert client.heartbeat("g", a="x", b="y").code == ResultCode.SUCCESS
    assert client.heartbeat("g", a="*").code == ResultCode.SUCCESS
    assert client.heartbeat("h", a="*", b="*").code == ResultCode.SUCCESS


@pytest.mark.rule("FAIR-3")
def test_the_texts_of_a_heartbeat_that_are_kept_are_short() -> None:
    client = Client(server())
    assert client.heartbeat("g", **{"t" * 128: "*"}).code == ResultCode.INVALID_PARAMETER
    consumer = {"groupName": "g", "consumeType": "x" * 9999, "messageModel": "x" * 9999, "consumeFromWhere": "x" * 9999}
    body = json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()
    assert client.call(Code.HEARTBEAT, body=body).code == ResultCode.SUCCESS
    (member,) = client.port.endpoint.consumers.members("g").values()
    assert {len(member.consume_type), len(member.message_model), len(member.consume_from)} == {LONGEST_WORD}


@pytest.mark.rule("FAIR-1")
def test_each_lock_of_a_queue_costs_work() -> None:
    client = Client(server())
    client.publish("t")
    budget = client.server.broker.engine.requests
    body = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": [{"topic": "t", "queueId": 0}] * 1000}).encode()
    client.server.receive(client.port, encode(Command(Code.LOCK_QUEUES, {}, body, 99)))
    assert budget.left <= budget.turn - 1000


@pytest.mark.rule("FAIR-1")
def test_a_heartbeat_makes_few_groups_at_once() -> None:
    client = Client(server())
    consumers = [{"groupName": f"g{number}", "subscriptionDataSet": []} for number in range(MOST_NEW_GROUPS + 1)]
    body = json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()
    assert client.call(Code.HEARTBEAT, body=body).code == ResultCode.SYSTEM_BUSY
    assert len(list(client.server.broker.groups.all("/"))) == MOST_NEW_GROUPS
    assert client.call(Code.HEARTBEAT, body=body).code == ResultCode.SUCCESS
    assert len(list(client.server.broker.groups.all("/"))) == MOST_NEW_GROUPS + 1

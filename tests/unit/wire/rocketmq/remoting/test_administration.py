"""Requests of operators' tools."""

from __future__ import annotations

import json
from typing import Any

import pytest

from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from tests.unit.wire.rocketmq.remoting.clients import Client, messages, server


def found(client: Client, code: Code, **fields: str) -> Any:
    return json.loads(client.ok(code, fields).body)


def create(client: Client, topic: str = "t", queues: int = 2, attributes: str = "") -> int:
    fields = {"topic": topic, "readQueueNums": str(queues), "writeQueueNums": str(queues), "attributes": attributes}
    return client.call(Code.UPDATE_TOPIC, fields).code


def test_a_topic_is_created_with_its_type_and_grows() -> None:
    client = Client(server())
    assert create(client, attributes="+message.type=TRANSACTION") == ResultCode.SUCCESS
    assert create(client, queues=3) == ResultCode.SUCCESS
    config = found(client, Code.TOPIC_CONFIG, topic="t")
    assert (config["readQueueNums"], config["attributes"]) == (3, {"message.type": "TRANSACTION"})
    assert found(client, Code.ALL_TOPIC_CONFIGS)["topicConfigTable"] == {"t": config}
    assert found(client, Code.ALL_TOPICS)["topicList"] == ["t"]
    assert found(client, Code.TOPICS_OF_CLUSTER, cluster="DefaultCluster")["topicList"] == ["t"]
    assert found(client, Code.TOPICS_OF_CLUSTER, cluster="other")["topicList"] == []


def test_a_topic_is_deleted() -> None:
    client = Client(server())
    create(client)
    client.ok(Code.DELETE_TOPIC, {"topic": "t"})
    client.ok(Code.DELETE_TOPIC_ROUTE, {"topic": "t"})
    assert client.call(Code.TOPIC_CONFIG, {"topic": "t"}).code == ResultCode.TOPIC_NOT_EXIST


def test_the_statistics_of_a_topic_have_the_offsets_of_its_queues() -> None:
    client = Client(server())
    create(client)
    client.publish("t")
    table = client.ok(Code.TOPIC_STATS, {"topic": "t"}).body.decode()
    assert (
        '{"brokerName": "escrowmq", "queueId": 0, "topic": "t"}:{"lastUpdateTimestamp": 1000000, "maxOffset": 1'
        in table
    )
    assert '"queueId": 1, "topic": "t"}:{"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}' in table


def test_a_group_is_created_changed_and_deleted() -> None:
    client, config = Client(server()), None
    for retries in (3, 5):
        client.ok(Code.UPDATE_GROUP, body=json.dumps({"groupName": "g", "retryMaxTimes": retries}).encode())
        config = found(client, Code.GROUP_CONFIG, group="g")
        assert (config["groupName"], config["retryMaxTimes"]) == ("g", retries)
    assert found(client, Code.ALL_GROUP_CONFIGS)["subscriptionGroupTable"] == {"g": config}
    client.ok(Code.DELETE_GROUP, {"groupName": "g"})
    assert client.call(Code.GROUP_CONFIG, {"group": "g"}).code == ResultCode.QUERY_NOT_FOUND


def test_the_progress_of_a_group_is_shown() -> None:
    client = Client(server())
    client.publish("t")
    client.heartbeat("g", t="*")
    client.ok(Code.UPDATE_OFFSET, {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": "1"})
    table = client.ok(Code.CONSUME_STATS, {"consumerGroup": "g"}).body.decode()
    assert '"queueId": 0, "topic": "t"}:{"brokerOffset": 1, "consumerOffset": 1' in table
    other = client.ok(Code.CONSUME_STATS, {"consumerGroup": "g", "topic": "u"}).body
    assert json.loads(other)["offsetTable"] == {}


def test_the_members_of_a_group_are_shown() -> None:
    client = Client(server())
    assert client.call(Code.CONSUMER_CONNECTIONS, {"consumerGroup": "g"}).code == ResultCode.CONSUMER_NOT_ONLINE
    client.heartbeat("g", "me", t="a")
    shown = found(client, Code.CONSUMER_CONNECTIONS, consumerGroup="g")
    assert [each["clientId"] for each in shown["connectionSet"]] == ["me"]
    assert shown["subscriptionTable"]["t"]["subString"] == "a"


def test_a_message_is_found_by_its_id() -> None:
    client = Client(server())
    client.publish("t", b"body")
    (message,) = messages(client.pull("t").body)
    (shown,) = messages(client.ok(Code.VIEW_MESSAGE, {"offset": str(message.address)}).body)
    assert shown == message
    assert client.call(Code.VIEW_MESSAGE, {"offset": "99"}).code == ResultCode.SYSTEM_ERROR


def test_the_broker_gives_its_figures() -> None:
    assert found(Client(server()), Code.BROKER_RUNTIME)["table"]["brokerActive"] == "true"


@pytest.mark.rule("SEC-1")
def test_administration_needs_permissions() -> None:
    client = Client(server())
    create(client)
    client.publish("t", b"body")
    (message,) = messages(client.pull("t").body)
    client.ok(Code.UPDATE_GROUP, body=b'{"groupName":"g"}')
    client.server.broker.access.set_permission("guest", "/", "^$", "^$", "^$")
    refused = ResultCode.NO_PERMISSION
    assert create(client, "u") == refused
    for code, fields in (
        (Code.DELETE_TOPIC, {"topic": "t"}),
        (Code.DELETE_GROUP, {"groupName": "g"}),
        (Code.GROUP_CONFIG, {"group": "g"}),
        (Code.CONSUME_STATS, {"consumerGroup": "g"}),
        (Code.CONSUMER_CONNECTIONS, {"consumerGroup": "g"}),
        (Code.VIEW_MESSAGE, {"offset": str(message.address)}),
    ):
        assert client.call(code, fields).code == refused, code
    assert client.call(Code.UPDATE_GROUP, body=b'{"groupName":"h"}').code == refused
    assert found(client, Code.ALL_GROUP_CONFIGS)["subscriptionGroupTable"] == {}

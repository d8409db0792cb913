"""Topics, as operators see them."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.views import STATES
from tests.unit.wire.rocketmq.remoting.clients import Client, create, found, server


def test_a_topic_is_created_with_its_type_and_grows() -> None:
    client = Client(server())
    assert create(client, attributes="+message.type=TRANSACTION") == ResultCode.SUCCESS
    assert create(client, queues=3) == ResultCode.SUCCESS
    config = found(client, Code.TOPIC_CONFIG, topic="t")
    assert (config["readQueueNums"], config["attributes"]) == (3, {"message.type": "TRANSACTION"})
    configs = found(client, Code.ALL_TOPIC_CONFIGS)["topicConfigTable"]
    assert (configs["t"], configs.keys()) == (config, {"t", *STATES})
    assert found(client, Code.ALL_TOPICS)["topicList"] == sorted([*STATES, "t"])
    assert found(client, Code.TOPICS_OF_CLUSTER, cluster="DefaultCluster")["topicList"] == sorted([*STATES, "t"])
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


@pytest.mark.parametrize("topic", ["TBW102", *STATES])
def test_topics_of_rocketmqs_own_are_not_deleted(topic: str) -> None:
    assert Client(server()).call(Code.DELETE_TOPIC, {"topic": topic}).code == ResultCode.INVALID_PARAMETER


def test_topics_of_rocketmqs_own_are_listed() -> None:
    client = Client(server())
    assert found(client, Code.SYSTEM_TOPICS)["topicList"] == ["DefaultCluster", "escrowmq"]
    assert {"TBW102", *STATES} <= set(found(client, Code.SYSTEM_TOPICS_OF_BROKER)["topicList"])


def test_the_groups_of_a_topic_are_those_with_members_or_progress() -> None:
    client = Client(server())
    for topic in ("t", "u"):
        client.publish(topic)
    client.heartbeat("online", t="*")
    client.ok(Code.UPDATE_OFFSET, {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": "1"})
    client.heartbeat("other", u="*")
    assert found(client, Code.GROUPS_OF_TOPIC, topic="t")["groupList"] == ["g", "online"]
    assert found(client, Code.GROUPS_OF_TOPIC, topic="none")["groupList"] == []

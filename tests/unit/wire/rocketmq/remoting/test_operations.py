"""Every request of classic clients names the operations of the core that it asks for, and users without rights fail."""

from __future__ import annotations

import json
import struct

import pytest

from escrowmq.core.access.door import Door
from escrowmq.core.access.table import TABLE, Operation
from escrowmq.wire.rocketmq.ids import offset_of
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.operations import OPERATIONS
from escrowmq.wire.rocketmq.remoting.requests import HANDLERS
from tests.unit.wire.rocketmq.remoting.clients import Client, pull_fields, send_fields, server


@pytest.mark.rule("SEC-1")
def test_every_request_has_an_entry() -> None:
    assert OPERATIONS.keys() == HANDLERS.keys()


PLACE = {"consumerGroup": "g", "topic": "t", "queueId": "0"}
GROUP = {"consumerGroup": "g", "group": "g", "groupName": "g", "topic": "t"}
BATCH = struct.pack(">iiiii4sh", 26, 0, 0, 0, 4, b"body", 0)
QUEUES = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": []}).encode()
HEARTBEAT = json.dumps(
    {"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "t"}]}]}
).encode()

REFUSED: dict[Code, tuple[dict[str, str], bytes]] = {
    Code.SEND: ({"topic": "t", "queueId": "0", "producerGroup": "p", "properties": ""}, b"body"),
    Code.SEND_V2: (send_fields("t"), b"body"),
    Code.SEND_BATCH: (send_fields("t"), BATCH),
    Code.PULL: (pull_fields("t"), b""),
    Code.LITE_PULL: (pull_fields("t"), b""),
    Code.HEARTBEAT: ({}, HEARTBEAT),
    Code.CONSUMERS_OF_GROUP: (GROUP, b""),
    Code.QUERY_OFFSET: (PLACE, b""),
    Code.UPDATE_OFFSET: ({**PLACE, "commitOffset": "1"}, b""),
    Code.LOCK_QUEUES: ({}, QUEUES),
    Code.UNLOCK_QUEUES: ({}, QUEUES),
    Code.SEND_BACK: ({**GROUP, "offset": "0", "delayLevel": "0"}, b""),
    Code.UPDATE_TOPIC: ({"topic": "new", "readQueueNums": "1", "writeQueueNums": "1"}, b""),
    Code.DELETE_TOPIC: (GROUP, b""),
    Code.DELETE_TOPIC_ROUTE: (GROUP, b""),
    Code.UPDATE_GROUP: ({}, b'{"groupName": "new"}'),
    Code.DELETE_GROUP: (GROUP, b""),
    Code.GROUP_CONFIG: (GROUP, b""),
    Code.CONSUME_STATS: (GROUP, b""),
    Code.CONSUMER_CONNECTIONS: (GROUP, b""),
    Code.TOPICS_OF_GROUP: (GROUP, b""),
    Code.SUBSCRIPTION_OF_GROUP: (GROUP, b""),
    Code.RUNNING_INFO: ({**GROUP, "clientId": "c"}, b""),
    Code.RESET_PROGRESS: ({**GROUP, "timestamp": "0"}, b""),
    Code.COPY_PROGRESS: ({"topic": "t", "srcGroup": "g", "destGroup": "g"}, b""),
    Code.MAX_OFFSET: (PLACE, b""),
    Code.MIN_OFFSET: (PLACE, b""),
    Code.SEARCH_OFFSET: ({**PLACE, "timestamp": "0"}, b""),
    Code.EARLIEST_TIME: (PLACE, b""),
    Code.ROUTE: (PLACE, b""),
    Code.TOPIC_CONFIG: (PLACE, b""),
    Code.TOPIC_STATS: (PLACE, b""),
    Code.RATES: ({"statsName": "TOPIC_PUT_NUMS", "statsKey": "t"}, b""),
    Code.GROUPS_OF_TOPIC: (PLACE, b""),
    Code.QUERY_MESSAGE: ({"topic": "t", "key": "k"}, b""),
}
"""For each request that a user without any right may not send: its fields and its body."""
ANSWERED = {
    Code.END_TRANSACTION,
    Code.ALL_GROUP_CONFIGS,
    Code.VIEW_MESSAGE,
    Code.CONSUME_DIRECTLY,
    Code.RECALL,
    Code.RESUME_HALF,
    Code.BROKER_CONSUME_STATS,
    Code.ALL_TOPICS,
    Code.TOPICS_OF_CLUSTER,
    Code.ALL_TOPIC_CONFIGS,
    Code.BROKER_RUNTIME,
}
"""These need rights on an object that the request finds first; other tests try them."""


def stripped() -> Client:
    """Return a client of a user that has lost all rights since it made a topic and a group."""
    client = Client(server())
    client.publish("t")
    client.heartbeat("g", t="*")
    client.server.broker.access.set_permission("guest", "/", "^$", "^$", "^$")
    return Client(client.server, "other")


@pytest.mark.rule("SEC-1")
def test_every_request_with_needs_is_tried() -> None:
    needs = {code for code, operations in OPERATIONS.items() if any(TABLE[each] for each in operations)}
    assert needs == REFUSED.keys() | ANSWERED


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("code", REFUSED)
def test_a_request_without_the_right_is_refused(code: Code) -> None:
    fields, body = REFUSED[code]
    found = stripped().call(code, fields, body)
    assert found.code == ResultCode.NO_PERMISSION, found.remark


@pytest.mark.rule("SEC-1")
def test_groups_of_others_are_left_out() -> None:
    listed = json.loads(stripped().ok(Code.ALL_GROUP_CONFIGS).body)
    assert listed["subscriptionGroupTable"] == {}
    assert json.loads(stripped().ok(Code.BROKER_CONSUME_STATS).body)["consumeStatsList"] == []


@pytest.mark.rule("SEC-1")
def test_a_message_that_is_named_by_its_id_needs_the_right_to_read_its_topic() -> None:
    client = Client(server())
    plain = client.publish("t").fields["msgId"]
    half = client.publish("x", TRAN_MSG="true", UNIQ_KEY="u").fields["msgId"]
    client.heartbeat("g", "c", t="*")
    client.server.broker.access.set_permission("guest", "/", "^$", "^$", "^g$")
    for message_id in (plain, half):
        offset = str(offset_of(message_id))
        assert client.call(Code.VIEW_MESSAGE, {"offset": offset}).code == ResultCode.NO_PERMISSION
        fields = {"consumerGroup": "g", "clientId": "c", "msgId": message_id}
        assert client.call(Code.CONSUME_DIRECTLY, fields).code == ResultCode.NO_PERMISSION
    client.server.broker.access.add_user("bob", "hash")
    client.server.broker.access.set_permission("bob", "/", "^$", "^$", "^$")
    half_of_guest = client.server.broker.half.named("/", "x", "u")
    assert half_of_guest is not None
    assert not Door(client.server.broker.access, "bob", client.server.broker.directory.vhost("/")).allows(
        Operation.DECIDE_HALF, half=half_of_guest
    )


def with_permission(configure: str, write: str, read: str) -> Client:
    """Return a client of a user with these permissions only. There are the topics t and secret, and a group."""
    client = stripped()
    client.server.broker.access.set_permission("guest", "/", ".*", ".*", ".*")
    client.publish("secret")
    client.ok(Code.UPDATE_OFFSET, {**PLACE, "topic": "secret", "commitOffset": "1"})
    client.server.broker.access.set_permission("guest", "/", configure, write, read)
    return Client(client.server, "restricted")


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("rights", [("^t$", "^$", "^$"), ("^$", "^t$", "^$"), ("^$", "^$", "^(t|g)$")])
def test_a_topic_is_seen_by_those_that_may_use_it(rights: tuple[str, str, str]) -> None:
    client = with_permission(*rights)
    assert client.ok(Code.MAX_OFFSET, PLACE).fields == {"offset": "1"}
    client.ok(Code.ROUTE, {"topic": "t"})
    for code in (Code.ALL_TOPICS, Code.TOPICS_OF_CLUSTER):
        listed = json.loads(client.ok(code).body)["topicList"]
        assert "t" in listed
        assert "secret" not in listed
    assert "secret" not in json.loads(client.ok(Code.ALL_TOPIC_CONFIGS).body)["topicConfigTable"]
    assert json.loads(client.ok(Code.BROKER_RUNTIME).body)["table"]["msgPutTotalTodayNow"] == "1"


@pytest.mark.rule("SEC-1")
def test_the_progress_of_a_group_shows_no_topic_that_the_user_may_not_see() -> None:
    client = with_permission("^$", "^$", "^(t|g)$")
    for code in (Code.CONSUME_STATS, Code.BROKER_CONSUME_STATS):
        assert b"secret" not in client.ok(code, GROUP).body


@pytest.mark.rule("SEC-1")
def test_the_topics_of_a_group_are_seen_by_its_members() -> None:
    client = with_permission("^$", "^$", "^(t|g)$")
    client.ok(Code.ROUTE, {"topic": "%RETRY%g"})
    assert "%RETRY%g" in json.loads(client.ok(Code.ALL_TOPICS).body)["topicList"]
    assert client.call(Code.ROUTE, {"topic": "%RETRY%other"}).code == ResultCode.NO_PERMISSION


@pytest.mark.rule("SEC-1")
def test_queues_of_a_topic_that_the_user_may_not_see_are_not_locked() -> None:
    client = with_permission("^g$", "^$", "^g$")
    asked = [{"topic": topic, "queueId": 0} for topic in ("t", "%RETRY%g")]
    body = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": asked}).encode()
    locked = json.loads(client.ok(Code.LOCK_QUEUES, body=body).body)["lockOKMQSet"]
    assert [each["topic"] for each in locked] == ["%RETRY%g"]

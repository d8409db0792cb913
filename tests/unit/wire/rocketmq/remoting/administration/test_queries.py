"""Single messages: by id, by key, and half messages."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.properties import parse
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from tests.unit.wire.rocketmq.remoting.clients import Client, messages, server


def test_a_message_is_found_by_its_id() -> None:
    client = Client(server())
    client.publish("t", b"body")
    (message,) = messages(client.pull("t").body)
    (shown,) = messages(client.ok(Code.VIEW_MESSAGE, {"offset": str(message.address)}).body)
    assert shown == message
    assert client.call(Code.VIEW_MESSAGE, {"offset": "99"}).code == ResultCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    ("key", "unique", "bodies"),
    [("k1", "", [b"a", b"b"]), ("k2", "", [b"b"]), ("u1", "true", [b"a"]), ("u1", "", [b"a"]), ("k1", "true", [])],
)
def test_messages_are_found_by_key_and_by_unique_key(key: str, unique: str, bodies: list[bytes]) -> None:
    client = Client(server())
    client.publish("t", b"a", KEYS="k1", UNIQ_KEY="u1")
    client.publish("t", b"b", KEYS="k1 k2", UNIQ_KEY="u2")
    client.publish("t", b"k1 is in the body only")
    fields = {"topic": "t", "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
    number = client.send(Code.QUERY_MESSAGE, fields | ({"_UNIQUE_KEY_QUERY": unique} if unique else {}))
    for _ in range(16):
        client.server.now += 1
        client.server.end_turn()
    found = client.response(number)
    assert found is not None
    assert [each.content.body for each in messages(found.body)] == bodies
    assert found.code == (ResultCode.SUCCESS if bodies else ResultCode.QUERY_NOT_FOUND)


@pytest.mark.rule("HALF-6", "HALF-10")
def test_a_parked_half_message_is_shown_by_its_id_and_resumed() -> None:
    client = Client(server())
    sent = client.publish("t", b"half", TRAN_MSG="true", UNIQ_KEY="u", PGROUP="p")
    client.heartbeat(producer="p")
    number = int(sent.fields["queueOffset"])
    for _ in range(17):
        client.server.now += 30_000
        client.server.end_turn()
    parked = client.call(Code.VIEW_MESSAGE, {"offset": str((1 << 62) + number)})
    (message,) = messages(parked.body)
    assert (message.topic, parse(message.content.properties)["REAL_TOPIC"]) == ("TRANS_CHECK_MAX_TIME_TOPIC", "t")
    client.ok(Code.RESUME_HALF, {"topic": "t", "msgId": sent.fields["msgId"]})
    (message,) = messages(client.call(Code.VIEW_MESSAGE, {"offset": str((1 << 62) + number)}).body)
    assert message.topic == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert client.call(Code.RESUME_HALF, {"msgId": sent.fields["msgId"]}).code == ResultCode.ILLEGAL_OPERATION
    assert client.call(Code.RESUME_HALF, {"msgId": "x"}).code == ResultCode.SYSTEM_ERROR

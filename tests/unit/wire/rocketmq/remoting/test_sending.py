"""Sends of classic clients."""

from __future__ import annotations

import pytest

from escrowmq.wire.endpoint import EndpointLimits, Peer
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.sending import born_at
from tests.harness.server import Options
from tests.unit.wire.rocketmq.remoting.clients import Client, messages, send_fields, server
from tests.unit.wire.rocketmq.remoting.test_messages import part


def test_the_first_version_of_a_send_has_long_names() -> None:
    client = Client(server())
    fields = {"producerGroup": "p", "topic": "t", "queueId": "1", "properties": "TAGS\x01a\x02", "flag": "7"}
    assert client.call(Code.SEND, fields, b"body").code == ResultCode.SUCCESS
    (message,) = messages(client.pull("t", 1).body)
    assert (message.content.flag, message.content.body) == (7, b"body")


def test_a_producer_that_chooses_no_queue_gets_them_in_turn() -> None:
    client = Client(server())
    assert len({client.publish("t", queue=-1).fields["queueId"] for _ in range(8)}) == 8


def test_a_queue_that_the_topic_does_not_have_is_refused() -> None:
    assert Client(server()).publish("t", queue=8).code == ResultCode.INVALID_PARAMETER


def test_a_missing_topic_is_created_unless_that_is_forbidden() -> None:
    assert Client(server()).publish("t").code == ResultCode.SUCCESS
    options = Options(limits=EndpointLimits(rocketmq=RocketmqOptions(auto_create=False)))
    assert Client(server(options=options)).publish("t").code == ResultCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("topic", ["", "a b", "x" * 128])
def test_an_invalid_topic_is_refused(topic: str) -> None:
    assert Client(server()).publish(topic).code == ResultCode.INVALID_PARAMETER


@pytest.mark.parametrize("topic", ["TBW102", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_a_topic_of_rocketmqs_own_takes_no_messages(topic: str) -> None:
    assert Client(server()).publish(topic).code == ResultCode.NO_PERMISSION


@pytest.mark.rule("SEC-1")
def test_a_send_needs_permissions() -> None:
    machine = server()
    machine.broker.access.set_permission("guest", "/", "^new$", "^t$", ".*")
    client = Client(machine)
    assert client.publish("u").code == ResultCode.TOPIC_NOT_EXIST
    assert client.publish("new").code == ResultCode.NO_PERMISSION


@pytest.mark.parametrize("version", [Code.SEND, Code.SEND_V2])
def test_a_send_without_a_topic_is_refused(version: Code) -> None:
    assert Client(server()).call(version, {"a": "p", "producerGroup": "p"}).code == ResultCode.INVALID_PARAMETER


def test_sizes_are_limited() -> None:
    options = Options(limits=EndpointLimits(message_size=10))
    client = Client(server(options=options))
    assert client.publish("t", b"x" * 10).code == ResultCode.SUCCESS
    assert client.publish("t", b"x" * 11).code == ResultCode.MESSAGE_ILLEGAL
    assert client.publish("t", a="x" * 32_768).code == ResultCode.MESSAGE_ILLEGAL
    assert client.publish("t", TAGS="x" * 128).code == ResultCode.MESSAGE_ILLEGAL


@pytest.mark.rule("HALF-7")
def test_a_topic_for_transactions_takes_no_others() -> None:
    machine = server()
    machine.broker.topics.declare(machine.broker.directory.vhost("/"), "t", 1, "transaction")
    machine.broker.topics.declare(machine.broker.directory.vhost("/"), "n", 1, "normal")
    client = Client(machine)
    assert client.publish("t").code == ResultCode.MESSAGE_ILLEGAL
    assert client.publish("n", TRAN_MSG="true", UNIQ_KEY="u").code == ResultCode.MESSAGE_ILLEGAL
    batch = part(0, b"a", b"")
    assert client.call(Code.SEND_BATCH, send_fields("t"), batch).code == ResultCode.MESSAGE_ILLEGAL
    transactional = part(0, b"a", b"TRAN_MSG\x01true\x02")
    for topic in ("n", "t", "u"):
        assert client.call(Code.SEND_BATCH, send_fields(topic), transactional).code == ResultCode.MESSAGE_ILLEGAL


@pytest.mark.rule("HALF-7")
@pytest.mark.parametrize(
    ("message_type", "properties"),
    [("normal", {}), ("fifo", {"__SHARDINGKEY": "k"}), ("delay", {"DELAY": "1"}), ("delay", {"TIMER_DELAY_MS": "1"})],
)
def test_normal_fifo_and_delay_are_told_apart(message_type: str, properties: dict[str, str]) -> None:
    machine = server()
    for each in ("normal", "fifo", "delay"):
        machine.broker.topics.declare(machine.broker.directory.vhost("/"), each, 1, each)
    client = Client(machine)
    for each in ("normal", "fifo", "delay"):
        sent = client.publish(each, b"body", 0, UNIQ_KEY="u", **properties)
        if each == message_type:
            assert sent.code == ResultCode.SUCCESS
        else:
            assert sent.code == ResultCode.MESSAGE_ILLEGAL
            types = f"expected type is {each.upper()}, but actual type is {message_type.upper()}"
            assert sent.remark == f"TopicMessageType validate failed, the {types}"


@pytest.mark.rule("HALF-7")
@pytest.mark.parametrize(("first", "second"), [({"TRAN_MSG": "true"}, {}), ({}, {"TRAN_MSG": "true"})])
def test_the_first_message_decides_whether_a_topic_takes_transactional_ones(
    first: dict[str, str], second: dict[str, str]
) -> None:
    client = Client(server())
    assert client.publish("t", b"body", 0, UNIQ_KEY="u", **first).code == ResultCode.SUCCESS
    assert client.publish("t", b"body", 0, UNIQ_KEY="v", **second).code == ResultCode.MESSAGE_ILLEGAL
    assert client.publish("t", b"body", 0, UNIQ_KEY="w", **first).code == ResultCode.SUCCESS


def test_a_topic_that_was_created_by_a_send_takes_all_but_transactional_messages() -> None:
    client = Client(server())
    for properties in ({}, {"DELAY": "1"}, {"__SHARDINGKEY": "k"}):
        assert client.publish("t", b"body", 0, **properties).code == ResultCode.SUCCESS


def test_a_batch_becomes_messages_of_one_queue() -> None:
    client = Client(server())
    client.publish("t", b"first")
    batch = part(1, b"a", b"TAGS\x01x\x02UNIQ_KEY\x01u\x02") + part(2, b"b", b"") + part(3, b"c", b"")
    sent = client.call(Code.SEND_BATCH, send_fields("t"), batch)
    assert (sent.code, sent.fields["queueOffset"], sent.fields["transactionId"]) == (ResultCode.SUCCESS, "1", "u")
    found = messages(client.pull("t", 0, 1).body)
    assert [(each.offset, each.content.body, each.content.flag) for each in found] == [
        (1, b"a", 1),
        (2, b"b", 2),
        (3, b"c", 3),
    ]


@pytest.mark.parametrize("body", [b"", b"x", part(0, b"a", b"")[:-1], part(0, b"a", b"x" * 40_000)])
def test_a_malformed_batch_is_refused(body: bytes) -> None:
    assert Client(server()).call(Code.SEND_BATCH, send_fields("t"), body).code == ResultCode.MESSAGE_ILLEGAL


@pytest.mark.rule("DLY-1")
def test_a_delayed_message_is_pulled_when_it_is_due() -> None:
    machine = server()
    client = Client(machine)
    assert client.publish("t", b"late", 2, DELAY="1").fields["queueId"] == "2"
    assert client.pull("t", 2).code == ResultCode.PULL_NOT_FOUND
    machine.now += 1000
    machine.end_turn()
    (message,) = messages(client.pull("t", 2).body)
    assert message.content.body == b"late"


def test_a_delay_beyond_the_limit_is_refused() -> None:
    assert Client(server()).publish("t", TIMER_DELAY_MS=str(1 << 40)).code == ResultCode.MESSAGE_ILLEGAL


def test_a_retry_that_failed_too_often_is_a_dead_letter() -> None:
    client = Client(server())
    client.heartbeat("g", t="*")
    fields = {**send_fields("%RETRY%g"), "j": "3", "l": "3"}
    assert client.call(Code.SEND_V2, fields, b"dead").code == ResultCode.SUCCESS
    (message,) = messages(client.pull("%DLQ%g").body)
    assert (message.content.body, message.failures) == (b"dead", 3)


@pytest.mark.parametrize(
    ("host", "octets"), [("1.2.3.4", b"\x01\x02\x03\x04"), ("::1", bytes(15) + b"\x01"), ("client", b"")]
)
def test_the_host_of_birth_is_that_of_the_client(host: str, octets: bytes) -> None:
    assert born_at(Peer(host, 77)) == (octets, 77 if octets else 0)


LONG_TAGS = [b"x" * 128, "\U0001f600".encode() * 127, b"\xff"]
"""Tags that can be no routing keys of AMQP 0-9-1."""


@pytest.mark.rule("MSG-1")
@pytest.mark.parametrize("tag", LONG_TAGS)
def test_a_tag_that_other_protocols_cannot_deliver_is_refused(tag: bytes) -> None:
    client = Client(server())
    batch = part(1, b"a", b"TAGS\x01a\x02") + part(2, b"b", b"TAGS\x01" + tag + b"\x02")
    assert client.call(Code.SEND_BATCH, send_fields("t"), batch).code == ResultCode.MESSAGE_ILLEGAL
    text = tag.decode("utf-8", "replace")
    single = client.publish("t", TAGS=text)
    assert single.code == (ResultCode.SUCCESS if len(text) == 1 else ResultCode.MESSAGE_ILLEGAL)
    plain = client.publish("t", TAGS=text, UNIQ_KEY="A1")
    assert plain.code == single.code

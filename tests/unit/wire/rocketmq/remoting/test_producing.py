"""Transactional messages of classic clients."""

from __future__ import annotations

import random

import pytest

from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.endpoint import EndpointLimits
from escrowmq.wire.rocketmq.ids import offset_of
from escrowmq.wire.rocketmq.options import RocketmqOptions
from escrowmq.wire.rocketmq.properties import parse
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.frames import Command
from tests.harness.server import Options
from tests.unit.wire.rocketmq.remoting.clients import Client, messages, send_fields, server

COMMIT, ROLL_BACK, UNKNOWN = "8", "12", "0"


def half(client: Client, key: str = "u", **properties: str) -> Command:
    """Send a half message to queue 1 of topic t."""
    sent = client.publish("t", b"half", 1, TRAN_MSG="true", PGROUP="pg", UNIQ_KEY=key, TAGS="a", **properties)
    assert sent.code == ResultCode.SUCCESS, sent.remark
    return sent


def end_fields(sent: Command, outcome: str, **fields: str) -> dict[str, str]:
    return {
        "producerGroup": "pg",
        "topic": "t",
        "tranStateTableOffset": sent.fields["queueOffset"],
        "commitLogOffset": str(offset_of(sent.fields["msgId"])),
        "commitOrRollback": outcome,
        "msgId": sent.fields["transactionId"],
        "transactionId": sent.fields["transactionId"],
        **fields,
    }


def end(client: Client, sent: Command, outcome: str, **fields: str) -> int:
    return client.call(Code.END_TRANSACTION, end_fields(sent, outcome, **fields)).code


def delivered(client: Client) -> list[bytes]:
    return [each.content.body for each in messages(client.pull("t", 1).body)]


@pytest.mark.rule("HALF-1")
def test_a_half_message_is_on_disk_and_invisible() -> None:
    client = Client(server())
    number = client.send(Code.SEND_V2, send_fields("t", 1, TRAN_MSG="true", UNIQ_KEY="u"), b"half")
    assert client.response(number) is None
    client.server.run_disk()
    assert client.response(number) is not None
    assert delivered(client) == []


@pytest.mark.rule("HALF-2")
def test_a_committed_message_is_delivered_once() -> None:
    client = Client(server())
    sent = half(client)
    assert (sent.fields["queueId"], sent.fields["transactionId"]) == ("1", "u")
    assert end(client, sent, COMMIT) == ResultCode.SUCCESS
    (message,) = messages(client.pull("t", 1).body)
    assert (message.topic, message.queue, message.content.body) == ("t", 1, b"half")
    assert message.content.system_flag & 0xC == 0x8
    found = parse(message.content.properties)
    assert (found["TRAN_MSG"], found["UNIQ_KEY"], found["__transactionId__"]) == ("true", "u", "u")


@pytest.mark.rule("HALF-2")
def test_a_message_that_is_rolled_back_is_dropped() -> None:
    client = Client(server())
    assert end(client, half(client), ROLL_BACK) == ResultCode.SUCCESS
    assert delivered(client) == []


@pytest.mark.rule("HALF-3")
@pytest.mark.parametrize(("first", "second", "bodies"), [(COMMIT, ROLL_BACK, [b"half"]), (ROLL_BACK, COMMIT, [])])
def test_a_repeated_decision_succeeds_and_a_contrary_one_is_refused(
    first: str, second: str, bodies: list[bytes]
) -> None:
    client = Client(server())
    sent = half(client)
    assert end(client, sent, first) == ResultCode.SUCCESS
    assert end(client, sent, first) == ResultCode.SUCCESS
    assert end(client, sent, second) == ResultCode.ILLEGAL_OPERATION
    assert delivered(client) == bodies


@pytest.mark.rule("HALF-11")
def test_a_half_message_that_is_sent_again_is_the_same_transaction() -> None:
    client = Client(server())
    first, again = half(client), half(client)
    assert first.fields == again.fields
    end(client, first, COMMIT)
    end(client, again, COMMIT)
    assert delivered(client) == [b"half"]


@pytest.mark.rule("HALF-12")
@pytest.mark.parametrize(
    ("fields", "result"),
    [
        ({"commitLogOffset": "7"}, ResultCode.SYSTEM_ERROR),
        ({"tranStateTableOffset": "7"}, ResultCode.SYSTEM_ERROR),
        ({"tranStateTableOffset": "7", "commitLogOffset": str((1 << 62) + 7)}, ResultCode.QUERY_NOT_FOUND),
        ({"msgId": "other"}, ResultCode.QUERY_NOT_FOUND),
        ({"commitOrRollback": "3"}, ResultCode.INVALID_PARAMETER),
        ({"producerGroup": "other"}, ResultCode.SYSTEM_ERROR),
    ],
)
def test_a_decision_for_another_message_has_no_effect(fields: dict[str, str], result: ResultCode) -> None:
    client = Client(server())
    assert end(client, half(client), COMMIT, **fields) == result
    assert delivered(client) == []


@pytest.mark.rule("HALF-8")
def test_a_delay_of_a_transactional_message_is_dropped() -> None:
    client = Client(server())
    sent = half(client, DELAY="5", TIMER_DELAY_SEC="9", TIMER_DELIVER_MS="99999999", TIMER_DELAY_MS="7")
    end(client, sent, COMMIT)
    (message,) = messages(client.pull("t", 1).body)
    assert (
        not {"DELAY", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_DELAY_MS"}
        & parse(message.content.properties).keys()
    )


@pytest.mark.rule("HALF-4")
def test_a_live_producer_is_asked_after_the_timeout() -> None:
    client = Client(server())
    sent = half(client)
    client.server.now += 6_000
    client.server.end_turn()
    (check,) = client.requests(Code.CHECK_TRANSACTION)
    assert check.is_one_way
    assert check.fields["tranStateTableOffset"] == sent.fields["queueOffset"]
    assert check.fields["commitLogOffset"] == str(offset_of(sent.fields["msgId"]))
    assert (check.fields["msgId"], check.fields["offsetMsgId"]) == ("u", sent.fields["msgId"])
    (message,) = messages(check.body)
    assert (message.topic, message.queue, message.content.body) == ("t", 1, b"half")
    assert message.content.system_flag & 0xC == 0
    assert parse(message.content.properties)["TRANSACTION_CHECK_TIMES"] == "1"
    assert end(client, sent, COMMIT, fromTransactionCheck="true") == ResultCode.SUCCESS
    assert delivered(client) == [b"half"]


@pytest.mark.rule("HALF-5")
def test_an_unknown_outcome_leaves_the_message_pending() -> None:
    client = Client(server())
    sent = half(client)
    assert end(client, sent, UNKNOWN) == ResultCode.SUCCESS
    client.server.now += 6_000
    client.server.end_turn()
    assert len(client.requests(Code.CHECK_TRANSACTION)) == 1
    assert end(client, sent, ROLL_BACK) == ResultCode.SUCCESS


@pytest.mark.rule("HALF-4")
def test_another_producer_of_the_group_is_asked_after_a_restart() -> None:
    storage = MemoryStorage(random.Random(1))
    machine = server(storage)
    sent = half(Client(machine))
    machine.close()
    machine = server(storage)
    client = Client(machine)
    client.heartbeat("", "c", "pg")
    machine.now += 60_000
    machine.end_turn()
    assert len(client.requests(Code.CHECK_TRANSACTION)) == 1
    assert end(client, sent, COMMIT) == ResultCode.SUCCESS
    assert delivered(client) == [b"half"]


@pytest.mark.rule("HALF-5")
def test_a_producer_that_is_gone_or_congested_is_not_asked() -> None:
    client = Client(server())
    half(client)
    client.port.endpoint.congested(1 << 30)
    client.server.now += 6_000
    client.server.end_turn()
    assert client.requests(Code.CHECK_TRANSACTION) == []
    client.lose()
    client.server.now += 60_000
    client.server.end_turn()
    other = Client(client.server)
    other.heartbeat("", "d", "pg")
    (check,) = other.requests(Code.CHECK_TRANSACTION)
    assert parse(messages(check.body)[0].content.properties)["TRANSACTION_CHECK_TIMES"] == "1"


def test_a_producer_leaves_its_group() -> None:
    client = Client(server())
    half(client)
    client.ok(Code.UNREGISTER, {"clientID": "c", "producerGroup": "pg"})
    client.server.now += 60_000
    client.server.end_turn()
    assert client.requests(Code.CHECK_TRANSACTION) == []


def test_a_transactional_message_needs_a_key() -> None:
    assert Client(server()).publish("t", TRAN_MSG="true").code == ResultCode.MESSAGE_ILLEGAL


def test_the_groups_of_a_producer_are_limited() -> None:
    options = Options(limits=EndpointLimits(rocketmq=RocketmqOptions(producers=1)))
    client = Client(server(options=options))
    assert client.heartbeat("", "c", "a").code == ResultCode.SUCCESS
    assert client.heartbeat("", "c", "b").code == ResultCode.SYSTEM_BUSY


@pytest.mark.rule("SEC-2")
def test_another_user_decides_only_messages_of_topics_that_it_may_write() -> None:
    machine = server(options=Options(users=("guest", "eve")))
    sent = half(Client(machine))
    machine.broker.access.set_permission("guest", "/", ".*", "^$", ".*")
    machine.broker.access.add_user("owner", "hash")
    client = Client(machine)
    client.port.endpoint.login.enter("eve")
    machine.broker.access.set_permission("eve", "/", ".*", "^$", ".*")
    assert end(client, sent, COMMIT) == ResultCode.NO_PERMISSION


def test_a_half_message_whose_properties_nobody_could_read_is_refused() -> None:
    client = Client(server())
    for name in ("long", "CHECK_IMMUNITY_TIME_IN_SECONDS"):
        fields = send_fields("x", UNIQ_KEY="A1", TRAN_MSG="true", PGROUP="pg")
        fields["i"] += f"{name}\x01{'1' * (32_724 - len(name))}\x02"
        sent = client.call(Code.SEND_V2, fields)
        assert sent.code == ResultCode.MESSAGE_ILLEGAL

"""Sends that arrive in one read: stored in order, answered one by one."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq import ids
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from escrowmq.wire.rocketmq.remoting.frames import BINARY, ONE_WAY, Command, encode
from tests.unit.wire.rocketmq.remoting.clients import Client, messages, send_fields, server

CHANGES: dict[str, dict[str, str]] = {
    "no queue": {"e": "-1"},
    "a retry": {"j": "1"},
    "a batch": {"m": "true"},
    "a compressed body": {"f": "1"},
    "a flag": {"h": "7"},
    "no id": {"i": ""},
    "an id with a quotation mark": {"i": 'UNIQ_KEY\x01a"b\x02'},
    "a delay": {"i": "UNIQ_KEY\x01k\x02DELAY\x011\x02"},
    "a half message": {"i": "UNIQ_KEY\x01k\x02TRAN_MSG\x01true\x02"},
    "a time that is no number": {"g": "x"},
    "a queue that does not exist": {"e": "99"},
    "another topic": {"b": "u"},
}


def together(client: Client, *commands: Command) -> list[Command]:
    """Send requests in one read, and return the responses in their order, after the sync."""
    client.server.receive(client.port, b"".join(map(encode, commands)))
    client.server.end_turn()
    early = client.arrived()
    assert all(each.code != ResultCode.SUCCESS for each in early), "answered before the sync"
    client.server.run_disk()
    return sorted(early + client.arrived(), key=lambda each: each.opaque)


def send(number: int, topic: str = "t", queue: int = 0, *, form: int = 0, **properties: str) -> Command:
    fields = send_fields(topic, queue, UNIQ_KEY=f"K{number}", **properties)
    return Command(Code.SEND_V2, fields, b"body %d" % number, number, form=form)


def ready() -> Client:
    """Return a client that has logged in, with a topic for messages of all types."""
    client = Client(server())
    broker = client.server.broker
    broker.topics.declare(broker.directory.vhost("/"), "t", 8, "mixed")
    assert client.publish("t").code == ResultCode.SUCCESS
    return client


def bodies(client: Client, queue: int = 0, offset: int = 0) -> list[bytes]:
    return [each.content.body for each in messages(client.pull("t", queue, offset).body)]


@pytest.mark.rule("DUR-1")
def test_all_are_answered_after_the_sync_each_with_its_place() -> None:
    client = ready()
    found = together(client, *(send(number, queue=number % 2) for number in range(100, 106)))
    assert [each.code for each in found] == [ResultCode.SUCCESS] * 6
    assert [each.fields["transactionId"] for each in found] == [f"K{number}" for number in range(100, 106)]
    assert [(each.fields["queueId"], each.fields["queueOffset"]) for each in found] == [
        *(("0", "1"), ("1", "0"), ("0", "2")),
        *(("1", "1"), ("0", "3"), ("1", "2")),
    ]
    offset = ids.offset_of(found[4].fields["msgId"])
    place = ids.place_of(offset or 0)
    assert place is not None
    assert place.position == 4
    assert bodies(client, 0, 1) == [b"body 100", b"body 102", b"body 104"]


def test_messages_of_several_tags_keep_their_order() -> None:
    client = ready()
    together(client, *(send(number, TAGS="ab"[number % 2]) for number in range(4)))
    assert bodies(client, 0, 1) == [b"body 0", b"body 1", b"body 2", b"body 3"]


def test_a_request_among_them_finds_those_before_it_stored() -> None:
    client = ready()
    fields = {"topic": "t", "queueId": "0"}
    asks = [Command(Code.MAX_OFFSET, fields, opaque=number) for number in (2, 4)]
    client.server.receive(client.port, b"".join(map(encode, (send(1), asks[0], send(3), asks[1]))))
    client.server.run_disk()
    found = {each.opaque: each for each in client.arrived()}
    assert (found[2].fields["offset"], found[4].fields["offset"]) == ("2", "3")


def test_a_send_that_wants_no_answer_gets_none() -> None:
    client = ready()
    lone = send(2)
    lone.flag = ONE_WAY
    assert [each.opaque for each in together(client, send(1), lone, send(3))] == [1, 3]
    assert len(bodies(client, 0, 1)) == 3


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_anything_special_is_answered_as_it_would_be_alone(changes: dict[str, str]) -> None:
    alone, among = ready(), ready()
    special = send(2)
    special.fields |= changes
    (expected,) = together(alone, special)
    found = together(among, send(1), special, send(3))
    assert [each.opaque for each in found] == [1, 2, 3]
    assert (found[1].code, found[1].remark) == (expected.code, expected.remark)
    assert [found[0].code, found[2].code] == [ResultCode.SUCCESS] * 2


def test_a_client_with_binary_headers_is_served_too() -> None:
    client = Client(server(), form=BINARY)
    client.publish("t")
    found = together(client, send(7, form=BINARY), send(8, form=BINARY))
    assert [(each.code, each.form) for each in found] == [(ResultCode.SUCCESS, BINARY)] * 2


@pytest.mark.rule("SEC-1")
def test_each_read_is_checked_against_the_permissions_of_now() -> None:
    client = ready()
    together(client, send(1))
    client.server.broker.access.set_permission("guest", "/", "", "", "")
    assert [each.code for each in together(client, send(2), send(3))] == [ResultCode.NO_PERMISSION] * 2


def test_what_arrived_before_a_malformed_frame_is_stored() -> None:
    client = ready()
    other = Client(client.server, "other")
    client.server.receive(client.port, encode(send(1)) + b"\xff" * 8)
    client.server.run_disk()
    assert bodies(other, 0, 1) == [b"body 1"]


def half(number: int, **properties: str) -> Command:
    """Return a half message as the Java client sends it."""
    wanted = {"UNIQ_KEY": f"K{number}", "TRAN_MSG": "true", "PGROUP": "pg", "TAGS": "a", **properties}
    fields = send_fields("t", 0, **wanted) | {"f": "4"}
    return Command(Code.SEND_V2, fields, b"body %d" % number, number)


def end(answer: Command, outcome: int) -> Command:
    """Return the decision about the half message of an answer."""
    fields = answer.fields
    offset = ids.offset_of(fields["msgId"])
    return Command(
        Code.END_TRANSACTION,
        {
            "tranStateTableOffset": fields["queueOffset"],
            "commitLogOffset": str(offset),
            "commitOrRollback": str(outcome),
            "msgId": fields["transactionId"],
        },
        flag=ONE_WAY,
    )


@pytest.mark.rule("HALF-1", "HALF-2")
def test_half_messages_are_delivered_when_they_are_committed() -> None:
    client = ready()
    found = together(client, half(1), half(2), send(3), half(4))
    assert [each.code for each in found] == [ResultCode.SUCCESS] * 4
    assert bodies(client, 0, 1) == [b"body 3"]
    together(client, end(found[0], 8), end(found[1], 12), end(found[3], 8))
    assert bodies(client, 0, 2) == [b"body 1", b"body 4"]


def test_a_half_message_is_stored_as_if_it_had_come_alone() -> None:
    stored = []
    for before in ([], [send(1)]):
        client = ready()
        found = together(client, *before, half(2, KEYS="k"))
        together(client, end(found[-1], 8))
        stored.append(messages(client.pull("t", 0, 1 + len(before)).body)[0].content)
    assert stored[0] == stored[1]
    assert stored[0].properties.endswith(b"__transactionId__\x01K2\x02")


@pytest.mark.rule("HALF-11")
def test_a_half_message_that_is_sent_again_is_the_same() -> None:
    client = ready()
    first, again = together(client, half(1), half(1))
    assert first.fields == again.fields


@pytest.mark.rule("SEC-1")
def test_half_messages_need_a_permission() -> None:
    client = ready()
    client.server.broker.access.set_permission("guest", "/", "", "", "")
    assert [each.code for each in together(client, half(1), half(2))] == [ResultCode.NO_PERMISSION] * 2


@pytest.mark.rule("SEC-1")
def test_half_messages_that_arrive_together_need_a_permission_for_each_topic() -> None:
    client = ready()
    broker = client.server.broker
    broker.topics.declare(broker.directory.vhost("/"), "u", 8, "mixed")
    broker.access.set_permission("guest", "/", ".*", "^t$", ".*")
    other = half(2)
    other.fields["b"] = "u"
    found = together(client, half(1), other, half(3))
    assert [each.code for each in found] == [ResultCode.SUCCESS, ResultCode.NO_PERMISSION, ResultCode.SUCCESS]

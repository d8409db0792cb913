"""Transfers: by slices and frame by frame, multi-frame, aborted, resumed, malformed."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.wire.amqp10.codec.frames import frame
from escrowmq.wire.amqp10.codec.performatives import (
    SECOND,
    Detach,
    Transfer,
    encode_performative,
)
from escrowmq.wire.amqp10.codec.sections import MESSAGE_ANNOTATIONS, PROPERTIES, encode_section
from escrowmq.wire.amqp10.codec.states import Accepted, TransactionalState
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import (
    DECODE_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    UNAUTHORIZED,
    UNKNOWN_TRANSACTION,
)
from tests.unit.wire.amqp10.clients import Client, Server, body, connected, message


def contents(made: Server) -> list[bytes]:
    queue = made.broker.directory.vhost("/").queue("q")
    entries = queue.order.take(1000)
    queue.order.put_back(entries)
    return [body(entry.content) for entry in entries]


def transfer(number: int, content: bytes, **fields: Any) -> bytes:
    return frame(
        0, encode_performative(Transfer(0, number, b"%d" % number, 0, True, **fields)), message(content.ljust(20, b"."))
    )


def sending(**limits: Any) -> tuple[Server, Client]:
    made, client = connected(**limits)
    client.sender("q")
    return made, client


def test_the_server_is_told_whether_the_last_publishes_are_answered() -> None:
    _, client = sending()
    for settled in (False, True, False):
        client.post(int(settled), settled=settled)
        assert client.port.endpoint.answered is not settled


@pytest.mark.parametrize("damage", range(5, 75))
def test_a_damaged_transfer_among_equal_ones_never_changes_the_others(damage: int) -> None:
    """A transfer that differs in one byte is decoded, or refused; the ones before it arrive unchanged."""
    made, client = sending()
    client.post(999, settled=True)
    frames = [transfer(n, b"%d" % n) for n in range(1000, 1008)]
    broken = bytearray(frames[4])
    if damage >= len(broken):
        return
    broken[damage] ^= 0x15
    client.send_bytes(b"".join((*frames[:4], bytes(broken), *frames[5:])))
    got = contents(made)
    assert got[1:5] == [(b"%d" % n).ljust(20, b".") for n in range(1000, 1004)]


@pytest.mark.parametrize("first", [0, 1, 250, 65_530, 2**32 - 10])
def test_messages_keep_their_order_and_bytes(first: int) -> None:
    made, client = sending()
    numbers = range(first, first + 20)
    client.send_bytes(b"".join(transfer(n % 2**32, b"%d" % n) for n in numbers))
    assert contents(made) == [(b"%d" % n).ljust(20, b".") for n in numbers]
    assert client.idle()


@pytest.mark.parametrize("user", [b"guest", b"somebody"])
def test_a_message_that_claims_another_user_is_refused_among_others(user: bytes) -> None:
    made, client = sending()
    claims = encode_section(PROPERTIES, ["id", user]) + message(b"claimed")
    parts = [transfer(n, b"%d" % n) for n in range(3)]
    parts.append(frame(0, encode_performative(Transfer(0, 3, b"3", 0, True)), claims))
    client.send_bytes(b"".join(parts))
    assert len(contents(made)) == (4 if user == b"guest" else 3)
    if user == b"guest":
        assert client.idle()
    else:
        client.detached(0, UNAUTHORIZED)


@pytest.mark.parametrize("key", ["a.b", "b.a"])
def test_further_routing_keys_need_permission_too(key: str) -> None:
    made, client = connected()
    access = made.broker.access
    made.broker.directory.record_access(access.set_topic_permission("guest", "/", "amq.topic", "^a", ".*"))
    client.sender("/exchanges/amq.topic/a.a")
    annotated = encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-cc"): [key]}) + message(b"body")
    client.send_bytes(frame(0, encode_performative(Transfer(0, 0, b"0", 0, True)), annotated))
    if key == "a.b":
        assert client.idle()
    else:
        client.detached(0, UNAUTHORIZED)


def test_forms_may_change_in_the_middle() -> None:
    made, client = connected()
    client.sender("q", 0)
    client.sender("q", 300)
    parts = []
    for n in range(40):
        payload = message(b"%02d" % n, **({"durable": True} if n % 3 == 0 else {}))
        if n % 5 == 0:
            payload = b"\x00\x53\x71\xc1\x01\x00" + payload if n % 3 else payload
        parts.append(
            frame(
                0,
                encode_performative(Transfer(300 if n % 7 == 0 else 0, n, b"%d" % n, 0 if n % 2 else None, n % 4 == 0)),
                payload,
            )
        )
    client.send_bytes(b"".join(parts))
    assert contents(made) == [b"%02d" % n for n in range(40)]
    answered = [
        n
        for each in client.inbox
        for n in range(each.performative.first, (each.performative.last or each.performative.first) + 1)
    ]
    assert answered == [n for n in range(40) if n % 4]


@pytest.mark.rule("MSG-2")
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_message_may_come_in_parts(size: int) -> None:
    made, client = sending()
    whole = message(b"0123456789" * 20, durable=True)
    parts = [whole[at : at + size] for at in range(0, len(whole), size)]
    frames = [frame(0, encode_performative(Transfer(0, 0, b"0", 0, more=len(parts) > 1)), parts[0])]
    for i, part in enumerate(parts[1:], 2):
        frames.append(frame(0, encode_performative(Transfer(0, more=i < len(parts))), part))
    client.send_bytes(b"".join(frames))
    assert client.outcome(0).state == Accepted()
    assert contents(made) == [b"0123456789" * 20]


def test_settled_is_sticky() -> None:
    made, client = sending()
    client.send(0, Transfer(0, 0, b"0", 0, True, more=True), payload=message(b"ab")[:6])
    client.send(0, Transfer(0, settled=False), payload=message(b"ab")[6:])
    assert client.idle()
    assert contents(made) == [b"ab"]


def test_an_aborted_message_is_discarded() -> None:
    made, client = sending(link_credit=3)
    client.send(0, Transfer(0, 0, b"0", 0, more=True), payload=b"rubbish")
    client.send(0, Transfer(0, aborted=True), payload=b"ignored")
    client.send(0, Transfer(0, 1, b"1", 0, aborted=True))
    assert contents(made) == []
    assert client.inbox.pop().performative.delivery_count == 2
    client.post(2, b"a", settled=True)
    assert contents(made) == [b"a"]


def test_messages_of_two_links_may_be_interleaved() -> None:
    made, client = connected()
    client.sender("q", 0)
    client.sender("q", 1)
    one, two = message(b"one"), message(b"two")
    client.send(0, Transfer(0, 0, b"0", 0, True, more=True), payload=one[:4])
    client.send(0, Transfer(1, 1, b"1", 0, True, more=True), payload=two[:5])
    client.send(0, Transfer(0), payload=one[4:])
    client.send(0, Transfer(1), payload=two[5:])
    assert contents(made) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("fields", "condition"),
    [
        ({"delivery_id": None}, INVALID_FIELD),
        ({"delivery_tag": None}, INVALID_FIELD),
        ({"delivery_tag": b"x" * 33}, INVALID_FIELD),
        ({"message_format": 1}, NOT_IMPLEMENTED),
        ({"rcv_settle_mode": SECOND}, INVALID_FIELD),
        ({"state": TransactionalState(b"t")}, UNKNOWN_TRANSACTION),
    ],
)
def test_a_transfer_that_is_wrong_costs_the_link(fields: dict[str, Any], condition: str) -> None:
    _, client = sending()
    chosen: dict[str, Any] = {"delivery_id": 0, "delivery_tag": b"0", "message_format": 0} | fields
    client.send(0, Transfer(0, **chosen), payload=message(b"x"))
    client.detached(0, condition)


@pytest.mark.parametrize("fields", [{"delivery_id": 1}, {"delivery_tag": b"1"}])
def test_a_delivery_within_another_one_costs_the_link(fields: dict[str, Any]) -> None:
    _, client = sending()
    client.send(0, Transfer(0, 0, b"0", 0, more=True), Transfer(0, **fields))
    client.detached(0, NOT_ALLOWED)


def test_a_transfer_to_a_consumer_costs_the_link() -> None:
    _, client = connected()
    client.receiver("q", 1)
    client.send(0, Transfer(1, 0, b"0", 0), payload=message(b"x"))
    client.detached(1, NOT_ALLOWED)


@pytest.mark.parametrize("payload", [b"\x01", b"\x00\x53", b"\x00\x53\x70\xc0\xff\x00", b"\x00\x53\x70\x00"])
def test_a_malformed_message_costs_the_link(payload: bytes) -> None:
    _, client = sending()
    client.send(0, Transfer(0, 0, b"0", 0), payload=payload)
    client.detached(0, DECODE_ERROR)


def test_a_message_may_not_be_too_large() -> None:
    made, client = sending(message_size=1000, header_size=24)
    part = b"x" * 500
    client.send(0, *[Transfer(0, 0, b"0", 0, True, more=True)] * 2, payload=part)
    client.send(0, Transfer(0, more=True), payload=part)
    assert client.idle()
    client.send(0, Transfer(0, more=True), payload=part)
    client.detached(0, MESSAGE_SIZE_EXCEEDED)
    assert contents(made) == []


def test_a_resumed_message_that_the_broker_does_not_know_is_ignored() -> None:
    made, client = sending(link_credit=1)
    client.send(0, Transfer(0, 0, b"0", 0, resume=True), payload=message(b"x"))
    assert client.inbox.popleft().performative.link_credit == 1
    assert contents(made) == []


def test_an_incomplete_message_is_forgotten_with_its_link() -> None:
    made, client = sending()
    client.send(0, Transfer(0, 0, b"0", 0, True, more=True), payload=b"rubbish")
    client.send(0, Detach(handle=0, closed=True))
    client.expect(Detach)
    client.sender("q", 0)
    client.post(1, b"a", settled=True)
    assert contents(made) == [b"a"]


def test_a_header_section_that_ends_with_its_frame_costs_the_link() -> None:
    _, client = sending()
    for number in (0, 1):
        client.send_bytes(transfer(number, b"whole"))
    cut = encode_performative(Transfer(0, 2, b"2".ljust(16), 0, True))
    client.send_bytes(frame(0, cut, b"\x00\x53\x70\xc0"))
    client.detached(0, DECODE_ERROR)


def test_a_tag_of_an_unsettled_delivery_costs_the_link_without_a_target_too() -> None:
    made, client = connected()
    client.sender(None, rcv_settle_mode=SECOND)
    payload = encode_section(PROPERTIES, [None, None, "/queues/q"]) + message(b"x")
    client.send(0, Transfer(0, 0, b"t", 0), payload=payload)
    client.inbox.clear()
    client.send(0, Transfer(0, 1, b"t", 0), payload=payload)
    client.detached(0, ILLEGAL_STATE)
    assert len(contents(made)) == 1

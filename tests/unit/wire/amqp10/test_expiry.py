"""Messages with an absolute expiry time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.performatives import Transfer
from escrowmq.wire.amqp10.codec.sections import MESSAGE_ANNOTATIONS, Header, Properties, encode_header, encode_section
from escrowmq.wire.amqp10.codec.states import Accepted
from escrowmq.wire.amqp10.codec.types import Symbol, Timestamp, UInt
from escrowmq.wire.amqp10.expiry import dated_among, expiring
from tests.unit.wire.amqp10.clients import connected, message

NOW = 1_700_000_000_000
LONG = {"message_id": "i" * 300}


def content(*, annotated: bool = False, **fields: Any) -> bytes:
    annotations = encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-a"): 1}) if annotated else b""
    return annotations + encode_composite(Properties(**fields)) + message(b"x")


@pytest.mark.parametrize("annotated", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"absolute_expiry_time": Timestamp(NOW)},
        {"absolute_expiry_time": Timestamp(0x40), "creation_time": Timestamp(1)},
        {"absolute_expiry_time": Timestamp(NOW), "creation_time": Timestamp(NOW), "group_id": "g"},
        {"absolute_expiry_time": Timestamp(NOW), **LONG},
    ],
)
def test_messages_with_an_expiry_time_are_found(fields: dict[str, Any], annotated: bool) -> None:
    assert dated_among([message(b"x"), content(annotated=annotated, **fields), message(b"y")]) == {1}


@pytest.mark.parametrize("annotated", [False, True])
@pytest.mark.parametrize(
    "fields",
    [{"message_id": 5, "content_type": Symbol("t")}, {"message_id": "a", "creation_time": Timestamp(NOW)}],
)
def test_usual_messages_without_one_are_passed_over(fields: dict[str, Any], annotated: bool) -> None:
    assert not dated_among([content(annotated=annotated, **fields)])


@given(time=st.integers(0, 2**63 - 1), created=st.none() | st.integers(0, 2**63 - 1), group=st.none() | st.text())
def test_no_expiry_time_is_overlooked(time: int, created: int | None, group: str | None) -> None:
    stamp = None if created is None else Timestamp(created)
    found = content(absolute_expiry_time=Timestamp(time), creation_time=stamp, group_id=group)
    assert dated_among([found])


@given(st.binary(max_size=40))
def test_malformed_messages_do_no_harm(data: bytes) -> None:
    envelope = Envelope("", "q")
    for start in (b"", b"\x00\x53\x73\xc0", b"\x00\x53\x72\xc1"):
        dated_among([start + data])
        expiring(envelope, start + data, NOW)


@pytest.mark.parametrize(
    ("ttl", "time", "expected"),
    [
        (None, NOW + 500, 500),
        (1000, NOW + 500, 500),
        (100, NOW + 500, 100),
        (None, NOW - 1, 0),
        (None, NOW + 2**32, None),
        (7, NOW + 2**40, 7),
    ],
)
def test_the_earlier_of_both_times_counts(ttl: int | None, time: int, expected: int | None) -> None:
    envelope = Envelope("e", "k", b"h", protocol=100, durable=True, priority=3, ttl=ttl, extra_keys=("x",))
    found = expiring(envelope, content(absolute_expiry_time=Timestamp(time)), NOW)
    assert found.ttl == expected
    again = Envelope.decode(found.encode())
    assert (again.exchange, again.routing_key, again.header, again.protocol) == ("e", "k", b"h", 100)
    assert (again.durable, again.priority, again.extra_keys) == (True, 3, ("x",))


@pytest.mark.parametrize("header", [b"", encode_header(Header(ttl=UInt(60_000)))])
def test_a_message_expires_at_its_time(header: bytes) -> None:
    made, client = connected()
    client.sender("q")
    payload = header + content(absolute_expiry_time=Timestamp(made.now + 500))
    for number in range(2):
        client.send(0, Transfer(0, number, b"%d" % number, 0, settled=True), payload=payload)
    client.post(2, b"lasting")
    assert client.outcome(2).state == Accepted()
    queue = made.broker.directory.vhost("/").queue("q")
    made.after(400)
    assert queue.ready == 3
    made.after(200)
    assert queue.ready == 1

"""Messages of AMQP 0-9-1 in the neutral form, and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp091.table import (
    Byte,
    FieldTable,
    Float,
    Long,
    LongL,
    LongStr,
    Short,
    Timestamp,
    UnsignedByte,
    UnsignedInt,
    UnsignedShort,
)
from escrowmq.wire.amqp091.translation import fitted, from_neutral, to_neutral
from escrowmq.wire.neutral import (
    Float32,
    Int8,
    Int16,
    Int32,
    Moment,
    Neutral,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    UniqueId,
)

ENVELOPE = Envelope("e", "k", protocol=PROTOCOL)


def neutral(**properties: Any) -> Neutral:
    return to_neutral(ENVELOPE, "k", Properties(**properties).encode(), b"body")


def back(**facts: Any) -> Properties:
    envelope, _ = from_neutral(Neutral("e", "k", **facts))
    return Properties.decode(envelope.header)


def test_values_keep_their_width() -> None:
    headers: FieldTable = {
        "b": Byte(-1),
        "B": UnsignedByte(1),
        "s": Short(-2),
        "u": UnsignedShort(2),
        "I": 3,
        "i": UnsignedInt(3),
        "l": Long(4),
        "L": LongL(5),
        "f": Float(1.5),
        "d": 2.5,
        "S": LongStr(b"\xff"),
        "x": b"o",
        "T": Timestamp(7),
        "V": None,
        "t": True,
    }
    found = neutral(headers=headers).properties
    assert {name: type(value) for name, value in found.items()} == {
        "b": Int8,
        "B": UInt8,
        "s": Int16,
        "u": UInt16,
        "I": Int32,
        "i": UInt32,
        "l": int,
        "L": int,
        "f": Float32,
        "d": float,
        "S": bytes,
        "x": bytes,
        "T": Moment,
        "V": type(None),
        "t": bool,
    }
    assert found["T"] == 7000
    again = back(properties=found).headers
    assert again is not None
    assert {name: type(value) for name, value in again.items()} == {
        name: {LongL: Long, LongStr: bytes}.get(type(value), type(value)) for name, value in headers.items()
    }
    assert again == headers


def test_decimals_are_dropped() -> None:
    found = neutral(headers={"d": Decimal(1), "x-l": [Decimal(1), "a", {"d": Decimal(1), "k": "v"}]})
    assert found.properties == {}
    assert found.annotations == {"x-l": ["a", {"k": "v"}]}


def test_headers_that_begin_with_x_are_annotations() -> None:
    found = neutral(headers={"x-a": 1, "y": 2, "CC": ["k2"]})
    assert found.annotations == {"x-a": 1, "x-cc": ["k2"]}
    assert found.properties == {"y": 2}
    assert back(annotations={"x-cc": ["k2"]}).headers == {"CC": ["k2"]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("urn:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f", UniqueId(bytes(range(16)))),
        ("urn:uuid:00010203-0405-0607-0809-0a0b0c0d0exx", "urn:uuid:00010203-0405-0607-0809-0a0b0c0d0exx"),
        ("urn:uuid:1", "urn:uuid:1"),
        ("plain", "plain"),
    ],
)
def test_ids_that_are_uuids(text: str, value: object) -> None:
    found = neutral(message_id=text)
    assert (found.message_id, type(found.message_id)) == (value, type(value))
    assert back(message_id=found.message_id).message_id == text


def test_ids_without_room_are_in_headers() -> None:
    found = back(message_id=b"octets", correlation_id="x" * 256)
    assert (found.message_id, found.correlation_id) == (None, None)
    assert found.headers == {"x-message-id": b"octets", "x-correlation-id": "x" * 256}
    assert back(message_id=UInt64(5)).message_id == "5"


def test_the_subject_is_the_routing_key_unless_a_header_has_another() -> None:
    assert neutral().subject == "k"
    assert neutral(headers={"x-subject": "other"}).subject == "other"
    assert to_neutral(ENVELOPE, "", Properties().encode(), b"").subject is None
    assert back(subject="k").headers is None
    assert back(subject="other").headers == {"x-subject": "other"}


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"content_type": "t" * 256}, "content_type"),
        ({"user_id": b"\xff"}, "user_id"),
        ({"user_id": b"u" * 256}, "user_id"),
        ({"group_id": "g" * 256}, "app_id"),
        ({"reply_to": "r" * 256}, "reply_to"),
        ({"created": -1}, "timestamp"),
        ({"properties": {"n" * 256: 1}}, "headers"),
    ],
)
def test_values_without_room_are_dropped(facts: dict[str, Any], name: str) -> None:
    assert getattr(back(**facts), name) is None


def test_the_longest_headers_are_dropped_if_all_are_too_long_for_a_frame() -> None:
    headers: FieldTable = {"a": "x" * 100, "b": "x" * 3000, "c": "x" * 2000, "d": 1}
    props = Properties(message_id="m", headers=headers).encode()
    assert fitted(props, len(props)) is props
    assert Properties.decode(fitted(props, len(props) - 1)).headers == {"a": "x" * 100, "c": "x" * 2000, "d": 1}
    found = Properties.decode(fitted(props, 500))
    assert (found.message_id, found.headers) == ("m", {"a": "x" * 100, "d": 1})


def test_a_time_that_is_too_large_is_dropped() -> None:
    assert neutral(timestamp=2**63).created is None
    assert neutral(timestamp=5).created == 5000


def test_fields_of_annotations() -> None:
    found = back(annotations={"x-u": UniqueId(bytes(16)), "x-m": {"n" * 256: 1, "t": Moment(-5)}, "x-l": [UInt64(7)]})
    assert found.headers == {
        "x-u": "urn:uuid:00000000-0000-0000-0000-000000000000",
        "x-m": {"t": Timestamp(0)},
        "x-l": [7],
    }

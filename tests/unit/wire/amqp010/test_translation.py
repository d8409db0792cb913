"""Messages of AMQP 0-10 in the neutral form, and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp010.codec import types
from escrowmq.wire.amqp010.codec.spec import MessageProperties, ReplyTo
from escrowmq.wire.amqp010.content import PROTOCOL, TransferContent, unpack
from escrowmq.wire.amqp010.translation import from_neutral, read_properties, to_neutral
from escrowmq.wire.formats import FORMATS
from escrowmq.wire.neutral import Float32, Int8, Int32, Moment, Neutral, UInt8, UInt64, UniqueId
from tests.unit.wire.amqp010.codec.strategies import MAPS, compounds

ENVELOPE = Envelope("e", "k", protocol=PROTOCOL, priority=4)
UUID = bytes(range(16))


def neutral(properties: MessageProperties | None = None, envelope: Envelope = ENVELOPE, **content: Any) -> Neutral:
    encoded = b"" if properties is None else properties.write()
    return to_neutral(envelope, TransferContent(encoded, b"body", **content).pack())


def back(message: Neutral) -> MessageProperties:
    return read_properties(unpack(from_neutral(message)[1]).properties)


def test_all_properties_arrive_in_the_neutral_form() -> None:
    properties = MessageProperties(
        content_length=4,
        message_id=UUID,
        correlation_id=b"c",
        reply_to=ReplyTo("e/2", "k%"),
        content_type="text/plain",
        content_encoding="utf-8",
        user_id=b"u",
        app_id=b"app",
        application_headers={"a": 1, "x-b": types.Int8(2), "qpid.subject": "s", "x-jms-type": "t"},
    )
    envelope = Envelope("e", "k", protocol=PROTOCOL, durable=True, priority=7, ttl=2500)
    assert neutral(properties, envelope, timestamp=5, expiration=8) == Neutral(
        "e",
        "k",
        durable=True,
        priority=7,
        ttl=2500,
        annotations={"x-b": Int8(2)},
        message_id=UniqueId(UUID),
        user_id=b"u",
        subject="s",
        reply_to="/exchanges/e%2F2/k%25",
        correlation_id="c",
        content_type="text/plain",
        content_encoding="utf-8",
        expires=8000,
        created=5000,
        group_id="app",
        kind="t",
        properties={"a": 1},
        body=b"body",
    )


def test_a_message_without_properties_has_its_routing_key_as_subject() -> None:
    assert neutral() == Neutral("e", "k", subject="k", body=b"body")


def test_times_of_qpid_jms_are_in_milliseconds() -> None:
    found = neutral(timestamp=1_700_000_000_123, expiration=1_700_000_001_123)
    assert (found.created, found.expires) == (1_700_000_000_123, 1_700_000_001_123)
    assert neutral(timestamp=2**64 - 1).created is None


def test_times_in_headers_are_in_seconds() -> None:
    headers = {"late": types.Datetime(100_000_000_001), "last": types.Datetime(2**63 // 1000)}
    found = neutral(MessageProperties(application_headers=headers)).properties
    assert found == {"late": Moment(100_000_000_001_000), "last": Moment(2**63 // 1000 * 1000)}
    assert neutral(MessageProperties(application_headers={"t": types.Datetime(2**64 - 1)})).properties == {"t": None}


@pytest.mark.parametrize(
    ("reply_to", "address"),
    [
        (ReplyTo("", "q"), "/queues/q"),
        (ReplyTo(None, "q"), "/queues/q"),
        (ReplyTo("e", ""), "/exchanges/e"),
        (ReplyTo("e", "k"), "/exchanges/e/k"),
        (ReplyTo("", ""), None),
    ],
)
def test_a_reply_to_is_an_address(reply_to: ReplyTo, address: str | None) -> None:
    message = neutral(MessageProperties(reply_to=reply_to))
    assert message.reply_to == address
    if address is not None:
        assert back(message).reply_to == ReplyTo(reply_to.exchange or "", reply_to.routing_key)


def test_a_plain_address_is_a_queue() -> None:
    assert back(Neutral("e", "k", reply_to="q")).reply_to == ReplyTo("", "q")
    assert back(Neutral("e", "k", reply_to="q" * 256)).reply_to is None


@pytest.mark.parametrize("message_id", ["m-1", b"\xff\x01", "urn:uuid:no"])
def test_a_message_id_that_is_no_uuid_is_a_header(message_id: str | bytes) -> None:
    properties = back(Neutral("e", "k", message_id=message_id))
    assert properties.message_id is None
    assert properties.application_headers == {"x-message-id": message_id}
    assert neutral(properties).message_id == message_id
    assert neutral(properties).annotations == {}


def test_a_number_as_message_id_is_decimal_text() -> None:
    assert back(Neutral("e", "k", message_id=UInt64(7))).application_headers == {"x-message-id": "7"}


@pytest.mark.parametrize(
    ("correlation_id", "octets"),
    [
        ("c", b"c"),
        (b"\xff", b"\xff"),
        (UInt64(9), b"9"),
        (UniqueId(UUID), b"urn:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f"),
    ],
)
def test_a_correlation_id_is_octets(correlation_id: Any, octets: bytes) -> None:
    properties = back(Neutral("e", "k", correlation_id=correlation_id))
    assert properties.correlation_id == octets
    expected = "9" if correlation_id == UInt64(9) else correlation_id
    assert neutral(properties).correlation_id == expected


def test_encoded_sections_are_marked_by_their_type() -> None:
    properties = back(Neutral("e", "k", body=b"\x00\x53\x77\x40", encoded=True))
    assert properties.application_headers == {"x-jms-type": "amqp-1.0"}
    found = neutral(properties)
    assert (found.encoded, found.kind) == (True, None)


def test_values_keep_their_width() -> None:
    headers = {
        "array": types.Array([1, 2], code=0x02),
        "moments": types.Array([5], code=0x38),
        "time": types.Datetime(3),
        "float": types.Float(1.5),
        "uuid": types.Uuid(UUID),
        "char": types.Char("c"),
        "bin": types.FixedBinary(b"1234"),
        "map": {"n": types.Int32(1)},
    }
    found = neutral(MessageProperties(application_headers=headers)).properties
    assert found == {
        "array": [UInt8(1), UInt8(2)],
        "moments": [Moment(5000)],
        "time": Moment(3000),
        "float": Float32(1.5),
        "uuid": UniqueId(UUID),
        "char": "c",
        "bin": b"1234",
        "map": {"n": Int32(1)},
    }
    kinds = {name: type(value) for name, value in found.items()}
    assert (kinds["time"], kinds["float"], kinds["uuid"]) == (Moment, Float32, UniqueId)
    assert (type(found["array"][0]), type(found["moments"][0]), type(found["map"]["n"])) == (UInt8, Moment, Int32)


def test_values_without_a_counterpart_are_dropped() -> None:
    headers = {"d": Decimal(1), "u": types.UnknownStruct(9, b""), "l": [Decimal(1), 2]}
    assert neutral(MessageProperties(application_headers=headers)).properties == {"l": [2]}


def test_headers_that_cannot_be_encoded_are_dropped() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    properties = {"ok": 1, "x" * 256: 1, "deep": deep, "big": 2**70, "odd": object()}
    assert back(Neutral("e", "k", properties=properties)).application_headers == {"ok": 1}


def test_texts_that_are_too_long_are_dropped() -> None:
    message = Neutral("e", "k", content_type="x" * 256, user_id=bytes(65_536), group_id="\u00e4" * 40_000)
    found = back(message)
    assert (found.content_type, found.user_id, found.app_id) == (None, None, None)


def test_the_default_priority_is_no_priority() -> None:
    assert neutral().priority is None
    assert from_neutral(Neutral("e", "k"))[0].priority == 4
    assert from_neutral(Neutral("e", "k", priority=0))[0].priority == 0


@pytest.mark.parametrize(
    "content", [b"", b"garbage", TransferContent(b"\x00\x00\x00\x04\x04\x03\x01\x00", b"body").pack()]
)
def test_malformed_content_has_no_properties(content: bytes) -> None:
    found = to_neutral(ENVELOPE, content)
    assert (found.properties, found.message_id) == ({}, None)
    assert content.endswith(found.body)


@given(compounds(MessageProperties), st.binary(max_size=9))
@example(MessageProperties(application_headers={"": types.Datetime(100_000_000_001)}), b"")
@example(MessageProperties(application_headers={"": types.Datetime(2**63 // 1000)}), b"")
@example(MessageProperties(application_headers={"": types.Datetime(2**64 - 1)}), b"")
@example(MessageProperties(application_headers={"": types.Array([100_000_000_001], code=0x38)}), b"")
def test_every_message_can_be_translated_and_comes_back_alike(properties: MessageProperties, body: bytes) -> None:
    first = to_neutral(ENVELOPE, TransferContent(properties.write(), body).pack())
    assert first.body == body
    envelope, content = from_neutral(first)
    again = to_neutral(envelope, content)
    assert from_neutral(again)[1] == content
    for name in ("message_id", "user_id", "reply_to", "correlation_id", "content_type", "group_id", "properties"):
        assert getattr(again, name) == getattr(first, name)


@given(MAPS, st.sampled_from(sorted(FORMATS)))
def test_every_message_reaches_every_protocol(headers: dict[str, Any], protocol: int) -> None:
    content = TransferContent(MessageProperties(application_headers=headers).write(), b"body").pack()
    message = FORMATS[PROTOCOL].neutral(ENVELOPE, content)
    envelope, stored = FORMATS[protocol].encode(message)
    assert (FORMATS[envelope.protocol].neutral(envelope, stored)).body == b"body"

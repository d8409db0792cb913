"""Messages of AMQP 1.0 in the neutral form, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp10.codec import sections, types
from escrowmq.wire.amqp10.codec.sections import Data, Properties, encode_section
from escrowmq.wire.amqp10.codec.types import Described, Symbol, ULong, Value
from escrowmq.wire.amqp10.publication import PROTOCOL
from escrowmq.wire.amqp10.translation import from_neutral, to_neutral
from escrowmq.wire.formats import FORMATS
from escrowmq.wire.neutral import Neutral, UInt64, UniqueId
from tests.unit.wire.amqp10.codec.proton import MESSAGE
from tests.unit.wire.amqp10.codec.strategies import values

ENVELOPE = Envelope("e", "k", protocol=PROTOCOL, priority=4)
BODY = encode_section(sections.DATA, b"body")


def annotated(value: Value) -> bytes:
    return encode_section(sections.MESSAGE_ANNOTATIONS, {Symbol("x-v"): value}) + BODY


def test_a_message_of_proton_in_the_neutral_form() -> None:
    content = MESSAGE[sections.split_head(MESSAGE)[1] :]
    found = to_neutral(Envelope("e", "k", protocol=PROTOCOL, durable=True, priority=7, ttl=2500), content)
    assert found == Neutral(
        "e",
        "k",
        durable=True,
        priority=7,
        ttl=2500,
        annotations={"x-opt-q": 4},
        message_id="m-1",
        user_id=b"u",
        to="to",
        subject="s",
        reply_to="r",
        correlation_id=UniqueId(bytes(16)),
        content_type="text/plain",
        content_encoding="utf-8",
        expires=2000,
        created=1000,
        group_id="g",
        group_sequence=3,
        reply_to_group_id="rg",
        properties={"a": 1, "b": "c"},
        body=content[-35:],
        encoded=True,
    )
    assert sections.body(found.body) == Described(ULong(sections.VALUE), {"k": [1, 2.5]})


def test_the_default_priority_is_no_priority() -> None:
    assert to_neutral(ENVELOPE, BODY).priority is None
    assert from_neutral(Neutral("e", "k"))[0].priority == 4
    assert from_neutral(Neutral("e", "k", priority=0))[0].priority == 0


@pytest.mark.parametrize(
    ("body", "octets", "encoded"),
    [
        (BODY, b"body", False),
        (b"", b"", False),
        (encode_section(sections.DATA, b""), b"", False),
        (BODY + BODY, BODY + BODY, True),
        (encode_section(sections.VALUE, "text"), encode_section(sections.VALUE, "text"), True),
    ],
)
def test_a_single_data_section_is_the_body(body: bytes, octets: bytes, encoded: bool) -> None:
    found = to_neutral(ENVELOPE, body)
    assert (found.body, found.encoded) == (octets, encoded)


def test_encoded_sections_that_are_none_are_data() -> None:
    for body in (b"text", BODY[:-1], annotated("a"), b""):
        _, content = from_neutral(Neutral("e", "k", body=body, encoded=True))
        assert sections.body(content) == Data([body])


def test_values_that_only_this_protocol_has_are_dropped() -> None:
    inexpressible = [types.Decimal32(bytes(4)), Described(ULong(1), 2)]
    assert to_neutral(ENVELOPE, annotated({"a": inexpressible, "b": inexpressible[0]})).annotations == {
        "x-v": {"a": []}
    }


def test_entries_that_cannot_be_encoded_are_dropped() -> None:
    deep: Any = []
    for _ in range(60):
        deep = [deep]
    _, content = from_neutral(Neutral("e", "k", annotations={"x-deep": deep, "x-ok": 1}))
    found = sections.message_annotations(content)
    assert Symbol("x-ok") in found
    assert Symbol("x-deep") not in found


def test_application_properties_have_simple_values_only() -> None:
    _, content = from_neutral(Neutral("e", "k", properties={"l": [1], "m": {"a": 1}, "s": "t"}))
    assert sections.application_properties(content) == {"s": "t"}


def test_annotations_have_ascii_names() -> None:
    _, content = from_neutral(Neutral("e", "k", annotations={"x-\xe4": 1}, content_type="\xe4"))
    assert sections.application_properties(content) == {"x-\xe4": 1}
    assert sections.properties(content) == Properties()


@pytest.mark.parametrize("content", [b"garbage", BODY + BODY[:3], encode_section(sections.PROPERTIES, [5]) + BODY])
def test_malformed_content_is_all_body(content: bytes) -> None:
    found = to_neutral(ENVELOPE, content)
    assert (found.body, found.encoded, found.properties) == (content, True, {})


def test_ids_have_their_types() -> None:
    content = encode_section(sections.PROPERTIES, [ULong(7)]) + BODY
    found = to_neutral(ENVELOPE, content)
    assert type(found.message_id) is UInt64
    _, again = from_neutral(found)
    assert type(sections.properties(again).message_id) is ULong


@given(st.one_of(values.map(annotated), st.binary(max_size=60), values.map(lambda value: encode_section(0x74, value))))
@pytest.mark.rule("MSG-1")
def test_no_content_makes_a_translation_fail(content: bytes) -> None:
    for form in FORMATS.values():
        envelope, translated = form.encode(FORMATS[PROTOCOL].neutral(ENVELOPE, content))
        FORMATS[envelope.protocol].neutral(envelope, translated)

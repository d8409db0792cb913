"""The form of AMQP 1.0 content: its headers."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.messages.values import canonical_table
from escrowmq.wire.amqp091 import table
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.sections import encode_section
from escrowmq.wire.amqp10.codec.types import Array, Byte, Char, Decimal32, Float, Int, Symbol, Timestamp, UByte, ULong
from escrowmq.wire.amqp10.formats import SectionsFormat
from escrowmq.wire.amqp10.publication import PROTOCOL

ENVELOPE = Envelope("e", "k", protocol=PROTOCOL)
BODY = encode_section(sections.DATA, b"body")


@pytest.mark.rule("MSG-3")
def test_headers_equal_those_of_a_publisher_of_amqp_091() -> None:
    content = (
        encode_section(sections.MESSAGE_ANNOTATIONS, {Symbol("x-a"): Symbol("s"), Symbol("other"): 1, ULong(5): 1})
        + encode_section(
            sections.APPLICATION_PROPERTIES,
            {
                "text": "t",
                "long": 5,
                "byte": Byte(-1),
                "ubyte": UByte(1),
                "int": Int(7),
                "float": Float(1.5),
                "double": 2.5,
                "flag": True,
                "nothing": None,
                "octets": b"o",
                "time": Timestamp(1_700_000_000_999),
                "char": Char("c"),
                "decimal": Decimal32(bytes(4)),
            },
        )
        + BODY
    )
    found = SectionsFormat().headers(ENVELOPE, content)
    sent: table.FieldTable = {
        "x-a": "s",
        "text": "t",
        "long": 5,
        "byte": table.Byte(-1),
        "ubyte": table.UnsignedByte(1),
        "int": 7,
        "float": table.Float(1.5),
        "double": 2.5,
        "flag": True,
        "nothing": None,
        "octets": b"o",
        "time": table.Timestamp(1_700_000_000),
        "char": "c",
    }
    assert canonical_table(found) == canonical_table(sent)


def test_lists_and_maps_of_annotations_are_headers() -> None:
    value = {"inner": [Symbol("a"), Decimal32(bytes(4))], Symbol("k"): Array([Symbol("b")])}
    content = encode_section(sections.MESSAGE_ANNOTATIONS, {Symbol("x-v"): value}) + BODY
    assert SectionsFormat().headers(ENVELOPE, content) == {"x-v": {"inner": ["a"], "k": ["b"]}}


@pytest.mark.parametrize("content", [b"", b"garbage", encode_section(sections.APPLICATION_PROPERTIES, []) + BODY, BODY])
def test_a_message_without_readable_properties_has_no_headers(content: bytes) -> None:
    assert SectionsFormat().headers(ENVELOPE, content) == {}


def test_messages_are_never_keyed() -> None:
    assert not SectionsFormat().keyed
    assert SectionsFormat().single_out(ENVELOPE, BODY) == (ENVELOPE, BODY)

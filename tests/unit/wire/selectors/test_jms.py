"""The identifiers of JMS, as fields of AMQP 1.0."""

from __future__ import annotations

import pytest

from escrowmq.wire.selectors.jms import NAMES, identifier_text, jms_name
from escrowmq.wire.selectors.sql import jms_selector
from escrowmq.wire.selectors.values import HEADER_FIELDS, PROPERTY_FIELDS
from tests.unit.wire.selectors.message import Message

MESSAGE = Message(
    {"JMSXAppID": "app", "colour": "blue"},
    {
        "header.durable": True,
        "header.priority": 7,
        "header.delivery-count": 2,
        "properties.message-id": "ID:1",
        "properties.correlation-id": 5,
        "properties.creation-time": 1_700_000_000_000,
        "properties.subject": "news",
        "properties.user-id": b"me",
        "properties.group-id": "g",
        "properties.group-sequence": 3,
    },
)


@pytest.mark.parametrize(
    "text",
    [
        "JMSDeliveryMode = 'PERSISTENT'",
        "JMSPriority = 7",
        "JMSRedelivered",
        "JMSXDeliveryCount = 3",
        "JMSMessageID = 'ID:1'",
        "JMSCorrelationID = 'ID:AMQP_ULONG:5'",
        "JMSTimestamp >= 1700000000000",
        "JMSType = 'news'",
        "JMSXUserID = 'me'",
        "JMSXGroupID = 'g' AND JMSXGroupSeq = 3",
        "JMSXAppID = 'app'",
        "JMSExpiration IS NULL",
        "colour LIKE 'bl%'",
    ],
)
def test_each_identifier_has_its_field(text: str) -> None:
    assert jms_selector(text)(MESSAGE)


@pytest.mark.parametrize(
    "text",
    ["JMSDeliveryMode = 'NON_PERSISTENT'", "JMSPriority = 4", "NOT JMSRedelivered", "JMSXDeliveryCount = 1"],
)
def test_a_message_without_a_header_has_the_defaults(text: str) -> None:
    assert jms_selector(text)(Message({}))


class Identifier(bytes):
    """A UUID, which a codec shows as a kind of bytes."""

    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (7, "ID:AMQP_ULONG:7"),
        (b"\x01\xab", "ID:AMQP_BINARY:01AB"),
        (Identifier(range(16)), "ID:AMQP_UUID:00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (None, None),
    ],
)
def test_message_ids_of_other_types_have_a_prefix(value: object, text: str | None) -> None:
    assert identifier_text(value) == text


def test_every_name_is_that_of_a_known_field() -> None:
    known = {*(f"header.{name}" for name in HEADER_FIELDS), *(f"properties.{name}" for name in PROPERTY_FIELDS)}
    assert {field for field, _ in NAMES.values()} <= known


def test_an_application_property_is_read_as_it_is() -> None:
    assert jms_name("colour")(MESSAGE) == "blue"

"""Messages: all sections survive encoding, Python's own types are converted, and mistakes are explained."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from escrowmq.amqp10.errors import UsageError
from escrowmq.amqp10.message import AmqpSequence, AmqpValue, Message, moment
from escrowmq.wire.amqp10.codec import sections

NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)


@pytest.mark.parametrize(
    "body",
    [b"", b"x", b"x" * 300, "text", 5, 1.5, None, True, [1, "a"], {"k": [1]}, AmqpSequence([1, "a"]), AmqpValue(b"x")],
    ids=repr,
)
def test_a_body_survives(body: Any) -> None:
    found = Message.decode(Message(body).encode()).body
    assert found == body
    assert type(found) is type(body)


def test_every_section_survives() -> None:
    name = uuid.uuid4()
    sent = Message(
        b"body",
        message_id=name,
        user_id="me",
        to="/queues/q",
        subject="s",
        reply_to="r",
        correlation_id=7,
        content_type="text/plain",
        content_encoding="gzip",
        absolute_expiry_time=NOW,
        creation_time=1000,
        group_id="g",
        group_sequence=3,
        reply_to_group_id="h",
        priority=9,
        ttl=timedelta(seconds=2),
        application_properties={"a": 1, "when": NOW, "id": name},
        annotations={"x-opt-a": "b"},
        delivery_annotations={"x-opt-d": 1},
        footer={"sum": b"1"},
    )
    found = Message.decode(sent.encode())
    assert (found.message_id, found.user_id, found.correlation_id) == (name, b"me", 7)
    assert (found.to, found.subject, found.reply_to) == ("/queues/q", "s", "r")
    assert (found.content_type, found.content_encoding) == ("text/plain", "gzip")
    assert (moment(found.absolute_expiry_time), found.creation_time) == (NOW, 1000)
    assert (found.group_id, found.group_sequence, found.reply_to_group_id) == ("g", 3, "h")
    assert (found.durable, found.priority, found.ttl) == (True, 9, 2000)
    assert found.application_properties["id"] == name
    assert moment(found.application_properties["when"]) == NOW
    assert found.annotations == {"x-opt-a": "b"}
    assert found.delivery_annotations == {"x-opt-d": 1}
    assert found.footer == {"sum": b"1"}


def test_the_codec_reads_what_the_client_writes() -> None:
    data = Message(b"body", message_id="1", durable=False).encode()
    header, at = sections.split_head(data)
    assert not sections.decode_header(header).durable
    assert sections.properties(data[at:]).message_id == "1"


def test_several_data_sections_are_one_body() -> None:
    assert Message.decode(b"\x00\x53\x75\xa0\x01a\x00\x53\x75\xa0\x01b").body == b"ab"


def test_fields_that_are_not_set_are_none() -> None:
    message = Message(b"")
    assert message.subject is None
    assert message.ttl is None
    with pytest.raises(AttributeError, match="no field 'topic'"):
        _ = message.topic


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(UsageError, match="no field 'topic'; put it into application_properties"):
        Message(b"", topic="x")


def test_a_value_that_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be encoded"):
        Message(object()).encode()


@pytest.mark.parametrize("data", [b"\x00", b"\x40", b"\x00\x53\x10\x45", b"\x00\x53\x73\xc0\x01"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match="cannot be decoded"):
        _ = Message.decode(data).body

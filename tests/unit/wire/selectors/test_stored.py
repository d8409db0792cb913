"""The fields of stored messages, for each protocol that may have published them."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.queue import Queue
from escrowmq.wire.amqp091.properties import Properties as BasicProperties
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.performatives import Transfer
from escrowmq.wire.amqp10.codec.sections import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    Header,
    Properties,
    encode_header,
    encode_section,
)
from escrowmq.wire.amqp10.codec.types import Symbol, Timestamp
from escrowmq.wire.selectors.sql import jms_selector
from escrowmq.wire.selectors.stored import StoredMessage, selecting
from tests.harness.client import SimClient
from tests.unit.wire.amqp10.clients import Client, body, connected


def published(protocol: str) -> tuple[Queue, Entry]:
    """Return a message with the same facts, published over `protocol`, as it is stored."""
    made, client = connected()
    if protocol == "1.0":
        client.sender("q")
        parts = [
            encode_header(Header(durable=True, priority=7)),
            encode_section(MESSAGE_ANNOTATIONS, {Symbol("x-stream-filter-value"): "v"}),
            encode_composite(
                Properties(
                    message_id="m-1",
                    subject=None,
                    correlation_id="c-1",
                    content_type=Symbol("text/plain"),
                    creation_time=Timestamp(1_700_000_000_000),
                    reply_to="answers",
                )
            ),
            encode_section(APPLICATION_PROPERTIES, {"colour": "blue", "count": 5, "flag": True}),
            b"\x00\x53\x75\xa0\x01x",
        ]
        send(client, b"".join(parts))
    else:
        other = SimClient(made)
        other.open_channel(1)
        header = BasicProperties(
            delivery_mode=2,
            priority=7,
            message_id="m-1",
            correlation_id="c-1",
            content_type="text/plain",
            timestamp=1_700_000_000,
            reply_to="answers",
            headers={"colour": "blue", "count": 5, "flag": True, "x-stream-filter-value": "v"},
        ).encode()
        other.publish(1, "q", b"x", header=header)
    queue = made.broker.directory.vhost("/").queue("q")
    (entry,) = queue.order.in_memory()
    return queue, entry


def send(client: Client, payload: bytes) -> None:
    client.send(0, Transfer(0, 0, b"0", 0, True), payload=payload)


@pytest.mark.rule("MSG-3")
@pytest.mark.parametrize("protocol", ["1.0", "0-9-1"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("header.durable", True),
        ("header.priority", 7),
        ("header.ttl", None),
        ("header.first-acquirer", True),
        ("header.delivery-count", 0),
        ("header.nothing", None),
        ("properties.message-id", "m-1"),
        ("properties.correlation-id", "c-1"),
        ("properties.content-type", "text/plain"),
        ("properties.creation-time", 1_700_000_000_000),
        ("properties.group-id", None),
        ("properties.nothing", None),
        ("application-properties.colour", "blue"),
        ("application-properties.count", 5),
        ("application-properties.flag", True),
        ("application-properties.missing", None),
        ("message-annotations.x-stream-filter-value", "v"),
        ("footer.x", None),
    ],
)
def test_a_field_has_the_same_value_for_each_protocol(protocol: str, name: str, value: object) -> None:
    assert StoredMessage(*published(protocol)).value(name) == value


@pytest.mark.rule("MSG-3")
@pytest.mark.parametrize("protocol", ["1.0", "0-9-1"])
def test_selectors_see_the_same_values_for_each_protocol(protocol: str) -> None:
    queue, entry = published(protocol)
    text = (
        "JMSPriority = 7 AND JMSDeliveryMode = 'PERSISTENT' AND JMSMessageID = 'm-1' AND JMSCorrelationID = 'c-1' "
        "AND JMSTimestamp = 1700000000000 AND colour LIKE 'bl%' AND count BETWEEN 4 AND 6 AND flag "
        "AND JMSXDeliveryCount = 1"
    )
    assert selecting([jms_selector(text)])(queue, entry)
    assert not selecting([jms_selector(text), jms_selector("count = 6")])(queue, entry)


def test_a_message_without_priority_has_the_default() -> None:
    made, client = connected()
    client.sender("q")
    client.post(0, b"x", settled=True)
    queue = made.broker.directory.vhost("/").queue("q")
    (entry,) = queue.order.in_memory()
    assert StoredMessage(queue, entry).value("header.priority") == 4
    assert body(entry.content) == b"x"

"""Payloads of deliveries: header section, annotations, and the unchanged bare message."""

from __future__ import annotations

import pytest

from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.core.messages.marks import Marks
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL as PLAIN
from escrowmq.wire.amqp10.codec import sections
from escrowmq.wire.amqp10.codec.encoding import encode
from escrowmq.wire.amqp10.codec.sections import Data, Header, decode_header, split_head
from escrowmq.wire.amqp10.codec.types import Symbol, Timestamp, UInt
from escrowmq.wire.amqp10.delivery import sections_of
from escrowmq.wire.amqp10.publication import PROTOCOL
from tests.unit.wire.amqp10.codec.proton import MESSAGE

CONTENT = MESSAGE[split_head(MESSAGE)[1] :]
BARE = CONTENT[sections.annotations_at(CONTENT)[1] :]
DEATHS = (
    Death("q2", "expired", 2, 2000, "e2", ("k2",), 7),
    Death("q1", "rejected", 1, 1000, "e1", ("k1", "cc"), None),
)


def header_of(payload: bytes) -> Header:
    return decode_header(split_head(payload)[0])


@pytest.mark.rule("MSG-2")
def test_the_content_arrives_byte_for_byte() -> None:
    envelope = Envelope("e", "k", protocol=PROTOCOL, durable=True, priority=7, ttl=2500)
    payload = sections_of(envelope, CONTENT)
    assert payload.endswith(CONTENT)
    assert header_of(payload) == Header(True, 7, 2500, True, 0)


def test_the_header_counts_failed_deliveries() -> None:
    envelope = Envelope("e", "k", protocol=PROTOCOL, priority=4)
    assert header_of(sections_of(envelope, CONTENT, 2)) == Header(first_acquirer=False, delivery_count=2)
    assert header_of(sections_of(envelope, CONTENT, 2, Marks(1))) == Header(first_acquirer=False, delivery_count=1)


@pytest.mark.rule("MSG-2")
def test_a_dead_letter_keeps_its_bare_message_and_tells_its_history() -> None:
    envelope = Envelope("dlx", "k", protocol=PROTOCOL, priority=4, deaths=DEATHS)
    payload = sections_of(envelope, CONTENT)
    assert payload.endswith(BARE)
    found = sections.message_annotations(payload[split_head(payload)[1] :])
    assert found[Symbol("x-opt-q")] == 4
    assert found[Symbol("x-exchange")] == "dlx"
    assert found[Symbol("x-first-death-queue")] == "q1"
    assert found[Symbol("x-opt-deaths")] == [
        {
            "queue": "q2",
            "reason": "expired",
            "count": 2,
            "first-time": Timestamp(2000),
            "exchange": "e2",
            "routing-keys": ["k2"],
            "ttl": UInt(7),
        },
        {
            "queue": "q1",
            "reason": "rejected",
            "count": 1,
            "first-time": Timestamp(1000),
            "exchange": "e1",
            "routing-keys": ["k1", "cc"],
        },
    ]


@pytest.mark.rule("MSG-2")
def test_annotations_of_a_consumer_replace_those_of_the_publisher() -> None:
    envelope = Envelope("e", "k", protocol=PROTOCOL, priority=4)
    marks = Marks(1, {"x-opt-q": encode("new"), "x-opt-more": encode([1])})
    payload = sections_of(envelope, CONTENT, 1, marks)
    assert payload.endswith(BARE)
    assert sections.message_annotations(payload[split_head(payload)[1] :]) == {"x-opt-q": "new", "x-opt-more": [1]}


@pytest.mark.rule("MSG-1")
def test_a_message_of_amqp_091_is_delivered_as_sections() -> None:
    props = Properties(
        message_id="m", headers={"h": "v"}, delivery_mode=2, expiration="500", content_type="a/b"
    ).encode()
    envelope = Envelope("e", "k", props, protocol=PLAIN, durable=True, ttl=500)
    payload = sections_of(envelope, b"body", 1)
    content = payload[split_head(payload)[1] :]
    assert header_of(payload) == Header(True, 4, 500, False, 1)
    assert sections.application_properties(content) == {"h": "v"}
    found = sections.properties(content)
    assert (found.message_id, found.subject, found.content_type) == ("m", "k", "a/b")
    assert sections.body(content) == Data([b"body"])


@pytest.mark.rule("MSG-1")
def test_a_dead_letter_of_amqp_091_has_its_history() -> None:
    envelope = Envelope("dlx", "k", Properties().encode(), protocol=PLAIN, deaths=DEATHS)
    payload = sections_of(envelope, b"body")
    found = sections.message_annotations(payload[split_head(payload)[1] :])
    assert [death["queue"] for death in found[Symbol("x-opt-deaths")]] == ["q2", "q1"]
    assert found[Symbol("x-exchange")] == "dlx"

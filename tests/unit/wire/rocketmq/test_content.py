"""The content of stored messages of RocketMQ."""

from __future__ import annotations

import pytest

from escrowmq.wire.rocketmq.content import ANY_QUEUE, MessageContent, envelope_of, properties_of, unpack


def test_a_content_has_the_documented_layout() -> None:
    content = MessageContent(b"a\x01b\x02", b"body", 1, 9, 2, 3, 4, bytes((127, 0, 0, 1)), 5)
    assert content.pack() == (
        b"\x00\x00\x00\x01\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x04"
        b"\x04\x00\x05\x00\x00\x00\x04\x7f\x00\x00\x01a\x01b\x02body"
    )


@pytest.mark.parametrize(
    "content",
    [
        MessageContent(b"", b""),
        MessageContent(b"", b"x" * 70_000, queue=ANY_QUEUE),
        MessageContent(b"a\x01b\x02" * 9000, b"body", -1, -1, -1, -1, -1, bytes(16), 65_535),
    ],
)
def test_parts_come_back_as_they_were(content: MessageContent) -> None:
    packed = content.pack()
    assert unpack(packed) == content
    assert properties_of(packed) == content.properties


def test_messages_with_one_topic_and_tag_share_an_envelope() -> None:
    envelope = envelope_of("t", "a")
    assert envelope_of("t", "a") is envelope
    assert (envelope.exchange, envelope.routing_key, envelope.durable) == ("t", "a", True)

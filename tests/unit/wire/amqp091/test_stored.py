"""Stored contents of every form have a routing key, a property list and a body, also if they are damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091.keyed import KEYED, join
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import NO_PROPERTIES, Properties
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp091.stored import SMALLEST, is_packed, stored_parts
from escrowmq.wire.amqp10.codec.sections import DATA, encode_section
from escrowmq.wire.amqp10.publication import PROTOCOL as SECTIONS
from escrowmq.wire.rocketmq.content import PROTOCOL as ROCKETMQ
from escrowmq.wire.rocketmq.content import MessageContent

PROPS = Properties(message_id="m", delivery_mode=2).encode()
DURABLE = Properties(delivery_mode=2).encode()
CONTENTS = {
    PROTOCOL: (b"body", (b"", PROPS, b"body")),
    PACKED: (pack(PROPS, b"body"), (b"", PROPS, b"body")),
    KEYED: (join(b"k", pack(PROPS, b"body")), (b"k", PROPS, b"body")),
    SECTIONS: (encode_section(DATA, b"body"), (b"", DURABLE, b"body")),
    ROCKETMQ: (MessageContent(b"", b"body", born_ms=-1).pack(), (b"", DURABLE, b"body")),
}


def envelope(form: int) -> Envelope:
    priority = 4 if form == SECTIONS else 0
    return Envelope("x", "", PROPS, protocol=form, durable=True, priority=priority)


@pytest.mark.parametrize("form", CONTENTS)
def test_the_parts_of_each_form(form: int) -> None:
    content, parts = CONTENTS[form]
    assert stored_parts(envelope(form), content) == parts


@pytest.mark.parametrize("form", [PACKED, KEYED])
def test_truncated_and_overlong_content_is_a_body(form: int) -> None:
    whole = CONTENTS[form][0]
    for content in (*(whole[:size] for size in range(len(whole))), whole + b"\0"):
        assert stored_parts(envelope(form), content) == (b"", NO_PROPERTIES, content)


@given(st.sampled_from(list(CONTENTS)), st.binary(max_size=60))
def test_any_octets_have_parts(form: int, content: bytes) -> None:
    _, _, body = stored_parts(envelope(form), content)
    assert len(body) <= len(content)


def test_the_smallest_packed_content() -> None:
    smallest = pack(b"", b"")
    assert len(smallest) == SMALLEST
    assert is_packed(smallest)
    assert not is_packed(smallest[:-1])

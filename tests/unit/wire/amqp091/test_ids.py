"""The ids of messages are those that the whole message has in the neutral form, whatever other properties it has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091 import keyed
from escrowmq.wire.amqp091.ids import ids_of, ids_of_each
from escrowmq.wire.amqp091.keyed import KEYED
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp091.spec import BASIC_PROPERTIES
from escrowmq.wire.formats import FORMATS

SHORT = st.text(max_size=20) | st.just("urn:uuid:0123")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "shortstr": SHORT,
    "table": st.dictionaries(st.sampled_from(("x-opt-message-id", "a")), st.text(max_size=5), max_size=2),
    "octet": st.integers(0, 255),
    "timestamp": st.integers(0, 1 << 40),
}
PROPERTIES = st.fixed_dictionaries(
    {}, optional={name: VALUES.get(kind, st.integers(0, 1 << 40)) for name, kind in BASIC_PROPERTIES}
)


@given(PROPERTIES)
def test_the_ids_are_those_of_the_neutral_form(given_properties: dict[str, Any]) -> None:
    props = Properties()
    for name, value in given_properties.items():
        setattr(props, name, value)
    content = pack(props.encode(), b"body")
    envelope = Envelope("ex", "key", b"", protocol=PACKED)
    neutral = FORMATS[PACKED].neutral(envelope, content)
    found = ids_of(props.encode())
    if found is None:
        names = (props.message_id or "", props.correlation_id or "")
        assert props.headers is not None or any(name.startswith("urn:uuid:") for name in names)
    else:
        assert found == (neutral.message_id, neutral.correlation_id)


def test_every_form_of_content_is_read() -> None:
    props = Properties(message_id="m", correlation_id="c").encode()
    packed = pack(props, b"body")
    for protocol, header, content in (
        (PROTOCOL, props, b"body"),
        (PACKED, b"", packed),
        (KEYED, b"", keyed.join(b"key", packed)),
    ):
        envelope = Envelope("ex", "", header, protocol=protocol)
        assert ids_of_each(envelope, [content] * 2) == [("m", "c")] * 2


@pytest.mark.parametrize("end", range(2, 8))
def test_a_damaged_list_is_left_to_the_format(end: int) -> None:
    props = Properties(message_id="message", correlation_id="c").encode()[:end]
    assert ids_of_each(Envelope("ex", "key", props, protocol=PROTOCOL), [b""]) == [None]

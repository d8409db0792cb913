"""Property lists and publishes, compared with pamqp, which implements the whole specification."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from escrowmq.perf.amqp091.content import Ids, body_frames, ids_of, properties, publish_head
from escrowmq.perf.messages import LoadMessage

TEXT = st.none() | st.text(max_size=40)


@given(
    message=st.builds(
        LoadMessage,
        body=st.binary(max_size=300),
        message_id=TEXT,
        correlation_id=TEXT,
        timestamp=st.none() | st.integers(0, 2**31),
        headers=st.none() | st.dictionaries(st.text(max_size=20), st.integers(-(2**31), 2**31 - 1) | st.text()),
        priority=st.none() | st.integers(0, 255),
    ),
    reply_to=TEXT,
    exchange=st.text(max_size=60),
    key=st.text(max_size=60),
    mode=st.sampled_from([1, 2]),
    frame_max=st.sampled_from([0, 20, 131072]),
)
def test_pamqp_reads_a_publish(
    message: LoadMessage, reply_to: str | None, exchange: str, key: str, mode: int, frame_max: int
) -> None:
    listed = properties(message, mode, reply_to)
    rest = publish_head(7, exchange, key, len(message.body), listed) + body_frames(7, message.body, frame_max)
    parts = []
    while rest:
        used, on, part = frame.unmarshal(rest)
        assert on == 7
        assert not frame_max or not isinstance(part, body.ContentBody) or used <= frame_max
        parts.append(part)
        rest = rest[used:]
    publish, head, *bodies = parts
    assert isinstance(publish, commands.Basic.Publish)
    assert (publish.exchange, publish.routing_key, publish.mandatory) == (exchange, key, False)
    assert isinstance(head, header.ContentHeader)
    assert head.body_size == len(message.body)
    found = head.properties
    assert (found.message_id, found.correlation_id) == (message.message_id, message.correlation_id)
    assert (found.reply_to, found.priority, found.delivery_mode) == (reply_to, message.priority, mode)
    assert found.headers == message.headers
    seconds = None if message.timestamp is None else datetime.fromtimestamp(message.timestamp, UTC)
    assert found.timestamp == seconds
    assert b"".join(part.value for part in bodies if isinstance(part, body.ContentBody)) == message.body


@given(
    message_id=TEXT,
    correlation_id=TEXT,
    reply_to=TEXT,
    content_type=TEXT,
    content_encoding=TEXT,
    headers=st.none() | st.dictionaries(st.text(max_size=20), st.text(max_size=20)),
    delivery_mode=st.none() | st.integers(1, 2),
    priority=st.none() | st.integers(0, 255),
    expiration=TEXT,
    app_id=TEXT,
)
def test_the_ids_are_found_among_any_other_properties(
    message_id: str | None, correlation_id: str | None, reply_to: str | None, **others: object
) -> None:
    names = {"message_id": message_id, "correlation_id": correlation_id, "reply_to": reply_to}
    listed = commands.Basic.Properties(**names, **others)  # type: ignore[arg-type]
    data = frame.marshal(header.ContentHeader(body_size=5, properties=listed), 1)
    # pamqp leaves empty strings out.
    assert ids_of(data[7:-1]) == Ids(*(text or None for text in (message_id, correlation_id, reply_to)))

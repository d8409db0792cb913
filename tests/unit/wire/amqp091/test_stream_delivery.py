"""Deliveries from a stream equal those of the generated encoders, with the offset as one more header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.wire.amqp091.delivery import parts_of
from escrowmq.wire.amqp091.frames import content_frames, method_frame
from escrowmq.wire.amqp091.keyed import deliverable_key
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties, scan, with_header
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp091.spec import BasicDeliver
from escrowmq.wire.amqp091.stream_delivery import NAME, StreamDeliveries, around_offset, with_stream_offset
from escrowmq.wire.amqp091.table import FieldTable, Long
from escrowmq.wire.amqp10.codec.sections import DATA, encode_section
from escrowmq.wire.amqp10.publication import PROTOCOL as SECTIONS
from escrowmq.wire.outbox import LARGE
from tests.unit.wire.amqp091.test_shape import lists

SENT: list[FieldTable | None] = [None, {}, {"h": 1}, {NAME: 3, "h": "v"}, {"value": NAME}, {"nested": {NAME: 1}}]


def offset_added(entry: Entry, props: bytes) -> bytes:
    return with_header(props, scan(props), NAME, Long(entry.position - 1))


def expected(channel: int, tag: str, number: int, entry: Entry, frame_max: int) -> bytes:
    envelope = entry.run.envelope
    props, body = parts_of(envelope, entry.content)
    method = BasicDeliver(tag, number, entry.deliveries > 0, envelope.exchange, deliverable_key(envelope.routing_key))
    return method_frame(channel, method) + content_frames(channel, offset_added(entry, props), body, frame_max)


@given(lists)
def test_an_offset_is_added_without_decoding(props: bytes) -> None:
    entry = Entry(8, b"", Run(Envelope("", "s"), 1, 0))
    assert with_stream_offset(entry, props) == offset_added(entry, props)


@pytest.mark.parametrize("headers", SENT)
@pytest.mark.parametrize("content_type", [None, "t"])
def test_an_offset_replaces_one_that_the_publisher_sent(headers: FieldTable | None, content_type: str | None) -> None:
    entry = Entry(8, b"", Run(Envelope("", "s"), 1, 0))
    props = Properties(content_type=content_type, headers=headers, message_id="m").encode()
    found = with_stream_offset(entry, props)
    assert Properties.decode(found).headers == {**(headers or {}), NAME: 7}
    assert found == offset_added(entry, props)
    assert len(found) == sum(map(len, around_offset(props))) + 8


@given(
    st.sampled_from([1, 2, 65535]),
    st.sampled_from([1, 2**63]),
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([0, 1, 5, 5, 5, 4088, 4089, 8177, LARGE - 1, LARGE, 140_000])),
        max_size=12,
    ),
    st.lists(st.sampled_from(SENT), min_size=4, max_size=4),
    st.sampled_from([4096, 131_072, 0]),
)
def test_deliveries_equal_those_of_the_generated_encoders(
    channel: int, first: int, plan: list[tuple[int, int]], sent: list[FieldTable | None], frame_max: int
) -> None:
    lists_of = [Properties(content_type="t", headers=headers).encode() for headers in sent]
    died = Death("p", "rejected", 2, 1_700_000_000_000, "x", ("k",), 5)
    envelopes = [
        Envelope("x", "k", lists_of[0], protocol=PROTOCOL),
        Envelope("", "another key", lists_of[1], protocol=PROTOCOL, ttl=7),
        Envelope("x", "k", lists_of[2], protocol=PROTOCOL, deaths=(died,)),
        Envelope("x", "k", protocol=PACKED),
        Envelope("x", "k", protocol=PACKED, deaths=(died,)),
        Envelope("x", "k", protocol=SECTIONS),
    ]
    entries = []
    for i, (kind, size) in enumerate(plan):
        content = bytes([i]) * size
        if envelopes[kind].protocol == PACKED:
            content = pack(lists_of[3], content or b"body")
        elif envelopes[kind].protocol == SECTIONS:
            content = encode_section(DATA, content)
        entries.append(Entry(i + 1, content, Run(envelopes[kind], i + 1, 0)))
    deliveries = StreamDeliveries(channel, "tag", frame_max)
    wanted = b"".join(expected(channel, "tag", first + i, entry, frame_max) for i, entry in enumerate(entries))
    assert b"".join(deliveries.build(first, entries)) == wanted
    assert b"".join(deliveries.build(first, entries)) == wanted, "also from the caches"
    one_by_one = [b"".join(deliveries.build(first + i, [entry])) for i, entry in enumerate(entries)]
    assert b"".join(one_by_one) == wanted


def test_large_bodies_are_not_copied() -> None:
    large = b"l" * LARGE
    run = Run(Envelope("x", "k", b"\x00\x00", protocol=PROTOCOL), 1, 0)
    built = StreamDeliveries(1, "t", 0).build(1, [Entry(1, b"small", run), Entry(2, large, run)])
    assert any(piece is large for piece in built)

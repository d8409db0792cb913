"""Deliveries assembled from cached pieces equal the output of the generated encoders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.wire.amqp091.death import with_delivery_count
from escrowmq.wire.amqp091.delivery import CACHED, Deliveries, parts_of, view_of
from escrowmq.wire.amqp091.frames import content_frames, method_frame
from escrowmq.wire.amqp091.packed import PACKED, pack
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL
from escrowmq.wire.amqp091.spec import BasicDeliver
from escrowmq.wire.amqp10.codec.sections import APPLICATION_PROPERTIES, DATA, encode_section
from escrowmq.wire.amqp10.publication import PROTOCOL as SECTIONS
from escrowmq.wire.outbox import LARGE
from escrowmq.wire.rocketmq.content import envelope_of

LARGE_SIZES = (LARGE - 1, LARGE, LARGE + 1, 140_000)
short = st.text(max_size=60).filter(lambda text: len(text.encode()) < 256)
headers = st.builds(Properties, content_type=st.none() | st.just("t"), priority=st.none() | st.integers(0, 255))


def expected(channel: int, tag: str, number: int, entry: Entry, frame_max: int, props: bytes) -> bytes:
    envelope = entry.run.envelope
    method = BasicDeliver(tag, number, entry.deliveries > 0, envelope.exchange, envelope.routing_key)
    return method_frame(channel, method) + content_frames(channel, props, entry.content, frame_max)


@given(
    st.integers(1, 65535),
    short,
    st.integers(1, 2**64 - 100),
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from([0, 1, 5, 5, 4088, 4089, 8177, *LARGE_SIZES]),
            st.sampled_from([0, 0, 0, 1, 2, 300]),
        ),
        max_size=12,
    ),
    st.lists(st.tuples(short, short, headers), min_size=3, max_size=3),
    st.sampled_from([4096, 131_072, 0]),
)
def test_deliveries_equal_those_of_the_generated_encoders(
    channel: int,
    tag: str,
    first: int,
    plan: list[tuple[int, int, int]],
    shapes: list[tuple[str, str, Properties]],
    frame_max: int,
) -> None:
    envelopes = [Envelope(exchange, key, props.encode(), protocol=PROTOCOL) for exchange, key, props in shapes]
    entries = []
    for i, (shape, size, returned) in enumerate(plan):
        entry = Entry(i + 1, bytes([i]) * size, Run(envelopes[shape], i + 1, 0))
        entry.deliveries = returned
        entries.append(entry)
    deliveries = Deliveries(channel, tag, frame_max)
    each = [
        expected(channel, tag, first + i, entry, frame_max, entry.run.envelope.header)
        for i, entry in enumerate(entries)
    ]
    assert [b"".join(deliveries.build(first + i, [entry])) for i, entry in enumerate(entries)] == each
    wanted = b"".join(each)
    assert b"".join(deliveries.build(first, entries)) == wanted
    assert b"".join(deliveries.build(first, entries)) == wanted, "also from the caches"


def test_each_entry_has_its_properties() -> None:
    def numbered(entry: Entry, props: bytes) -> bytes:
        del props
        return Properties(message_id=str(entry.position)).encode()

    run = Run(Envelope("x", "k", b"\x00\x00", protocol=PROTOCOL), 1, 0)
    entries = [Entry(position, b"body", run) for position in (1, 2)]
    wanted = b"".join(
        expected(1, "t", 9 + i, entry, 4096, Properties(message_id=str(i + 1)).encode())
        for i, entry in enumerate(entries)
    )
    assert b"".join(Deliveries(1, "t", 4096, numbered).build(9, entries)) == wanted


def test_two_consumers_share_a_view() -> None:
    envelope = Envelope("x", "k", b"\x00\x00", protocol=PROTOCOL)
    entry = Entry(1, b"body", Run(envelope, 1, 0))
    one, two = Deliveries(1, "one", 4096), Deliveries(2, "two", 4096)
    assert one.build(1, [entry]) == [expected(1, "one", 1, entry, 4096, b"\x00\x00")]
    assert two.build(1, [entry]) == [expected(2, "two", 1, entry, 4096, b"\x00\x00")]
    assert view_of(envelope) is envelope.view


def test_bodies_of_many_sizes_are_delivered() -> None:
    envelope = Envelope("x", "k", b"\x00\x00", protocol=PROTOCOL)
    entries = [Entry(i, b"x" * i, Run(envelope, i, 0)) for i in range(1, 2000)]
    built = Deliveries(1, "t", 0).build(1, entries)
    assert built == [b"".join(expected(1, "t", i, entry, 0, b"\x00\x00") for i, entry in enumerate(entries, 1))]


@pytest.mark.rule("MSG-1")
@pytest.mark.parametrize("frame_max", [4096, 0])
def test_messages_of_another_protocol_are_translated_among_others(frame_max: int) -> None:
    foreign = Envelope("e", "k", protocol=SECTIONS, durable=True, priority=4)
    content = encode_section(APPLICATION_PROPERTIES, {"h": "v"}) + encode_section(DATA, b"translated")
    packed = Envelope("e", "k", protocol=PACKED)
    own = Envelope("x", "k", b"\x00\x00", protocol=PROTOCOL)
    entries = [
        Entry(1, b"plain", Run(own, 1, 0)),
        Entry(2, content, Run(foreign, 2, 0)),
        Entry(3, pack(b"\x00\x00", b"packed"), Run(packed, 3, 0)),
        Entry(4, content, Run(foreign, 4, 0)),
    ]
    entries[3].deliveries = 1
    props = Properties(headers={"h": "v"}, delivery_mode=2).encode()

    def frames(number: int, envelope: Envelope, redelivered: bool, properties: bytes, body: bytes) -> bytes:
        method = BasicDeliver("t", number, redelivered, envelope.exchange, envelope.routing_key)
        return method_frame(1, method) + content_frames(1, properties, body, frame_max)

    wanted = [
        frames(1, own, False, b"\x00\x00", b"plain"),
        frames(2, foreign, False, props, b"translated"),
        frames(3, packed, False, b"\x00\x00", b"packed"),
        frames(4, foreign, True, props, b"translated"),
    ]
    deliveries = Deliveries(1, "t", frame_max)
    assert b"".join(deliveries.build(1, entries)) == b"".join(wanted)
    assert [b"".join(deliveries.build(i, [entry])) for i, entry in enumerate(entries, 1)] == wanted


def test_headers_of_another_protocol_fit_into_a_frame() -> None:
    envelope = Envelope("e", "k", protocol=SECTIONS, priority=4)
    content = encode_section(APPLICATION_PROPERTIES, {"long": "x" * 5000, "h": "v"}) + encode_section(DATA, b"body")
    built = b"".join(Deliveries(1, "t", 4096).build(1, [Entry(1, content, Run(envelope, 1, 0))]))
    props = Properties(headers={"h": "v"}, delivery_mode=1).encode()
    method = method_frame(1, BasicDeliver("t", 1, False, "e", "k"))
    assert built == method + content_frames(1, props, b"body", 4096)


def test_a_dead_letter_of_another_protocol_has_its_history() -> None:
    deaths = (Death("q", "rejected", 1, 1000, "e", ("k",), None),)
    envelope = Envelope("dlx", "k", protocol=SECTIONS, priority=4, deaths=deaths)
    properties, body = parts_of(envelope, encode_section(DATA, b"body"))
    headers = Properties.decode(properties).headers
    assert body == b"body"
    assert headers is not None
    assert headers["x-first-death-queue"] == "q"


def test_no_entries_give_no_octets() -> None:
    assert Deliveries(1, "t", 4096).build(1, []) == [b""]


def test_a_large_body_is_not_copied() -> None:
    envelope = Envelope("x", "k", b"\x00\x00", protocol=PROTOCOL)
    body = bytes(100_000)
    pieces = Deliveries(1, "t", 131_072).build(1, [Entry(1, body, Run(envelope, 1, 0))])
    assert any(piece is body for piece in pieces)
    pieces = Deliveries(1, "t", 65_536).build(1, [Entry(1, body, Run(envelope, 1, 0))])
    assert [len(piece) for piece in pieces if isinstance(piece, memoryview) and piece.obj is body] == [65_528, 34_472]


def frames_of(data: bytes) -> list[tuple[int, bytes]]:
    """Return the types and payloads of frames."""
    found = []
    at = 0
    while at < len(data):
        kind, size = data[at], int.from_bytes(data[at + 3 : at + 7], "big")
        found.append((kind, data[at + 7 : at + 7 + size]))
        at += size + 8
    return found


@pytest.mark.parametrize("protocol", [PROTOCOL, PACKED])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("own", [False, True])
def test_a_long_history_does_not_make_a_frame_too_long(protocol: int, count: int, own: bool) -> None:
    deaths = tuple(Death(f"{i}" * 100, "expired", 1, 1, "", ("k",), None) for i in range(50))
    props = Properties(headers={"h": 1}).encode()
    envelope = Envelope("", "q", props if protocol == PROTOCOL else b"", protocol=protocol, deaths=deaths)
    content = b"body" if protocol == PROTOCOL else pack(props, b"body")
    entries = [Entry(i, content, Run(envelope, 1, 0)) for i in range(count)]
    for frame_max, whole in ((4096, False), (131_072, True), (0, True)):
        made = Deliveries(1, "t", frame_max, with_delivery_count if own else None)
        frames = frames_of(b"".join(made.build(1, entries)))
        assert [kind for kind, _ in frames] == [1, 2, 3] * count
        headers = [payload for kind, payload in frames if kind == 2]
        assert not frame_max or max(map(len, headers)) <= frame_max - 8
        found = Properties.decode(headers[0][12:]).headers
        assert found is not None
        history = found["x-death"]
        assert isinstance(history, list)
        assert (len(history) == 50) is whole
        assert len(history) > 5
        assert isinstance(history[-1], dict)
        assert history[-1]["queue"] == found["x-first-death-queue"] == "49" * 100


def test_long_headers_are_not_kept_once_for_each_channel() -> None:
    long = Envelope("", "q", Properties(headers={"h": "x" * CACHED}).encode(), protocol=PROTOCOL)
    short = Envelope("", "q", Properties(headers={"h": "x"}).encode(), protocol=PROTOCOL)
    for channel in range(1, 1001):
        for envelope in (long, short):
            assert Deliveries(channel, "t", 4096).build(1, [Entry(1, b"body", Run(envelope, 1, 0))])
    assert not view_of(long).around
    assert len(view_of(short).around) <= 64


@pytest.mark.rule("MSG-1")
@pytest.mark.parametrize("tag", ["x" * 256, "\u20ac" * 100, "\udcff"])
def test_a_stored_routing_key_that_has_no_short_string_is_delivered_as_an_empty_one(tag: str) -> None:
    assert view_of(envelope_of("t", tag)).address == b"\x01t\x00"

"""The segments of deliveries: delivery properties, message properties, body."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Death, Envelope
from escrowmq.wire.amqp010.codec.commands import decode_command, decode_header
from escrowmq.wire.amqp010.codec.frames import BODY, COMMAND, FRAME_HEAD, HEAD_SIZE, HEADER, Assembly
from escrowmq.wire.amqp010.codec.spec import DeliveryProperties, MessageProperties, MessageTransfer
from escrowmq.wire.amqp010.content import PROTOCOL, TransferContent
from escrowmq.wire.amqp010.delivery import OutgoingTransfers, segments_of, size_of
from escrowmq.wire.amqp091.publication import PROTOCOL as PLAIN
from escrowmq.wire.outbox import LARGE, Piece

PROPERTIES = MessageProperties(content_type="text/plain", application_headers={"a": 1})


def entry(content: bytes, envelope: Envelope | None = None, time: int = 5000) -> Entry:
    return Entry(1, content, Run(envelope or Envelope("e", "k", protocol=PROTOCOL, priority=4), 1, time))


def structs(one: Entry) -> list[object]:
    return list(decode_header(segments_of(one)[0]))


def test_a_message_arrives_as_it_was_published() -> None:
    content = TransferContent(PROPERTIES.write(), b"body", timestamp=7, expiration=9)
    envelope = Envelope("e", "k", protocol=PROTOCOL, priority=7, durable=True, ttl=2000)
    header, body = segments_of(entry(content.pack(), envelope))
    assert header.endswith(PROPERTIES.write())
    assert decode_header(header)[0] == DeliveryProperties(
        priority=7, delivery_mode=2, ttl=2000, timestamp=7, expiration=9, exchange="e", routing_key="k"
    )
    assert body == b"body"


def test_a_message_without_properties_arrives_without_properties() -> None:
    found = structs(entry(TransferContent(b"", b"").pack()))
    assert found == [DeliveryProperties(delivery_mode=1, exchange="e", routing_key="k")]


def test_the_broker_sets_the_expiration() -> None:
    envelope = Envelope("e", "k", protocol=PROTOCOL, ttl=2500)
    for time in (5000, 9000):
        found = structs(entry(TransferContent(b"", b"").pack(), envelope, time))[0]
        assert isinstance(found, DeliveryProperties)
        assert (found.ttl, found.expiration, found.timestamp) == (2500, (time + 2500) // 1000, None)


@pytest.mark.parametrize(("published", "deliveries", "marked"), [(False, 0, False), (False, 1, True), (True, 0, True)])
def test_a_message_is_marked_as_redelivered(published: bool, deliveries: int, marked: bool) -> None:
    one = entry(TransferContent(b"", b"", redelivered=published).pack())
    one.deliveries = deliveries
    found = structs(one)[0]
    assert isinstance(found, DeliveryProperties)
    assert found.redelivered is marked


def test_a_dead_letter_has_its_history_and_expires_no_more() -> None:
    deaths = (Death("q", "expired", 1, 5000, "", ("q",), 2500),)
    envelope = Envelope("e", "k", protocol=PROTOCOL, deaths=deaths)
    content = TransferContent(PROPERTIES.write(), b"body", timestamp=7, expiration=9).pack()
    delivery, properties = structs(entry(content, envelope))
    assert isinstance(delivery, DeliveryProperties)
    assert isinstance(properties, MessageProperties)
    assert (delivery.timestamp, delivery.expiration, delivery.ttl) == (7, None, None)
    assert properties.content_type == "text/plain"
    assert properties.application_headers is not None
    assert properties.application_headers["a"] == 1
    assert properties.application_headers["x-first-death-reason"] == "expired"


def test_a_dead_letter_with_malformed_properties_arrives_as_it_is() -> None:
    envelope = Envelope("e", "k", protocol=PROTOCOL, deaths=(Death("q", "expired", 1, 0, "", (), None),))
    broken = b"\x00\x00\x00\x05\x04\x03\x10\x00\x09"
    header, body = segments_of(entry(TransferContent(broken, b"body").pack(), envelope))
    assert header.endswith(broken)
    assert body == b"body"


def test_a_message_of_another_protocol_is_translated() -> None:
    one = entry(b"body", Envelope("e", "k", b"\x80\x00\x01t", protocol=PLAIN, durable=True))
    delivery, properties = structs(one)
    assert isinstance(delivery, DeliveryProperties)
    assert isinstance(properties, MessageProperties)
    assert (delivery.delivery_mode, delivery.exchange, delivery.routing_key) == (2, "e", "k")
    assert (properties.content_type, properties.content_length) == ("t", 4)


def test_names_that_are_too_long_are_left_out() -> None:
    found = structs(entry(TransferContent(b"", b"").pack(), Envelope("e", "k" * 300, protocol=PROTOCOL)))[0]
    assert isinstance(found, DeliveryProperties)
    assert found.routing_key == ""


def test_a_large_body_is_not_copied() -> None:
    content = TransferContent(b"", bytes(LARGE)).pack()
    _, body = segments_of(entry(content))
    assert isinstance(body, memoryview)
    assert body.obj is content


def test_the_size_is_that_of_header_and_body() -> None:
    one = entry(TransferContent(PROPERTIES.write(), b"body").pack())
    header, body = segments_of(one)
    assert size_of(one) == len(header) + len(body)


def parsed(pieces: list[Piece], frame_max: int) -> list[dict[int, bytes]]:
    """The segments of each command in frames that have at most `frame_max` octets."""
    data = b"".join(pieces)
    found, taken, at = [], Assembly((1 << 20,) * 4), 0
    while at < len(data):
        flags, kind, size, track, channel = FRAME_HEAD.unpack_from(data, at)
        assert (size <= frame_max, track, channel) == (True, 1, 5)
        if taken.take(flags, kind, data[at + HEAD_SIZE : at + size]):
            found.append(taken.segments)
            taken = Assembly((1 << 20,) * 4)
        at += size
    return found


ENVELOPES = st.builds(
    Envelope,
    st.sampled_from(["", "e"]),
    st.sampled_from(["k", "k" * 255]),
    protocol=st.just(PROTOCOL),
    durable=st.booleans(),
    priority=st.integers(0, 9),
    ttl=st.none() | st.integers(0, 10_000),
    deaths=st.sampled_from([(), (Death("q", "expired", 1, 5000, "", ("q",), 2500),)]),
)
CONTENTS = st.builds(
    TransferContent,
    st.sampled_from([b"", PROPERTIES.write(), MessageProperties(content_type="x" * 200).write()]),
    st.integers(0, 9).map(bytes) | st.sampled_from([bytes(5000), bytes(LARGE + 5)]),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.booleans(),
)


@given(
    st.lists(st.tuples(ENVELOPES, st.lists(st.tuples(CONTENTS, st.integers(0, 1)), max_size=4)), max_size=3),
    st.sampled_from([4096, 65_535]),
)
def test_the_frames_have_the_segments_of_each_message(
    runs: list[tuple[Envelope, list[tuple[TransferContent, int]]]], frame_max: int
) -> None:
    entries = []
    for envelope, contents in runs:
        run = Run(envelope, 1, 5000)
        for content, deliveries in contents:
            entries.append(Entry(1, content.pack(), run))
            entries[-1].deliveries = deliveries
    built = OutgoingTransfers("d", 5, frame_max, explicit=True, acquired=True).build(entries)
    found = parsed(built, frame_max)
    assert [(one[HEADER], one[BODY]) for one in found] == [
        (header, bytes(body)) for header, body in map(segments_of, entries)
    ]


def test_the_command_names_the_modes() -> None:
    pieces = OutgoingTransfers("d", 5, 4096, explicit=False, acquired=False).build(
        [entry(TransferContent(b"", b"").pack())]
    )
    (segments,) = parsed(pieces, 4096)
    assert decode_command(segments[COMMAND]) == (MessageTransfer("d", 1, 1), False)

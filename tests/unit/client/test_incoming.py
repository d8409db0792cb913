"""Parsing gives the same result for any segmentation, and the same as the codec frame by frame."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client.incoming import Incoming, Run
from escrowmq.client.requests import Content
from escrowmq.wire.amqp091 import codes, spec
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.frames import HEARTBEAT, content_frames, frame, method_frame
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import NO_PROPERTIES, Properties

FRAME_MAX = 4096
PROPS = Properties(delivery_mode=2).encode()
Event = tuple[int, Method, Content | None]


class Recorder:
    """Records the events of a channel, one delivery at a time."""

    def __init__(self, number: int, events: list[Event]) -> None:
        self.number = number
        self.events = events
        self.runs = 0

    def on_method(self, method: Method, content: Content | None) -> None:
        self.events.append((self.number, method, content))

    def on_deliveries(self, run: Run) -> None:
        self.runs += 1
        assert run.deliver.delivery_tag == run.tags[0] or self.runs > 1
        for tag, body in zip(run.tags, run.bodies, strict=True):
            first = run.deliver
            method = spec.BasicDeliver(first.consumer_tag, tag, first.redelivered, first.exchange, first.routing_key)
            self.events.append((self.number, method, Content(run.props, body)))


class Reader:
    """An `Incoming` with channels 1 and 2."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.channels = {number: Recorder(number, self.events) for number in (1, 2)}
        self.incoming = Incoming(self.channels.get)
        self.incoming.frame_max = FRAME_MAX

    def feed(self, data: bytes, cuts: list[int] | None = None) -> list[Event]:
        at = 0
        for cut in sorted({min(cut, len(data)) for cut in cuts or []} | {len(data)}):
            self.incoming.feed(data[at:cut])
            at = cut
        return self.events


def encode(event: Event) -> bytes:
    number, method, content = event
    data = method_frame(number, method)
    return data if content is None else data + content_frames(number, content.props, content.body, FRAME_MAX)


def delivery(tag: int, key: str = "k", *, props: bytes = PROPS, body: bytes = b"body", channel: int = 1) -> Event:
    return channel, spec.BasicDeliver("ctag", tag, False, "e", key), Content(props, body)


bodies = st.one_of(
    st.binary(min_size=1, max_size=8),
    st.sampled_from([b"", bytes(FRAME_MAX - 8), bytes(FRAME_MAX - 7), b"\xce" * 30]),
)
deliveries: st.SearchStrategy[Event] = st.builds(
    delivery,
    st.integers(1, 2**40),
    st.sampled_from("ab"),
    props=st.sampled_from([PROPS, NO_PROPERTIES]),
    body=bodies,
    channel=st.sampled_from([1, 2]),
)
others: st.SearchStrategy[Event] = st.one_of(
    st.just((1, spec.BasicAck(3, True), None)),
    st.builds(lambda body: (2, spec.BasicGetOk(1, False, "e", "k", 3), Content(PROPS, body)), bodies),
    st.builds(lambda body: (1, spec.BasicReturn(312, "NO_ROUTE", "e", "k"), Content(PROPS, body)), bodies),
)


@given(st.lists(st.one_of(deliveries, deliveries, others), max_size=20), st.lists(st.integers(0, 3000), max_size=8))
def test_messages_are_read_as_written_for_any_segmentation(events: list[Event], cuts: list[int]) -> None:
    assert Reader().feed(b"".join(map(encode, events)), cuts) == events


def test_frames_may_arrive_byte_by_byte() -> None:
    events = [delivery(1), delivery(2), (1, spec.BasicAck(1, False), None), delivery(3, body=bytes(5000))]
    data = b"".join(map(encode, events))
    assert Reader().feed(data, list(range(len(data)))) == events


def test_similar_deliveries_form_one_run() -> None:
    reader = Reader()
    events = [delivery(tag, body=b"x" * (1 + tag // 50)) for tag in range(1, 101)]
    assert reader.feed(b"".join(map(encode, events))) == events
    assert reader.channels[1].runs == 2  # the first delivery, from which the form is learned, and the rest


def test_heartbeats_are_skipped() -> None:
    assert Reader().feed(HEARTBEAT + encode(delivery(1)) + HEARTBEAT) == [delivery(1)]


def test_a_closed_channel_gets_nothing() -> None:
    reader = Reader()
    reader.feed(encode(delivery(1)) * 2)
    closed = reader.channels.pop(1)
    reader.incoming.forget(closed, 1)
    assert reader.feed(encode(delivery(2)) * 2 + encode((2, spec.TxCommitOk(), None)))[2:] == [
        (2, spec.TxCommitOk(), None)
    ]


def test_content_of_another_class_has_a_header_of_its_class() -> None:
    header = (240).to_bytes(2, "big") + bytes(2) + (3).to_bytes(8, "big") + NO_PROPERTIES
    method = spec.BasicGetOk(1, False, "e", "k", 0)
    plain = spec.BasicGetOk.CLASS_ID
    try:
        spec.BasicGetOk.CLASS_ID = 240
        data = method_frame(1, method) + frame(codes.FRAME_HEADER, 1, header) + frame(codes.FRAME_BODY, 1, b"abc")
        ((_, _, content),) = Reader().feed(data)
    finally:
        spec.BasicGetOk.CLASS_ID = plain
    assert content == Content(NO_PROPERTIES, b"abc")


Broken = Callable[[], bytes]
BROKEN: dict[str, tuple[int, Broken]] = {
    "no frame end": (501, lambda: encode(delivery(1))[:-1] + b"\x00"),
    "a frame that is too long": (501, lambda: frame(codes.FRAME_BODY, 1, bytes(FRAME_MAX))),
    "an unknown frame type": (501, lambda: frame(7, 1, b"")),
    "a heartbeat with a payload": (501, lambda: frame(codes.FRAME_HEARTBEAT, 0, b"x")),
    "a body from nowhere": (505, lambda: frame(codes.FRAME_BODY, 1, b"x")),
    "a method in the middle of content": (505, lambda: method_frame(1, spec.BasicReturn()) + encode(delivery(1))[:60]),
    "two headers": (505, lambda: encode((1, spec.BasicReturn(), Content(PROPS, b"x")))[:-9] * 2),
    "an unknown method": (540, lambda: frame(codes.FRAME_METHOD, 1, b"\x00\x63\x00\x63")),
    "a method cut short": (502, lambda: frame(codes.FRAME_METHOD, 1, spec.BasicAck(1).encode()[:-1])),
}


@pytest.mark.parametrize("name", BROKEN)
def test_invalid_bytes_are_an_error(name: str) -> None:
    code, make = BROKEN[name]
    with pytest.raises(SyntaxFault) as caught:
        Reader().feed(make())
    assert caught.value.code in (code, 505)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(SyntaxFault):
        Reader().feed(encode(delivery(1)) + data)

"""Counting deliveries: any segmentation of the stream gives the same count, times and other frames."""

from __future__ import annotations

from itertools import pairwise
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp import frame as pamqp_frame

from escrowmq.perf.amqp091 import frames
from escrowmq.perf.amqp091.content import body_frames, properties
from escrowmq.perf.amqp091.counting import DeliveryCounter
from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import LoadMessage, Variety, messages

PLAIN = LoadMessage(b"")


def delivery(
    tag: int, body: bytes, key: str = "queue", frame_max: int = 131072, message: LoadMessage = PLAIN, consumer: int = 0
) -> bytes:
    deliver = pamqp_frame.marshal(
        commands.Basic.Deliver(f"perf-{consumer:04d}", tag, redelivered=False, exchange="", routing_key=key), 1
    )
    header = frames.frame(frames.HEADER, 1, pack(">HHQ", 60, 0, len(body)) + properties(message, 2))
    return deliver + header + body_frames(1, body, frame_max)


def varied(tag: int, message: LoadMessage) -> bytes:
    return delivery(tag, message.body, f"key.{tag % 700}", message=message, consumer=tag % 3)


VARIED = Variety(spread=40, message_ids=True, correlation_ids=True, timestamps=True, headers=True)
HEARTBEAT = frames.frame(frames.HEARTBEAT, 0, b"")
CANCEL = frames.method(1, frames.BASIC_CANCEL, frames.shortstr("perf-0000") + b"\x01")


class Reader:
    """Feeds a counter as a peer does: unprocessed bytes are passed again before the next chunk."""

    def __init__(self, every: bool = True) -> None:
        self.bodies: list[tuple[int, bytes]] = []
        self.others: list[tuple[int, bytes]] = []
        self.counter = DeliveryCounter(
            lambda kind, payload: self.others.append((kind, bytes(payload))),
            lambda _, size, begin: self.bodies.append((size, begin)),
            every,
        )
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        data = self._rest + chunk
        # The bytes after the end of a peer's buffer are left from earlier reads.
        self._rest = data[self.counter.feed(bytearray(data + delivery(9999, b"stale")), len(data)) :]

    @property
    def left(self) -> int:
        """Return the number of bytes to be passed again."""
        return len(self._rest)

    def feed_in_pieces(self, data: bytes, cuts: list[int]) -> None:
        edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        for begin, end in pairwise(edges):
            self.feed(data[begin:end])


CUTS = st.lists(st.integers(0, 10**6), max_size=30)


@given(count=st.integers(0, 60), size=st.sampled_from([0, 8, 100, 5000]), every=st.booleans(), cuts=CUTS)
def test_a_homogeneous_stream_counts_the_same_in_any_pieces(
    count: int, size: int, every: bool, cuts: list[int]
) -> None:
    reader = Reader(every)
    data = b"".join(delivery(i + 1, i.to_bytes(8, "big")[:size].ljust(size, b"-")) for i in range(count))
    reader.feed_in_pieces(data, cuts)
    assert reader.counter.count == count
    assert reader.others == []
    if every:
        assert reader.bodies == [(size, i.to_bytes(8, "big")[:size].ljust(size, b"-")[:72]) for i in range(count)]


@given(count=st.integers(0, 60), every=st.booleans(), cuts=CUTS)
def test_a_varied_stream_counts_the_same_in_any_pieces(count: int, every: bool, cuts: list[int]) -> None:
    reader = Reader(every)
    made = list(messages(VARIED, 100, count))
    reader.feed_in_pieces(b"".join(varied(tag, message) for tag, message in enumerate(made, 1)), cuts)
    assert reader.counter.count == count
    sent = [(len(message.body), message.body[:72]) for message in made]
    if every:
        assert reader.bodies == sent
    elif count:
        assert set(reader.bodies) <= set(sent)
        assert reader.bodies[-1] == sent[-1]


def test_most_varied_deliveries_are_not_parsed() -> None:
    reader = Reader(every=False)
    reader.feed(b"".join(varied(tag, message) for tag, message in enumerate(messages(VARIED, 100, 1000), 1)))
    assert reader.counter.count == 1000
    assert len(reader.bodies) == 2


@given(
    items=st.lists(st.one_of(st.sampled_from([HEARTBEAT, CANCEL]), st.integers(0, 40)), max_size=40),
    frame_max=st.sampled_from([20, 131072]),
    cuts=CUTS,
)
def test_a_stream_with_other_frames_counts_the_same_in_any_pieces(
    items: list[bytes | int], frame_max: int, cuts: list[int]
) -> None:
    reader = Reader()
    data = b""
    sizes = [item for item in items if isinstance(item, int)]
    tag = 0
    for item in items:
        if isinstance(item, int):
            tag += 1
            data += delivery(tag, b"x" * item, frame_max=frame_max)
        else:
            data += item
    reader.feed_in_pieces(data, cuts)
    assert reader.counter.count == len(sizes)
    assert reader.others == [(item[0], item[7:-1]) for item in items if isinstance(item, bytes)]


def test_frames_after_the_last_delivery_are_not_overlooked() -> None:
    reader = Reader(every=False)
    reader.feed(b"".join(varied(tag, message) for tag, message in enumerate(messages(VARIED, 100, 20), 1)) + CANCEL)
    assert [kind for kind, _ in reader.others] == [frames.METHOD]


def test_a_varied_delivery_that_is_missing_is_an_error() -> None:
    made = list(messages(VARIED, 100, 20))
    tags = [*range(1, 11), *range(12, 22)]
    with pytest.raises(PerfError, match="delivery tag 21 after 19"):
        Reader(every=False).feed(b"".join(varied(tag, message) for tag, message in zip(tags, made, strict=True)))


def test_long_bodies_are_taken_frame_by_frame() -> None:
    reader = Reader(every=False)
    body = bytes(300_000)
    data = delivery(1, body) + delivery(2, body)
    used = reader.counter.feed(bytearray(data), 200_000)
    assert used > 131_000
    assert reader.counter.count == 0
    assert reader.counter.feed(bytearray(data[used:]), len(data) - used) == len(data) - used
    assert reader.counter.count == 2


@pytest.mark.parametrize("size", [100, 60_000, 70_000, 300_000])
def test_the_unprocessed_rest_stays_short(size: int) -> None:
    reader = Reader(every=False)
    data = b"".join(delivery(tag, bytes(size)) for tag in range(1, 41))
    for at in range(0, len(data), 50_000):
        reader.feed(data[at : at + 50_000])
        assert reader.left <= 131_080
    assert (reader.counter.count, reader.left) == (40, 0)


def test_some_deliveries_of_a_run_are_parsed() -> None:
    reader = Reader(every=False)
    for tag in range(1, 101):
        reader.feed(delivery(tag, b"body"))
    assert reader.counter.count == 100
    assert 5 <= len(reader.bodies) <= 10


def test_answers_to_get_are_counted_by_their_tags() -> None:
    found: list[int] = []
    counter = DeliveryCounter(
        lambda *_: None, lambda _, size, __: found.append(size), every=True, method=frames.BASIC_GET_OK
    )
    content = delivery(1, b"body")[len(delivery(1, b"")) - 15 - 8 :]
    got = pamqp_frame.marshal(commands.Basic.GetOk(1, False, "", "queue", 0), 1)
    data = got + content
    assert counter.feed(bytearray(data), len(data)) == len(data)
    assert (counter.count, found) == (1, [4])


def test_a_delivery_tag_that_jumps_is_an_error() -> None:
    reader = Reader()
    reader.feed(delivery(1, b"body"))
    with pytest.raises(PerfError, match="delivery tag 3 after 1"):
        reader.feed(delivery(3, b"body"))


def test_a_delivery_missing_in_the_middle_of_a_run_is_an_error() -> None:
    reader = Reader(every=False)
    reader.feed(delivery(1, b"body"))
    with pytest.raises(PerfError, match="delivery tag 5 after 3"):
        reader.feed(delivery(2, b"body") + delivery(4, b"body") + delivery(5, b"body"))


@pytest.mark.parametrize("garbage", [b"\x01" * 20, b"\x01\0\x01\0\0\0\x04abcd!" + bytes(20)])
def test_garbage_is_an_error(garbage: bytes) -> None:
    with pytest.raises(PerfError, match="not AMQP"):
        Reader().feed(garbage)


def test_a_body_that_another_frame_interrupts_is_an_error() -> None:
    data = delivery(1, bytes(100), frame_max=58)
    first_body_end = len(data) - 58
    with pytest.raises(PerfError, match="cut short"):
        Reader().feed(data[:first_body_end] + HEARTBEAT + data[first_body_end:])


def test_a_delivery_without_header_is_an_error() -> None:
    data = delivery(1, b"")
    with pytest.raises(PerfError, match="content header"):
        Reader().feed(data[: -15 - 8] + HEARTBEAT)

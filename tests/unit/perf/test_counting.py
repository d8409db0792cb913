"""Counting deliveries: the same count, times and other frames, however the stream is cut."""

from __future__ import annotations

from itertools import pairwise
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp import frame as pamqp_frame

from escrowmq.perf import frames
from escrowmq.perf.counting import DeliveryCounter
from escrowmq.perf.errors import PerfError


def delivery(tag: int, body: bytes, key: str = "queue", frame_max: int = 131072) -> bytes:
    deliver = pamqp_frame.marshal(
        commands.Basic.Deliver("perf-0000", tag, redelivered=False, exchange="", routing_key=key), 1
    )
    header = frames.frame(frames.HEADER, 1, pack(">HHQHB", 60, 0, len(body), 0x1000, 2))
    return deliver + header + frames.body_frames(1, body, frame_max)


HEARTBEAT = frames.frame(frames.HEARTBEAT, 0, b"")
CANCEL = frames.method(1, frames.BASIC_CANCEL, frames.shortstr("perf-0000") + b"\x01")


class Reader:
    """Feeds a counter as a peer does: what was not used comes again in front of the next chunk."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.others: list[tuple[int, bytes]] = []
        self.counter = DeliveryCounter(
            lambda kind, payload: self.others.append((kind, bytes(payload))), self.times.extend
        )
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        data = self._rest + chunk
        self._rest = data[self.counter.feed(memoryview(data)) :]

    def feed_in_pieces(self, data: bytes, cuts: list[int]) -> None:
        edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        for begin, end in pairwise(edges):
            self.feed(data[begin:end])


CUTS = st.lists(st.integers(0, 10**6), max_size=30)


@given(count=st.integers(0, 60), size=st.sampled_from([8, 100]), cuts=CUTS)
def test_a_homogeneous_stream_counts_the_same_in_any_pieces(count: int, size: int, cuts: list[int]) -> None:
    reader = Reader()
    bodies = [(1000 + i).to_bytes(8, "big") + bytes(size - 8) for i in range(count)]
    reader.feed_in_pieces(b"".join(delivery(i + 1, body) for i, body in enumerate(bodies)), cuts)
    assert reader.counter.count == count
    assert reader.times == [1000 + i for i in range(count)]
    assert reader.others == []


@given(
    items=st.lists(st.one_of(st.sampled_from([HEARTBEAT, CANCEL]), st.integers(0, 40)), max_size=40),
    frame_max=st.sampled_from([20, 131072]),
    cuts=CUTS,
)
def test_a_mixed_stream_counts_the_same_in_any_pieces(
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


@given(sizes=st.lists(st.one_of(st.integers(1, 60), st.just(131064), st.just(131065)), max_size=20), cuts=CUTS)
def test_times_are_found_whatever_the_sizes(sizes: list[int], cuts: list[int]) -> None:
    reader = Reader()
    bodies = [(1000 + i).to_bytes(8, "big")[-min(size, 8) :].ljust(size, b"-") for i, size in enumerate(sizes)]
    reader.feed_in_pieces(b"".join(delivery(i + 1, body) for i, body in enumerate(bodies)), cuts)
    assert reader.counter.count == len(sizes)
    assert reader.times == [1000 + i for i, size in enumerate(sizes) if size >= 8]


def test_a_tag_out_of_order_among_mixed_sizes_is_an_error() -> None:
    reader = Reader()
    tags = [1, 2, 3, 5]
    with pytest.raises(PerfError, match="delivery tag 5 after 3"):
        reader.feed(b"".join(delivery(tag, b"x" * (10 + i)) for i, tag in enumerate(tags)))


def test_bodies_too_short_for_a_time_have_none() -> None:
    reader = Reader()
    reader.feed(b"".join(delivery(i + 1, b"1234567") for i in range(5)))
    assert reader.counter.count == 5
    assert reader.times == []


def test_a_delivery_tag_that_jumps_is_an_error() -> None:
    reader = Reader()
    reader.feed(delivery(1, b"body"))
    with pytest.raises(PerfError, match="delivery tag 3 after 1"):
        reader.feed(delivery(3, b"body"))


def test_a_delivery_missing_in_the_middle_of_a_run_is_an_error() -> None:
    reader = Reader()
    reader.feed(delivery(1, b"body"))
    with pytest.raises(PerfError, match="delivery tag 4 after 2"):
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
        Reader().feed(data[: -22 - 1] + HEARTBEAT)

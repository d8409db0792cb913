"""Counting transfers: any segmentation of the stream gives the same count and the same other frames."""

from __future__ import annotations

from itertools import pairwise, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.perf.amqp010 import frames
from escrowmq.perf.amqp010.encoding import transfer_block
from escrowmq.perf.amqp010.frames import ReceivedAssembly
from escrowmq.perf.amqp010.reading import TransferCount
from escrowmq.perf.errors import PerfError
from escrowmq.perf.messages import LoadMessage, Variety, messages
from escrowmq.wire.amqp010.codec.commands import decode_header
from escrowmq.wire.amqp010.codec.spec import MessageProperties, SessionCompleted, SessionFlush

VARIED = Variety(spread=40, message_ids=True, correlation_ids=True, timestamps=True, headers=True)
OTHER = frames.completed(1, 0, 5)


def delivery(message: LoadMessage, frame_max: int = 65_535) -> bytes:
    """Return a delivery, which is encoded as a publish is."""
    block = transfer_block([message], 1, "d", repeat("q"), durable=True, explicit=True, frame_max=frame_max)
    return bytes(block.slice(0, 1))


class Reader:
    """Feeds a counter as a peer does: unprocessed bytes are passed again before the next chunk."""

    def __init__(self, *, every: bool) -> None:
        self.contents: list[tuple[bytes, bytes, int]] = []
        self.others: list[ReceivedAssembly] = []
        self.counter = TransferCount(self.others.append, lambda *content: self.contents.append(content), every=every)
        self._rest = b""

    def feed_in_pieces(self, data: bytes, cuts: list[int]) -> None:
        edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
        for begin, end in pairwise(edges):
            chunk = self._rest + data[begin:end]
            # The bytes after the end of a peer's buffer are left from earlier reads.
            stale = delivery(LoadMessage(b"stale"))
            self._rest = chunk[self.counter.feed(bytearray(chunk + stale), len(chunk)) :]


@given(
    count=st.integers(0, 60),
    varied=st.booleans(),
    every=st.booleans(),
    cuts=st.lists(st.integers(0, 10**6), max_size=30),
)
def test_deliveries_count_the_same_in_any_pieces(count: int, varied: bool, every: bool, cuts: list[int]) -> None:
    reader = Reader(every=every)
    made = list(messages(VARIED if varied else Variety(), 100, count))
    reader.feed_in_pieces(OTHER + b"".join(map(delivery, made)) + OTHER, cuts)
    assert reader.counter.count == count
    assert [each.what for each in reader.others] == [SessionCompleted(((0, 5),))] * 2
    if every:
        assert [(body, size) for _, body, size in reader.contents] == [(m.body[:72], len(m.body)) for m in made]


@pytest.mark.parametrize("size", [0, 8, 4096, 10_000, 200_000])
def test_bodies_of_any_size_are_counted(size: int) -> None:
    reader = Reader(every=True)
    data = b"".join(delivery(message, 4096) for message in messages(Variety(message_ids=True), size, 5))
    reader.feed_in_pieces(data, [3000, 4100, 9000])
    assert reader.counter.count == 5
    assert {found for _, _, found in reader.contents} == {size}
    for header, _, _ in reader.contents:
        assert any(isinstance(each, MessageProperties) and each.message_id for each in decode_header(header))


def test_bytes_that_are_no_frames_are_an_error() -> None:
    with pytest.raises(PerfError, match="not AMQP 0-10"):
        Reader(every=False).feed_in_pieces(b"\x0f\x00\x00\x03" + bytes(20), [])


def test_a_message_that_is_cut_short_is_an_error() -> None:
    begun = delivery(LoadMessage(b"body"))[:30]
    with pytest.raises(PerfError, match="cut short"):
        Reader(every=False).feed_in_pieces(begun[: begun[3]] + frames.control(1, SessionFlush()), [])

"""Responses leave within the client's windows, and in order within their stream."""

from __future__ import annotations

import pytest

from escrowmq.wire.http2.frames import MOST_WINDOW, ErrorCode, Http2Fault
from escrowmq.wire.http2.limits import Http2Limits, Patience
from escrowmq.wire.http2.sending import ResponseSender
from escrowmq.wire.http2.stream import Stream
from tests.unit.wire.http2.peer import cut


class Sink:
    def __init__(self, window: int, *, unsent: int = 1000) -> None:
        self.sent: list[tuple[int, bytes, int]] = []
        self.sender = ResponseSender(self.put, Http2Limits(unsent=unsent), Patience(1000))
        self.sender.window = window

    def put(self, lane: int, data: bytes, after: int) -> None:
        self.sent.append((lane, data, after))

    def frames(self) -> list[tuple[int, bytes]]:
        return [(kind, payload) for _, data, _ in self.sent for kind, _, _, payload in cut(data)]


def test_a_small_response_is_one_output() -> None:
    sink = Sink(100)
    stream = Stream(3, 100, 0)
    assert sink.sender.respond(stream, b"h", b"body", b"t", 7)
    assert [(lane, after) for lane, _, after in sink.sent] == [(3, 7)]
    assert sink.frames() == [(1, b"h"), (0, b"body"), (1, b"t")]
    assert (stream.send_window, sink.sender.window) == (96, 96)


@pytest.mark.parametrize(("of_stream", "of_connection"), [(2, 100), (100, 2), (0, 100), (100, 0)])
def test_a_response_beyond_a_window_is_sent_as_the_window_opens(of_stream: int, of_connection: int) -> None:
    sink = Sink(of_connection)
    stream = Stream(1, of_stream, 0)
    assert not sink.sender.respond(stream, b"h", b"body", b"t", 0)
    assert sink.sender.unsent > 0
    finished = [] if sink.sender.widen_stream(stream, 1) else sink.sender.widen(1)
    assert finished == []
    finished_now = sink.sender.widen_stream(stream, 10)
    assert finished_now or sink.sender.widen(10) == [stream]
    assert [kind for kind, _ in sink.frames()] == [1, *[0] * (len(sink.frames()) - 2), 1]
    assert b"".join(payload for kind, payload in sink.frames() if kind == 0) == b"body"
    assert sink.sender.unsent == 0


def test_each_part_keeps_the_sync_that_it_waits_for() -> None:
    sink = Sink(0)
    stream = Stream(1, 100, 0)
    sink.sender.headers(stream, b"h", 5, ends=False)
    sink.sender.data(stream, b"ab", 6)
    sink.sender.data(stream, b"cd", 7)
    sink.sender.headers(stream, b"t", 0, ends=True)
    assert sink.sender.widen(3) == []
    assert sink.sender.widen(1) == [stream]
    assert [after for _, _, after in sink.sent] == [5, 6, 7, 7, 0]


def test_what_waits_is_bounded_and_forgotten_with_its_stream() -> None:
    sink = Sink(0, unsent=10)
    stream = Stream(1, 0, 0)
    sink.sender.data(stream, b"x" * 10, 0)
    with pytest.raises(Http2Fault) as caught:
        sink.sender.data(stream, b"x", 0)
    assert caught.value.code is ErrorCode.ENHANCE_YOUR_CALM
    sink.sender.forget(stream)
    assert sink.sender.unsent == 0
    assert sink.sender.widen(5) == []


def test_a_window_beyond_the_largest_is_a_fault() -> None:
    sink = Sink(1)
    with pytest.raises(Http2Fault):
        sink.sender.widen(MOST_WINDOW)
    with pytest.raises(Http2Fault) as caught:
        sink.sender.widen_stream(Stream(9, 1, 0), MOST_WINDOW)
    assert caught.value.stream == 9

"""Frames without requests: what they change, and what they cost. `test_connection` has their faults."""

from __future__ import annotations

import pytest

from escrowmq.wire.http2.control import CONTROL, ControlFrames
from escrowmq.wire.http2.frames import ErrorCode, Flag, FrameType, Http2Fault, Setting, settings, window_update
from escrowmq.wire.http2.limits import Http2Limits, Patience
from escrowmq.wire.http2.sending import ResponseSender
from escrowmq.wire.http2.stream import Stream
from escrowmq.wire.http2.table import StreamTable
from tests.unit.wire.http2.peer import cut


class Bench:
    """The part of a connection around such frames, with one open stream."""

    def __init__(self, patience: int = 100) -> None:
        self.sent: list[tuple[int, bytes]] = []
        self.patience = Patience(patience)
        self.table = StreamTable(self.patience)
        self.sender = ResponseSender(self.put, Http2Limits(), self.patience)
        self.control = ControlFrames(self.put, self.table, self.sender, self.patience)
        self.stream = self.table.open[1] = Stream(1, 0, 100)
        self.table.highest = 1
        self.sender.initial_window = 0

    def put(self, lane: int, data: bytes, after: int) -> None:
        assert not after
        self.sent.append((lane, data))

    def take(self, data: bytes) -> list[Stream]:
        """Process one encoded frame."""
        ((kind, flags, number, payload),) = cut(data)
        return list(self.control.frame(kind, flags, number, payload))

    def repeat(self, count: int, kind: int, flags: int, number: int, payload: bytes) -> None:
        for _ in range(count):
            self.control.frame(kind, flags, number, payload)

    @property
    def kinds(self) -> list[int]:
        return [cut(data)[0][0] for _, data in self.sent]


def test_a_response_that_a_new_window_lets_through_follows_the_acknowledgement() -> None:
    bench = Bench()
    assert not bench.sender.respond(bench.stream, b"h", b"body", b"t", 0)
    bench.sent.clear()
    assert bench.take(settings({Setting.INITIAL_WINDOW_SIZE: 10})) == [bench.stream]
    assert bench.kinds == [FrameType.SETTINGS, FrameType.DATA, FrameType.HEADERS]
    assert bench.sent[0][0] == CONTROL


@pytest.mark.parametrize("number", [0, 1])
def test_a_window_update_completes_responses(number: int) -> None:
    bench = Bench()
    bench.stream.send_window, bench.sender.window = (0, 100) if number else (100, 0)
    assert not bench.sender.respond(bench.stream, b"h", b"body", b"t", 0)
    assert bench.take(window_update(number, 3)) == []
    assert bench.take(window_update(number, 1)) == [bench.stream]


def test_an_update_for_a_stream_that_has_ended_is_ignored_and_one_for_an_idle_stream_is_not() -> None:
    bench = Bench()
    bench.table.open.clear()
    assert bench.take(window_update(1, 3)) == []
    with pytest.raises(Http2Fault, match="not open"):
        bench.take(window_update(3, 3))


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize(
    ("kind", "flags", "number", "payload"),
    [
        (FrameType.PING, 0, 0, bytes(8)),
        (FrameType.PING, Flag.ACK, 0, bytes(8)),
        (FrameType.SETTINGS, 0, 0, b""),
        (FrameType.SETTINGS, Flag.ACK, 0, b""),
        (FrameType.PRIORITY, 0, 3, bytes(5)),
        (FrameType.GOAWAY, 0, 0, bytes(8)),
        (FrameType.WINDOW_UPDATE, 0, 0, b"\x00\x00\x00\x01"),
        (99, 0, 0, b""),
    ],
)
def test_every_frame_costs_patience(kind: int, flags: int, number: int, payload: bytes) -> None:
    bench = Bench(100)
    with pytest.raises(Http2Fault) as raised:
        bench.repeat(101, kind, flags, number, payload)
    assert raised.value.code == ErrorCode.ENHANCE_YOUR_CALM


def test_a_change_of_the_window_of_many_streams_costs_patience_for_each() -> None:
    bench = Bench(50)
    for number in range(3, 103, 2):
        bench.table.open[number] = Stream(number, 0, 100)
    with pytest.raises(Http2Fault, match="too many frames"):
        bench.take(settings({Setting.INITIAL_WINDOW_SIZE: 10}))

"""The bytes of a connection are divided into frames, whatever their pieces, until reading is paused or closed."""

from __future__ import annotations

import pytest

from escrowmq.wire.http2.frames import PREFACE, ErrorCode, FrameType, Http2Fault, frame
from escrowmq.wire.http2.reading import Http2Reader

FRAMES = [frame(FrameType.PING, 0, 0, b"12345678"), frame(FrameType.DATA, 1, 3, b"x" * 300), frame(99, 255, 7, b"")]


class Sink:
    """Notes the frames. It pauses after `most` of them, and finds fault with stream 3."""

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.found: list[tuple[int, int, int, bytes]] = []
        self.begins = 0
        self.resets: list[tuple[int, ErrorCode]] = []

    def begun(self) -> None:
        self.begins += 1

    def frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        self.found.append((kind, flags, number, payload))
        if number == 3:
            raise Http2Fault(ErrorCode.STREAM_CLOSED, "fault", 3)

    def reset(self, number: int, code: ErrorCode) -> None:
        self.resets.append((number, code))

    def pauses(self) -> bool:
        return len(self.found) >= self.most


@pytest.mark.parametrize("size", [1, 7, 24, 1000])
def test_frames_are_found_in_pieces_of_any_size(size: int) -> None:
    sink, data = Sink(), PREFACE + b"".join(FRAMES)
    reader = Http2Reader(sink.pauses)
    for at in range(0, len(data), size):
        reader.receive(data[at : at + size], sink)
    assert sink.begins == 1
    assert [(kind, number) for kind, _, number, _ in sink.found] == [(FrameType.PING, 0), (FrameType.DATA, 3), (99, 7)]
    assert sink.found[1][3] == b"x" * 300
    assert sink.resets == [(3, ErrorCode.STREAM_CLOSED)], "a fault of a stream is no fault of the connection"
    assert not reader.has_unread


def test_what_arrives_while_reading_is_paused_is_read_later() -> None:
    sink = Sink(1)
    reader = Http2Reader(sink.pauses)
    reader.receive(PREFACE + b"".join(FRAMES), sink)
    assert len(sink.found) == 1
    assert reader.has_unread
    sink.most = 100
    reader.receive(b"", sink)
    assert len(sink.found) == 3


def test_nothing_is_read_after_the_end() -> None:
    sink = Sink(1)
    reader = Http2Reader(sink.pauses)
    reader.receive(PREFACE + b"".join(FRAMES), sink)
    reader.close()
    sink.most = 100
    reader.receive(FRAMES[0], sink)
    assert len(sink.found) == 1
    assert not reader.has_unread


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", ErrorCode.PROTOCOL_ERROR),
        (PREFACE + b"\x00\x40\x01" + b"\x00" * 6, ErrorCode.FRAME_SIZE_ERROR),
    ],
)
def test_what_is_no_frame_ends_the_connection(data: bytes, code: ErrorCode) -> None:
    sink = Sink()
    with pytest.raises(Http2Fault) as raised:
        Http2Reader(sink.pauses).receive(data, sink)
    assert (raised.value.code, raised.value.stream) == (code, 0)

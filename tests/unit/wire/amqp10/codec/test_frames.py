"""Frames: layout, limits, and arrival in pieces."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp10.codec.errors import CodecError
from escrowmq.wire.amqp10.codec.frames import (
    EMPTY_FRAME,
    SASL,
    SASL_HEADER,
    FrameError,
    FrameReader,
    frame,
    frame_header,
)


def read(reader: FrameReader) -> list[tuple[int, int, bytes]]:
    found = []
    while (item := reader.next()) is not None:
        kind, channel, data, at, end = item
        found.append((kind, channel, data[at:end]))
    return found


def test_a_frame_has_the_layout_of_the_specification() -> None:
    assert frame(3, b"body", b"payload", SASL).hex() == "0000001302010003" + b"bodypayload".hex()
    assert EMPTY_FRAME.hex() == "0000000802000000"
    assert frame_header(1, 0) == frame(1, b"")


@pytest.mark.parametrize("channel", [-1, 65536])
def test_a_channel_out_of_range_is_refused(channel: int) -> None:
    with pytest.raises(CodecError):
        frame(channel, b"")


frames = st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(0, 65535), st.binary(max_size=100)), max_size=6)


@given(frames, st.lists(st.integers(1, 50), min_size=1, max_size=60))
def test_frames_arrive_whole_however_their_octets_are_cut(sent: list[tuple[int, int, bytes]], sizes: list[int]) -> None:
    data = b"".join(frame(channel, body, b"", kind) for kind, channel, body in sent)
    reader = FrameReader()
    found = []
    at = 0
    for size in (*sizes, len(data)):
        reader.feed(data[at : at + size])
        at += size
        found += read(reader)
    assert found == sent


def test_every_frame_arrives_octet_by_octet() -> None:
    reader = FrameReader()
    found = []
    for octet in frame(1, b"abc") + EMPTY_FRAME:
        reader.feed(bytes((octet,)))
        found += read(reader)
    assert found == [(0, 1, b"abc"), (0, 0, b"")]


def test_an_extended_header_is_ignored() -> None:
    reader = FrameReader()
    reader.feed(bytes.fromhex("0000000f03000001ffffffff") + b"abc")
    assert read(reader) == [(0, 1, b"abc")]


@pytest.mark.parametrize(
    ("octets", "message"),
    [
        ("0000000702000000", "has 7 octets"),
        ("0000020102000000", "has 513 octets; 8 to 512"),
        ("0000000801000000", "data offset 1"),
        ("0000000803000000", "data offset 3"),
        ("0000000802020000", "unknown type 2"),
    ],
)
def test_malformed_frames_are_an_error(octets: str, message: str) -> None:
    reader = FrameReader()
    reader.feed(EMPTY_FRAME + bytes.fromhex(octets))
    assert reader.next() is not None
    with pytest.raises(FrameError, match=message):
        reader.next()


def test_octets_before_the_first_frame_can_be_taken() -> None:
    reader = FrameReader()
    reader.feed(SASL_HEADER[:5])
    assert reader.take(8) is None
    reader.feed(SASL_HEADER[5:] + EMPTY_FRAME)
    assert reader.take(8) == SASL_HEADER
    assert read(reader) == [(0, 0, b"")]


def test_a_large_body_that_came_in_one_piece_is_not_copied() -> None:
    data = frame(0, b"x" * 10000)
    reader = FrameReader(20000)
    reader.feed(data)
    found = reader.next()
    assert found is not None
    assert found[2] is data


@given(st.binary(max_size=64))
def test_any_octets_are_frames_or_an_error(data: bytes) -> None:
    reader = FrameReader()
    reader.feed(data)
    with contextlib.suppress(FrameError):
        read(reader)

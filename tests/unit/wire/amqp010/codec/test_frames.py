"""Frames: cutting into frames, and putting segments together again from any frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp010.codec import frames
from escrowmq.wire.amqp010.codec.errors import CodecError
from escrowmq.wire.amqp010.codec.frames import FRAME_HEAD, HEAD_SIZE, Assembly, assembly, control_frame
from escrowmq.wire.amqp010.codec.spec import ConnectionHeartbeat

LIMITS = (1000, 1000, 1000, 10_000)


def parse(octets: bytes) -> list[tuple[int, int, int, int, bytes]]:
    """(flags, type, track, channel, payload) of each frame."""
    found, at = [], 0
    while at < len(octets):
        flags, kind, size, track, channel = FRAME_HEAD.unpack_from(octets, at)
        found.append((flags, kind, track, channel, octets[at + HEAD_SIZE : at + size]))
        at += size
    return found


def test_a_control_is_one_frame_on_track_0() -> None:
    assert (
        control_frame(3, ConnectionHeartbeat()) == b"\x0f\x00\x00\x10\x00\x00\x00\x03\x00\x00\x00\x00\x01\x0a\x00\x00"
    )


def test_the_segments_of_a_command_are_marked() -> None:
    octets = b"".join(assembly(1, [(frames.COMMAND, b"c"), (frames.HEADER, b"h"), (frames.BODY, b"b")], 4096))
    assert parse(octets) == [(11, 1, 1, 1, b"c"), (3, 2, 1, 1, b"h"), (7, 3, 1, 1, b"b")]


def test_a_long_segment_is_cut() -> None:
    octets = b"".join(assembly(1, [(frames.COMMAND, b"c"), (frames.BODY, b"abcdefg")], HEAD_SIZE + 3))
    assert parse(octets) == [
        (11, 1, 1, 1, b"c"),
        (6, 3, 1, 1, b"abc"),
        (4, 3, 1, 1, b"def"),
        (5, 3, 1, 1, b"g"),
    ]


def test_a_view_is_cut_without_a_copy() -> None:
    body = memoryview(bytes(9000))
    pieces = assembly(1, [(frames.COMMAND, b"c"), (frames.BODY, body)], 4096)
    assert all(isinstance(piece, memoryview) and piece.obj is body.obj for piece in pieces[3::2])


@given(
    command=st.binary(max_size=40),
    header=st.none() | st.binary(max_size=40),
    body=st.none() | st.binary(max_size=200),
    most=st.integers(1, 30),
)
def test_what_was_cut_is_put_together(command: bytes, header: bytes | None, body: bytes | None, most: int) -> None:
    parts = {frames.COMMAND: command, frames.HEADER: header, frames.BODY: body}
    segments = [(kind, payload) for kind, payload in parts.items() if payload is not None]
    taken = Assembly(LIMITS)
    sent = parse(b"".join(assembly(7, list(segments), HEAD_SIZE + most)))
    complete = [taken.take(flags, kind, payload) for flags, kind, _, _, payload in sent]
    assert complete == [False] * (len(sent) - 1) + [True]
    assert taken.segments == dict(segments)
    assert taken.excess < 0


@pytest.mark.parametrize(
    "sequence",
    [
        [(3, 1)],  # does not begin an assembly
        [(11, 2)],  # begins with a header
        [(9, 1)],  # continues nothing
        [(10, 1), (11, 1)],  # the first segment is not complete
        [(10, 1), (9, 2)],  # another type in the middle of a segment
        [(10, 1), (13, 1)],  # the flags of the segment change
        [(11, 1), (11, 1)],  # the assembly is not complete
        [(11, 1), (3, 1)],  # a second command
        [(11, 1), (3, 3), (3, 2)],  # the header is behind the body
        [(11, 1), (3, 3), (7, 3)],  # a second body
        [(11, 1), (1, 3)],  # the body does not begin
    ],
)
def test_frames_out_of_order_are_refused(sequence: list[tuple[int, int]]) -> None:
    taken = Assembly(LIMITS)
    *good, bad = sequence
    for flags, kind in good:
        assert not taken.take(flags, kind, b"x")
    with pytest.raises(CodecError):
        taken.take(*bad, b"x")


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_segment_that_is_too_long_is_not_kept(pieces: int) -> None:
    taken = Assembly((10, 10, 10, 4))
    assert not taken.take(11, frames.COMMAND, b"c")
    for number in range(pieces):
        flags = 4 | (2 if not number else 0) | (1 if number == pieces - 1 else 0)
        assert taken.take(flags, frames.BODY, b"12345") is (number == pieces - 1)
    assert taken.excess == frames.BODY
    assert taken.segments == {frames.COMMAND: b"c", frames.BODY: b""}
    assert taken.held_bytes < 200


def test_frames_without_octets_take_no_memory() -> None:
    taken = Assembly(LIMITS)
    taken.take(10, frames.COMMAND, b"")
    before = taken.held_bytes
    for _ in range(1000):
        assert not taken.take(8, frames.COMMAND, b"")
    assert taken.held_bytes == before


@given(
    sequence=st.lists(st.tuples(st.integers(0, 15), st.integers(0, 3), st.binary(max_size=9)), max_size=20),
)
def test_any_frames_are_taken_or_refused(sequence: list[tuple[int, int, bytes]]) -> None:
    taken = Assembly((20, 20, 20, 20))
    for flags, kind, payload in sequence:
        try:
            if taken.take(flags, kind, payload):
                assert taken.segments
                break
        except CodecError:
            break
        assert taken.held_bytes <= 4 * (20 + 64 * 21)

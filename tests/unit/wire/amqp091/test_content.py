"""Messages that arrive frame by frame."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.content import _JOINED, Content, PartialFrame
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.frames import CONTENT_HEADER
from escrowmq.wire.endpoint import EndpointLimits

LIMITS = EndpointLimits(message_size=100, header_size=40)
HEADER, BODY = codes.FRAME_HEADER, codes.FRAME_BODY


def header(size: int, props: bytes = b"\x00\x00") -> bytes:
    return CONTENT_HEADER.pack(60, 0, size) + props


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_a_body_may_have_any_number_of_frames(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    content = Content(b"method")
    whole = content.take(HEADER, header(len(body)), LIMITS)
    assert whole == (not body)
    for i, piece in enumerate(pieces):
        if whole:
            break
        whole = content.take(BODY, piece, LIMITS)
        assert whole == (len(b"".join(pieces[: i + 1])) == len(body))
    assert (content.method, content.props, content.body, content.too_large) == (b"method", b"\x00\x00", body, "")


def test_an_empty_body_needs_no_frame() -> None:
    content = Content(b"")
    assert content.take(HEADER, header(0), LIMITS)
    assert content.body == b""


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([(BODY, b"x")], codes.UNEXPECTED_FRAME),
        ([(HEADER, header(2)), (HEADER, header(2))], codes.UNEXPECTED_FRAME),
        ([(HEADER, header(2)), (BODY, b"xxx")], codes.FRAME_ERROR),
        ([(HEADER, header(2)), (BODY, b"x"), (BODY, b"xx")], codes.FRAME_ERROR),
        ([(HEADER, header(200)), (BODY, b"x" * 150), (BODY, b"x" * 51)], codes.FRAME_ERROR),
        ([(HEADER, b"\x00\x3c\x00\x00")], codes.SYNTAX_ERROR),
        ([(HEADER, CONTENT_HEADER.pack(60, 1, 0) + b"\x00\x00")], codes.FRAME_ERROR),
        ([(HEADER, CONTENT_HEADER.pack(10, 0, 0) + b"\x00\x00")], codes.FRAME_ERROR),
    ],
)
def test_unexpected_frames_are_refused(frames: list[tuple[int, bytes]], code: int) -> None:
    content = Content(b"")
    for kind, payload in frames[:-1]:
        assert not content.take(kind, payload, LIMITS)
    with pytest.raises(SyntaxFault) as fault:
        content.take(*frames[-1], LIMITS)
    assert fault.value.code == code


def test_a_message_that_is_too_large_is_read_to_its_end_and_discarded() -> None:
    content = Content(b"")
    assert not content.take(HEADER, header(101), LIMITS)
    assert content.too_large == "message size 101 is larger than configured max size 100"
    assert not content.take(BODY, b"x" * 100, LIMITS)
    assert content.take(BODY, b"x", LIMITS)
    assert content.body == b""


def test_a_header_that_is_too_large_is_refused() -> None:
    content = Content(b"")
    assert content.take(HEADER, header(0, b"\x00\x00" + b"x" * 27), LIMITS)
    assert content.too_large == "header size 41 is larger than configured max size 40"
    fits = Content(b"")
    assert fits.take(HEADER, header(0, b"\x00\x00" + b"x" * 26), LIMITS)
    assert fits.too_large == ""


def test_memory_is_not_allocated_by_the_announced_size() -> None:
    content = Content(b"")
    assert not content.take(HEADER, header(2**64 - 1), LIMITS)
    for _ in range(1000):
        assert not content.take(BODY, b"x" * 1000, LIMITS)
    assert content._buffer is None


@pytest.mark.parametrize("size", [_JOINED, _JOINED + 1])
def test_the_longest_bodies_are_the_same_in_parts_and_in_a_buffer(size: int) -> None:
    limits = EndpointLimits(message_size=size)
    content = Content(b"")
    assert not content.take(HEADER, header(size), limits)
    frames = [bytes((i % 251,)) * 131_064 for i in range(size // 131_064)]
    frames.append(b"x" * (size - 131_064 * len(frames)))
    for frame in frames:
        assert not content.whole
        content.take(BODY, memoryview(frame), limits)
    assert content.whole
    assert content.body == b"".join(frames)


def test_a_body_that_trickles_in_takes_little_more_memory_than_its_octets() -> None:
    content = Content(b"")
    content.take(HEADER, header(100_000), EndpointLimits())
    for _ in range(10_000):
        content.take(BODY, b"x", EndpointLimits())
        assert len(content._parts) <= 1 + content._received // 256
    assert content._received == 10_000


class TestPartialFrame:
    @pytest.mark.parametrize("cuts", [(), (1,), (5,), (6,), (2, 4), (1, 2, 3, 4, 5, 6)])
    def test_a_frame_may_arrive_in_any_number_of_reads(self, cuts: tuple[int, ...]) -> None:
        data = b"hello" + b"\xce" + b"next"
        content = Content(b"")
        content.take(HEADER, header(5), LIMITS)
        partial = PartialFrame(1, content, 5)
        ends = [*cuts, len(data)]
        for begin, end in zip([0, *ends], ends, strict=False):
            at = partial.feed(data[begin:end], 0)
            if at:
                assert data[begin + at :] == b"next"[: len(data) - begin - at]
                break
            assert end <= 5
        assert content.whole
        assert content.body == b"hello"

    def test_a_frame_must_have_its_end(self) -> None:
        content = Content(b"")
        content.take(HEADER, header(5), LIMITS)
        partial = PartialFrame(1, content, 5)
        assert partial.feed(b"..hello", 2) == 0
        with pytest.raises(SyntaxFault) as fault:
            partial.feed(b"\xcd", 0)
        assert fault.value.code == codes.FRAME_ERROR

    def test_an_overlong_frame_is_refused_at_its_head(self) -> None:
        content = Content(b"")
        content.take(HEADER, header(5), LIMITS)
        with pytest.raises(SyntaxFault) as fault:
            PartialFrame(1, content, 6)
        assert fault.value.code == codes.FRAME_ERROR


def test_a_part_of_a_read_does_not_keep_the_rest_of_it_in_memory() -> None:
    read = bytes(1 << 20)
    limits = EndpointLimits(message_size=1 << 20, header_size=40)
    content = Content(b"")
    content.take(HEADER, header(500_000), limits)
    views = sys.getrefcount(read)
    for _ in range(2):
        content.take(BODY, memoryview(read)[:100_000], limits)
    content.leave_read()
    assert sys.getrefcount(read) == views
    content.take(BODY, memoryview(read)[:300_000], limits)
    assert content.body == bytes(500_000)
    most = Content(b"")
    most.take(HEADER, header(1 << 20), limits)
    most.take(BODY, memoryview(read)[:600_000], limits)
    most.leave_read()  # a copy would be in vain
    assert sys.getrefcount(read) > views


def test_a_discarded_message_holds_nothing_though_more_of_its_frame_arrives() -> None:
    content = Content(b"")
    content.take(HEADER, header(100), LIMITS)
    frame = PartialFrame(1, content, 100)
    frame.feed(bytes(60), 0)
    assert content.held_bytes > 60 + 2
    before = content.held_bytes
    content.discard()
    assert content.held_bytes == before - 60
    assert frame.feed(bytes(40) + b"\xce", 0) == 41
    assert content.held_bytes == before - 60
    assert content.body == b""

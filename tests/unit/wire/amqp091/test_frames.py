"""Building and parsing frames."""

from __future__ import annotations

from typing import Any

import pamqp.frame
import pamqp.heartbeat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.wire.amqp091 import codes, frames, spec
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.properties import NO_PROPERTIES, Properties


def test_constants_are_those_of_the_specification() -> None:
    assert frames.PROTOCOL_HEADER == b"AMQP\x00\x00\x09\x01"
    assert bytes.fromhex("08 0000 00000000 ce") == frames.HEARTBEAT
    assert frames.FRAME_HEADER.size == frames.FRAME_HEADER_SIZE
    assert frames.FRAME_HEADER_SIZE + len(frames.FRAME_END) == frames.FRAME_OVERHEAD
    assert frames.CONTENT_HEADER.size == frames.CONTENT_HEADER_SIZE
    assert frames.METHOD_FRAME_HEADER.size == 11
    assert frames.CONTENT_FRAME_HEADER.size == 19


def test_a_method_frame_has_the_octets_of_the_specification() -> None:
    assert frames.method_frame(1, spec.TxSelect()) == bytes.fromhex("01 0001 00000004 005a 000a ce")


def test_an_empty_body_needs_only_a_header() -> None:
    assert frames.content_frames(1, NO_PROPERTIES, b"", 4096) == bytes.fromhex(
        "02 0001 0000000e 003c 0000 0000000000000000 0000 ce"
    )


@pytest.mark.parametrize(
    ("size", "frame_max", "sizes"),
    [
        (0, 4096, []),
        (1, 4096, [1]),
        (4088, 4096, [4088]),
        (4089, 4096, [4088, 1]),
        (8176, 4096, [4088, 4088]),
        (100_000, 0, [100_000]),
    ],
)
def test_bodies_are_split_by_frame_max(size: int, frame_max: int, sizes: list[int]) -> None:
    body = bytes(n % 251 for n in range(size))
    octets = frames.body_frames(3, body, frame_max)
    found, at = [], 0
    while at < len(octets):
        frame = frames.next_frame(octets, at, frame_max)
        assert frame is not None
        kind, channel, payload, at = frame
        assert (kind, channel) == (codes.FRAME_BODY, 3)
        found.append(payload)
    assert [len(payload) for payload in found] == sizes
    assert b"".join(found) == body


def test_a_frame_max_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="no room"):
        frames.body_frames(1, b"x", 8)


@pytest.mark.parametrize("channel", [-1, 65536])
def test_an_invalid_channel_number_is_refused(channel: int) -> None:
    with pytest.raises(ValueError, match="on channel"):
        frames.method_frame(channel, spec.TxSelect())


def test_pamqp_reads_the_same_message() -> None:
    octets = frames.method_frame(9, spec.BasicPublish("e", "k"))
    octets += frames.content_frames(9, Properties(priority=3).encode(), b"body", 4096) + frames.HEARTBEAT
    found: list[tuple[int, Any]] = []
    while octets:
        consumed, channel, frame = pamqp.frame.unmarshal(octets)
        found.append((channel, frame))
        octets = octets[consumed:]
    assert [channel for channel, _ in found] == [9, 9, 9, 0]
    method, header, body, heartbeat = (frame for _, frame in found)
    assert (method.exchange, method.routing_key) == ("e", "k")
    assert (header.body_size, header.properties.priority) == (4, 3)
    assert body.value == b"body"
    assert isinstance(heartbeat, pamqp.heartbeat.Heartbeat)


def test_a_frame_is_returned_with_its_last_octet() -> None:
    octets = b".." + frames.method_frame(7, spec.BasicAck(1))
    for size in range(2, len(octets)):
        assert frames.next_frame(octets[:size], 2, 4096) is None
    kind, channel, payload, after = frames.next_frame(octets + b"next", 2, 4096) or pytest.fail("no frame")
    assert (kind, channel, after) == (codes.FRAME_METHOD, 7, len(octets))
    assert frames.decode_method(payload) == spec.BasicAck(1)


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        ("04 0000 00000000 ce", "unknown frame type 4"),
        ("41 4d51 5000000901", "unknown frame type 65"),
        ("01 0001 00000ff9", "frame of 4097 octets"),
        ("01 0001 ffffffff", "frame of 4294967303 octets"),
        ("01 0001 00000000 00", "ends with 0x00"),
        ("08 0001 00000000 ce", "heartbeat"),
        ("08 0000 00000001 00 ce", "heartbeat"),
    ],
)
def test_malformed_frames_are_a_frame_error(octets: str, text: str) -> None:
    with pytest.raises(SyntaxFault, match=text) as raised:
        frames.next_frame(bytes.fromhex(octets), 0, 4096)
    assert raised.value.code == codes.FRAME_ERROR


def test_a_frame_of_exactly_the_negotiated_size_is_read() -> None:
    octets = frames.frame(codes.FRAME_BODY, 1, bytes(4088))
    assert frames.next_frame(octets, 0, 4096) == (codes.FRAME_BODY, 1, bytes(4088), 4096)
    assert frames.next_frame(frames.frame(codes.FRAME_BODY, 1, bytes(9999)), 0, 0) is not None


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"", codes.SYNTAX_ERROR),
        (b"\0\x3c\0", codes.SYNTAX_ERROR),
        (b"\0\x3c\0\x50", codes.SYNTAX_ERROR),
        (b"\0\x3c\0\x51", codes.NOT_IMPLEMENTED),
        (b"\0\x1e\0\x0a", codes.NOT_IMPLEMENTED),
    ],
)
def test_malformed_methods_are_an_error(payload: bytes, code: int) -> None:
    with pytest.raises(SyntaxFault) as raised:
        frames.decode_method(payload)
    assert raised.value.code == code


def test_content_header_gives_body_size_and_properties() -> None:
    payload = frames.header_frame(1, b"\x10\0\2", 2**63)[7:-1]
    assert frames.decode_header(payload) == (2**63, b"\x10\0\2")


@pytest.mark.parametrize(
    ("octets", "code"),
    [
        ("003c 0000 00000000000000", codes.SYNTAX_ERROR),
        ("003d 0000 0000000000000000 0000", codes.FRAME_ERROR),
        ("003c 0001 0000000000000000 0000", codes.FRAME_ERROR),
    ],
)
def test_malformed_content_headers_are_an_error(octets: str, code: int) -> None:
    with pytest.raises(SyntaxFault) as raised:
        frames.decode_header(bytes.fromhex(octets))
    assert raised.value.code == code


@pytest.mark.parametrize("begin", [b"", frames.PROTOCOL_HEADER])
@pytest.mark.parametrize("cut", range(9))
def test_the_rest_after_the_last_whole_frame_is_kept(begin: bytes, cut: int) -> None:
    whole = begin + frames.method_frame(1, spec.TxSelect()) + frames.HEARTBEAT
    rest = frames.method_frame(1, spec.TxCommit())[:cut]
    assert frames.remainder(whole + rest) == rest


def test_after_a_malformed_frame_nothing_is_parsed() -> None:
    assert frames.remainder(frames.HEARTBEAT[:-1] + b"\x00" + frames.HEARTBEAT) == b""


@given(
    st.integers(0, 65535),
    st.sampled_from([0, 1, 4087, 4088, 4089, 10_000, 131_064]),
    st.sampled_from([0, 4096, 131_072]),
)
def test_content_in_pieces_is_the_same_content(channel: int, size: int, frame_max: int) -> None:
    body = bytes(i % 251 for i in range(size))
    pieces = frames.content_pieces(b"head", channel, NO_PROPERTIES, body, frame_max)
    assert b"".join(pieces) == b"head" + frames.content_frames(channel, NO_PROPERTIES, body, frame_max)

"""Header blocks in one frame or several."""

from __future__ import annotations

import pytest

from escrowmq.wire.http2.blocks import HeaderBlocks
from escrowmq.wire.http2.frames import ErrorCode, Flag, Http2Fault
from escrowmq.wire.http2.headers import encode
from escrowmq.wire.http2.limits import Http2Limits, Patience
from tests.unit.wire.http2.peer import REQUEST

BLOCK = encode(REQUEST)
WHOLE, ENDS = int(Flag.END_HEADERS), int(Flag.END_STREAM)


def blocks(header_block: int = 1000, patience: int = 100) -> HeaderBlocks:
    return HeaderBlocks(Http2Limits(header_block=header_block), Patience(patience))


@pytest.mark.parametrize("cut", range(0, len(BLOCK) + 1, 9))
def test_a_block_in_two_frames_has_the_same_headers(cut: int) -> None:
    made = blocks()
    assert made.begin(ENDS, 1, BLOCK[:cut]) is None
    assert made.stream == 1
    assert made.go_on(WHOLE, BLOCK[cut:]) == REQUEST
    assert made.stream == 0
    assert made.ends_request


def test_padding_and_priority_are_no_part_of_a_block() -> None:
    made = blocks()
    payload = b"\x03" + bytes(5) + BLOCK + bytes(3)
    assert made.begin(WHOLE | Flag.PADDED | Flag.PRIORITY, 1, payload) == REQUEST
    assert not made.ends_request


def fault_of(made: HeaderBlocks, *, flags: int, number: int, payload: bytes) -> ErrorCode:
    with pytest.raises(Http2Fault) as raised:
        made.begin(flags, number, payload)
    return raised.value.code


def test_malformed_frames_end_the_connection() -> None:
    assert fault_of(blocks(), flags=WHOLE, number=2, payload=BLOCK) == ErrorCode.PROTOCOL_ERROR
    assert fault_of(blocks(), flags=WHOLE | Flag.PRIORITY, number=1, payload=bytes(4)) == ErrorCode.FRAME_SIZE_ERROR
    own = (1).to_bytes(4, "big") + b"\x00"
    assert fault_of(blocks(), flags=WHOLE | Flag.PRIORITY, number=1, payload=own) == ErrorCode.PROTOCOL_ERROR
    assert fault_of(blocks(20), flags=WHOLE, number=1, payload=bytes(21)) == ErrorCode.ENHANCE_YOUR_CALM
    with pytest.raises(Http2Fault, match="without HEADERS"):
        blocks().go_on(WHOLE, BLOCK)


def go_on_and_on(made: HeaderBlocks, payload: bytes) -> None:
    for _ in range(200):
        made.go_on(0, payload)


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize("payload", [b"", b"x"])
def test_continuations_without_end_use_up_the_patience(payload: bytes) -> None:
    made = blocks(patience=100)
    made.begin(0, 1, b"")
    with pytest.raises(Http2Fault) as raised:
        go_on_and_on(made, payload)
    assert raised.value.code == ErrorCode.ENHANCE_YOUR_CALM

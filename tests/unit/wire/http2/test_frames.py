"""Frames and their parts have the layout of RFC 9113."""

from __future__ import annotations

import pytest

from escrowmq.wire.http2.frames import (
    ErrorCode,
    Flag,
    FrameType,
    Http2Fault,
    Setting,
    frame,
    go_away,
    read_settings,
    reset,
    settings,
    unpadded,
    window_update,
)


def test_a_frame_has_length_type_flags_and_stream() -> None:
    assert frame(FrameType.DATA, Flag.END_STREAM, 5, b"abc") == b"\x00\x00\x03\x00\x01\x00\x00\x00\x05abc"


def test_settings_are_read_as_they_are_written() -> None:
    data = settings({Setting.INITIAL_WINDOW_SIZE: 70_000, Setting.MAX_CONCURRENT_STREAMS: 5})
    assert read_settings(data[9:]) == [(4, 70_000), (3, 5)]
    with pytest.raises(Http2Fault):
        read_settings(data[9:-1])


def test_frames_of_control() -> None:
    assert reset(3, ErrorCode.CANCEL) == b"\x00\x00\x04\x03\x00\x00\x00\x00\x03\x00\x00\x00\x08"
    assert window_update(0, 9) == b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x09"
    assert go_away(7, ErrorCode.NO_ERROR, "x" * 300)[9:18] == b"\x00\x00\x00\x07\x00\x00\x00\x00x"
    assert len(go_away(7, ErrorCode.NO_ERROR, "x" * 300)) == 9 + 8 + 200


@pytest.mark.parametrize(
    ("flags", "payload", "expected"),
    [(0, b"abc", b"abc"), (8, b"\x00abc", b"abc"), (8, b"\x02abc", b"a"), (8, b"\x03abc", b"")],
)
def test_padding_is_removed(flags: int, payload: bytes, expected: bytes) -> None:
    assert unpadded(flags, payload) == expected


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\x04abc"])
def test_padding_beyond_the_payload_is_a_fault(payload: bytes) -> None:
    with pytest.raises(Http2Fault):
        unpadded(8, payload)

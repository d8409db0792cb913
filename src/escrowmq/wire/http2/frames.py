"""Frames of HTTP/2: their numbers, their head of nine octets, and the faults that end a stream or a connection."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_SIZE: Final = 9
FRAME_SIZE: Final = 16_384
"""The largest payload that a peer may be sent without its consent, and the largest that we accept."""
WINDOW: Final = 65_535
"""The flow-control window of a stream, and of the connection, before any setting or update."""
MOST_WINDOW: Final = (1 << 31) - 1

_LONG: Final = struct.Struct(">I")
_SETTING: Final = struct.Struct(">HI")


class FrameType(IntEnum):
    """Section 6 of the RFC."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Flag:
    """The flags of frames. END_STREAM and ACK are one bit, of different types. They are plain numbers, because the
    operators of an enumeration take a microsecond each, several times a request.
    """

    END_STREAM: Final = 0x1
    ACK: Final = 0x1
    END_HEADERS: Final = 0x4
    PADDED: Final = 0x8
    PRIORITY: Final = 0x20


class ErrorCode(IntEnum):
    """Section 7 of the RFC."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class Setting(IntEnum):
    """Section 6.5.2 of the RFC."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Http2Fault(Exception):  # noqa: N818 - a fault of the peer, which is answered in the protocol
    """A fault that ends one stream, or the connection if `stream` is 0."""

    def __init__(self, code: ErrorCode, text: str, stream: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.stream = stream


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return one frame. The payload must not exceed the size that the peer accepts."""
    return b"%b%c%c%b%b" % (len(payload).to_bytes(3, "big"), kind, flags, _LONG.pack(stream), payload)


def settings(values: dict[Setting, int]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(FrameType.SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Return the pairs of a SETTINGS frame. Raises Http2Fault for a wrong length."""
    if len(payload) % _SETTING.size:
        raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS whose length is no multiple of 6")
    return [(number, value) for number, value in _SETTING.iter_unpack(payload)]


def reset(stream: int, code: ErrorCode) -> bytes:
    """Return an RST_STREAM frame."""
    return frame(FrameType.RST_STREAM, 0, stream, _LONG.pack(code))


def window_update(stream: int, octets: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return frame(FrameType.WINDOW_UPDATE, 0, stream, _LONG.pack(octets))


def go_away(last: int, code: ErrorCode, text: str) -> bytes:
    """Return a GOAWAY frame. `last` is the last stream that was processed."""
    return frame(FrameType.GOAWAY, 0, 0, _LONG.pack(last) + _LONG.pack(code) + text.encode()[:200])


def unpadded(flags: int, payload: bytes) -> bytes:
    """Return the payload without its padding. Raises Http2Fault if the padding is longer than the payload."""
    if not flags & Flag.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "a frame with more padding than payload")
    return payload[1 : len(payload) - payload[0]]

"""Frames of AMQP 1.0 (part 2, section 2.3), and the headers with which its layers begin (section 2.2).

    octets 0..3: size   4: data offset in words of 4 octets   5: type   6..7: channel   then the body

A frame's body begins at the data offset; the octets before it, an extended header, are ignored.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from escrowmq.wire.amqp10.codec.errors import CodecError

AMQP: Final = 0
SASL: Final = 1
"""Types of frames."""

PROTOCOL_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

FRAME_HEADER: Final = struct.Struct(">IBBH")
"""Size, data offset, type, channel."""
FRAME_HEADER_SIZE: Final = 8
MIN_MAX_FRAME_SIZE: Final = 512
"""Every peer accepts frames of this size, in octets."""
MAX_SIZE: Final = 2**32 - 1

Frame: TypeAlias = tuple[int, int, bytes, int, int]
"""(type, channel, data, at, end): the body is data[at:end]."""


class FrameError(CodecError):
    """Octets that are no frame, or a frame that is too large. The connection must be closed."""


def frame(channel: int, body: bytes, payload: bytes = b"", type: int = AMQP) -> bytes:
    """Return a frame with the performative `body` and a transfer's `payload`.

    Raises CodecError if `channel` is not 0 to 65535, or the frame has more than 2**32 - 1 octets.
    """
    return frame_header(channel, len(body) + len(payload), type) + body + payload


def frame_header(channel: int, size: int, type: int = AMQP) -> bytes:
    """Return the eight octets before a body of `size` octets. Raises CodecError as `frame` does."""
    try:
        return FRAME_HEADER.pack(size + FRAME_HEADER_SIZE, 2, type, channel)
    except struct.error:
        raise CodecError(f"a body of {size} octets on channel {channel} fits no frame") from None


EMPTY_FRAME: Final = FRAME_HEADER.pack(FRAME_HEADER_SIZE, 2, AMQP, 0)
"""A frame without a body, which only shows that the peer is alive."""


class FrameReader:
    """Cuts received octets into frames. The body of a frame is not copied, unless the frame arrived in several parts.

    `max_frame_size` (octets) may change between two frames.
    """

    __slots__ = ("_at", "_data", "_parts", "_parts_size", "max_frame_size")

    def __init__(self, max_frame_size: int = MIN_MAX_FRAME_SIZE) -> None:
        self.max_frame_size = max_frame_size
        self._data = b""
        self._at = 0
        self._parts: list[bytes] = []
        self._parts_size = 0

    def feed(self, data: bytes) -> None:
        """Add received octets."""
        self._parts.append(data)
        self._parts_size += len(data)

    def next(self) -> Frame | None:
        """Return the next frame, or None while it is incomplete. The body is empty if `at` equals `end`.

        Raises FrameError if its size, data offset or type is invalid; no later call makes sense then.
        """
        if len(self._data) - self._at < FRAME_HEADER_SIZE and not self._join(FRAME_HEADER_SIZE):
            return None
        size, offset, kind, channel = FRAME_HEADER.unpack_from(self._data, self._at)
        if not FRAME_HEADER_SIZE <= size <= self.max_frame_size:
            raise FrameError(f"a frame has {size} octets; 8 to {self.max_frame_size} are allowed")
        if kind > SASL:
            raise FrameError(f"a frame has the unknown type {kind}")
        if not 8 <= offset * 4 <= size:
            raise FrameError(f"a frame of {size} octets has the data offset {offset}")
        if len(self._data) - self._at < size and not self._join(size):
            return None
        at = self._at
        self._at = end = at + size
        return kind, channel, self._data, at + offset * 4, end

    def take(self, size: int) -> bytes | None:
        """Return the next `size` octets, which are not part of a frame, or None while there are fewer."""
        if len(self._data) - self._at < size and not self._join(size):
            return None
        at = self._at
        self._at = at + size
        return self._data[at : self._at]

    def _join(self, size: int) -> bool:
        """Bring the next `size` octets together; False if they have not arrived."""
        rest = len(self._data) - self._at
        if rest + self._parts_size < size:
            return False
        if rest or len(self._parts) > 1:
            self._data = b"".join((self._data[self._at :], *self._parts))
        else:
            self._data = self._parts[0]
        self._at = 0
        self._parts.clear()
        self._parts_size = 0
        return True

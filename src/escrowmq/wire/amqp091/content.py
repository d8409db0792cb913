"""A message that comes frame by frame, and a body frame that comes read by read."""

from __future__ import annotations

from io import BytesIO
from typing import Final

from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.frames import decode_header
from escrowmq.wire.endpoint import EndpointLimits

_FORESIGHT: Final = 8
"""The first part of a body makes room for so many times its size, which spares the buffer from growing often."""


class Content:
    """Header and body frames that follow a publish (section 4.2.6).

    A message over the limits is read to its end and thrown away: `too_large` then says why.
    """

    __slots__ = ("_buffer", "_expected", "_received", "method", "props", "too_large")

    def __init__(self, method: bytes) -> None:
        self.method = method
        self.props = b""
        self.too_large = ""
        self._expected = -1
        self._received = 0
        # A buffer that grows in place, so that a large body is in memory once. Made with the first octet.
        self._buffer: BytesIO | None = None

    def take(self, kind: int, payload: bytes | memoryview, limits: EndpointLimits) -> bool:
        """One more frame; True when the message is whole. Raises SyntaxFault for one that does not belong here."""
        if kind == codes.FRAME_BODY:
            self.open_body(len(payload))
            self.append(payload)
            return self.whole
        if self._expected >= 0:
            raise SyntaxFault(codes.UNEXPECTED_FRAME, "expected a content body frame, got a second content header")
        self._expected, self.props = decode_header(bytes(payload))
        if self._expected > limits.message_size:
            self.too_large = f"message size {self._expected} is larger than configured max size {limits.message_size}"
        elif len(payload) > limits.header_size:
            self.too_large = f"header size {len(payload)} is larger than configured max size {limits.header_size}"
        return self.whole

    def open_body(self, size: int) -> None:
        """A body frame of `size` octets begins. Raises SyntaxFault if it does not belong here."""
        if self._expected < 0:
            raise SyntaxFault(codes.UNEXPECTED_FRAME, "expected a content header frame, got a body frame")
        if self._received + size > self._expected:
            raise SyntaxFault(codes.FRAME_ERROR, f"body of more than the announced {self._expected} octets")

    def append(self, part: bytes | memoryview) -> None:
        """The next octets of the body."""
        self._received += len(part)
        if not self.too_large:
            if self._buffer is None:
                self._buffer = BytesIO()
                room = min(self._expected, _FORESIGHT * len(part))  # not all that a client merely announces
                if room > len(part):
                    self._buffer.seek(room - 1)
                    self._buffer.write(b"\0")
                    self._buffer.seek(0)
            self._buffer.write(part)

    @property
    def whole(self) -> bool:
        """Header and body are complete."""
        return self._received == self._expected

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"" if self._buffer is None else self._buffer.getvalue()


class PartialFrame:
    """A body frame that is longer than what was read so far. Its octets go into the content as they come."""

    __slots__ = ("_content", "_left", "number")

    def __init__(self, number: int, content: Content, size: int) -> None:
        """A frame of `size` octets of body on channel `number`. Raises SyntaxFault as `Content.open_body`."""
        content.open_body(size)
        self.number = number
        self._content = content
        self._left = size

    def feed(self, data: bytes, at: int) -> int:
        """Take what belongs to the frame from `data[at:]`; where the next frame begins, 0 while this one is not whole.

        Raises SyntaxFault for a frame without its end octet.
        """
        stop = at + self._left
        if stop >= len(data):
            part = memoryview(data)[at:]
            self._left -= len(part)
            self._content.append(part)
            return 0
        self._content.append(memoryview(data)[at:stop])
        self._left = 0
        if data[stop] != codes.FRAME_END:
            raise SyntaxFault(codes.FRAME_ERROR, f"frame ends with 0x{data[stop]:02x}, not with 0xce")
        return stop + 1

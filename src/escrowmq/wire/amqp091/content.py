"""A message that arrives frame by frame, and a body frame that arrives in several reads."""

from __future__ import annotations

from io import BytesIO
from typing import Final

from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.frames import decode_header
from escrowmq.wire.endpoint import EndpointLimits

_JOINED: Final = 8 << 20
"""The longest body whose parts are kept and joined at the end. Joining a longer one would delay other clients."""
_PART_COST: Final = 256
"""The memory that a part takes in addition to its octets. Parts are joined early if they are shorter on average."""
_VIEWED: Final = 32_768
"""Octets from which on a part is kept as a view of the bytes that were received, which stay in memory with it."""
_COST: Final = 256
"""The memory that an incomplete message takes in addition to its octets."""
_FORESIGHT: Final = 8
"""The first part of a longer body reserves this many times its size, so that the buffer seldom has to grow."""


class Content:
    """Header and body frames that follow a publish (section 4.2.6).

    A message over the limits is read to its end and discarded; `too_large` then gives the reason. `counted` tells
    whether the message has been counted among the memory that its channel holds.
    """

    __slots__ = (
        "_buffer",
        "_discarded",
        "_expected",
        "_most",
        "_parts",
        "_received",
        "counted",
        "method",
        "props",
        "too_large",
    )

    def __init__(self, method: bytes, most: int | None = None) -> None:
        """Begin the content of a method, from its payload. `most` limits its octets, in addition to the configured
        limit of messages.
        """
        self.method = method
        self._most = most
        self.props = b""
        self.too_large = ""
        self.counted = False
        self._discarded = False
        self._expected = -1
        self._received = 0
        self._parts: list[bytes | memoryview] = []
        # For a body of more than `_JOINED` octets: a buffer that grows in place, so that the body is in memory only
        # once. It is created with the first octet.
        self._buffer: BytesIO | None = None

    def take(self, kind: int, payload: bytes | memoryview, limits: EndpointLimits) -> bool:
        """Take one more frame. Returns True when the message is complete. Raises SyntaxFault for a frame out of
        order.
        """
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
        elif self._most is not None and self._expected > self._most:
            self.too_large = f"content of {self._expected} octets, at most {self._most} are possible"
        return self.whole

    def open_body(self, size: int) -> None:
        """Begin a body frame of `size` octets. Raises SyntaxFault for a frame out of order or an overlong body."""
        if self._expected < 0:
            raise SyntaxFault(codes.UNEXPECTED_FRAME, "expected a content header frame, got a body frame")
        if self._received + size > self._expected:
            raise SyntaxFault(codes.FRAME_ERROR, f"body of more than the announced {self._expected} octets")

    def append(self, part: bytes | memoryview) -> None:
        """Add the next octets of the body."""
        self._received += len(part)
        if self.too_large or self._discarded:
            return
        if self._expected > _JOINED:
            self._write(part)
            return
        parts = self._parts
        parts.append(part if len(part) >= _VIEWED else bytes(part))
        if len(parts) * _PART_COST > self._received:
            self._parts = [b"".join(parts)]

    def _write(self, part: bytes | memoryview) -> None:
        if self._buffer is None:
            self._buffer = BytesIO()
            # bounded, because a client may announce more than it sends
            room = min(self._expected, _FORESIGHT * len(part))
            if room > len(part):
                self._buffer.seek(room - 1)
                self._buffer.write(b"\0")
                self._buffer.seek(0)
        self._buffer.write(part)

    @property
    def held_bytes(self) -> int:
        """The memory of what has arrived, about."""
        kept = 0 if self.too_large or self._discarded else self._received
        return _COST + len(self.method) + len(self.props) + kept

    def leave_read(self) -> None:
        """Copy what came with the last read, if that read was mostly something else, whose memory must not stay."""
        last = self._parts[-1] if self._parts else b""
        if not isinstance(last, memoryview):
            return
        first = len(self._parts) - 1
        while first and getattr(self._parts[first - 1], "obj", None) is last.obj:
            first -= 1
        parts = self._parts[first:]
        if 2 * sum(map(len, parts)) < len(last.obj):  # type: ignore[arg-type]  # a view of the bytes that were read
            self._parts[first:] = map(bytes, parts)

    def discard(self) -> None:
        """Keep nothing of the message, because its channel is closed. The rest of a body frame may still arrive."""
        self._discarded = True
        self._parts.clear()
        self._buffer = None

    @property
    def whole(self) -> bool:
        """Whether header and body are complete."""
        return self._received == self._expected

    @property
    def body(self) -> bytes:
        """The complete body."""
        return b"".join(self._parts) if self._buffer is None else self._buffer.getvalue()


class PartialFrame:
    """A body frame of which only a part was read so far. Its octets go into the content as they arrive."""

    __slots__ = ("_content", "_left", "number")

    def __init__(self, number: int, content: Content, size: int) -> None:
        """A frame of `size` octets of body on channel `number`. Raises the same SyntaxFault as `Content.open_body`."""
        content.open_body(size)
        self.number = number
        self._content = content
        self._left = size

    def feed(self, data: bytes, at: int) -> int:
        """Take the octets of the frame from `data[at:]`. Returns where the next frame begins, or 0 while this one is
        incomplete.

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

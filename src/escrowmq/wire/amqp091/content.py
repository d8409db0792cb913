"""A message that comes frame by frame."""

from __future__ import annotations

from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.errors import SyntaxFault
from escrowmq.wire.amqp091.frames import decode_header
from escrowmq.wire.endpoint import EndpointLimits


class Content:
    """Header and body frames that follow a publish (section 4.2.6).

    A message over the limits is read to its end and thrown away: `too_large` then says why.
    """

    __slots__ = ("_expected", "_parts", "_received", "method", "props", "too_large")

    def __init__(self, method: bytes) -> None:
        self.method = method
        self.props = b""
        self.too_large = ""
        self._expected = -1
        self._received = 0
        self._parts: list[bytes] = []

    def take(self, kind: int, payload: bytes, limits: EndpointLimits) -> bool:
        """One more frame; True when the message is whole. Raises SyntaxFault for one that does not belong here."""
        if kind == codes.FRAME_HEADER:
            if self._expected >= 0:
                raise SyntaxFault(codes.UNEXPECTED_FRAME, "expected a content body frame, got a second content header")
            self._expected, self.props = decode_header(payload)
            if self._expected > limits.message_size:
                self.too_large = (
                    f"message size {self._expected} is larger than configured max size {limits.message_size}"
                )
            elif len(payload) > limits.header_size:
                self.too_large = f"header size {len(payload)} is larger than configured max size {limits.header_size}"
        else:
            if self._expected < 0:
                raise SyntaxFault(codes.UNEXPECTED_FRAME, "expected a content header frame, got a body frame")
            self._received += len(payload)
            if self._received > self._expected:
                raise SyntaxFault(codes.FRAME_ERROR, f"body of more than the announced {self._expected} octets")
            if not self.too_large:
                self._parts.append(payload)
        return self._received == self._expected

    @property
    def body(self) -> bytes:
        """The whole body."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

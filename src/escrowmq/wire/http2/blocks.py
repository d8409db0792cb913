"""Header blocks: one HEADERS frame, and the CONTINUATION frames that complete it (RFC 9113, section 4.3)."""

from __future__ import annotations

from typing import Final

from escrowmq.wire.http2 import limits
from escrowmq.wire.http2.frames import MOST_WINDOW, ErrorCode, Flag, Http2Fault, unpadded
from escrowmq.wire.http2.headers import HeaderReader, Headers
from escrowmq.wire.http2.limits import Http2Limits, Patience

_PRIORITY_SIZE: Final = 5


class HeaderBlocks:
    """The header blocks of one connection, one after the other."""

    __slots__ = ("_flags", "_limit", "_parts", "_patience", "_reader", "_size", "stream")

    def __init__(self, http2_limits: Http2Limits, patience: Patience) -> None:
        self._patience = patience
        self._limit = http2_limits.header_block
        self._reader = HeaderReader(http2_limits.header_list)
        self._parts: list[bytes] = []
        self._size = self._flags = 0
        self.stream = 0
        """The stream whose block is incomplete, or 0."""

    @property
    def ends_request(self) -> bool:
        """Whether the latest block has ended its request."""
        return bool(self._flags & Flag.END_STREAM)

    def begin(self, flags: int, number: int, payload: bytes) -> Headers | None:
        """Take a HEADERS frame. Return the headers if the block is complete. Raises Http2Fault."""
        if not number & 1:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, f"HEADERS for stream {number}")
        payload = unpadded(flags, payload)
        if flags & Flag.PRIORITY:
            if len(payload) < _PRIORITY_SIZE:
                raise Http2Fault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS too short for its priority")
            if int.from_bytes(payload[:4], "big") & MOST_WINDOW == number:
                raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "a stream that depends on itself")
            payload = payload[_PRIORITY_SIZE:]
        self._flags, self.stream = flags, number
        return self._extended(flags, payload)

    def go_on(self, flags: int, payload: bytes) -> Headers | None:
        """Take a CONTINUATION frame. Return the headers if the block is complete. Raises Http2Fault."""
        if not self.stream:
            raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._patience.spend(limits.SMALL if payload else limits.RESET)
        return self._extended(flags, payload)

    def _extended(self, flags: int, payload: bytes) -> Headers | None:
        self._parts.append(payload)
        self._size += len(payload)
        if self._size > self._limit:
            raise Http2Fault(ErrorCode.ENHANCE_YOUR_CALM, "a header block beyond the limit")
        if not flags & Flag.END_HEADERS:
            return None
        block = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size, self.stream = [], 0, 0
        return self._reader.decode(block)  # in any case, since the tables of both sides must stay equal

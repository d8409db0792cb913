"""The length that a request announces for its body (RFC 9113, section 8.1.1)."""

from __future__ import annotations

from typing import Final

from escrowmq.wire.http2.frames import ErrorCode, Http2Fault
from escrowmq.wire.http2.headers import Headers
from escrowmq.wire.http2.stream import Stream

_MOST_DIGITS: Final = 18


def announced_length(headers: Headers, stream: int) -> int | None:
    """Return the length, or None if the request has none. Raises Http2Fault for a malformed one."""
    found: int | None = None
    for name, value in headers:
        if name == b"content-length":
            if not value.isdigit() or len(value) > _MOST_DIGITS or found not in {None, int(value)}:
                raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "a malformed content-length", stream)
            found = int(value)
    return found


def take_announced(stream: Stream, octets: int, *, ends: bool) -> None:
    """Note that `octets` of a body have arrived. Raises Http2Fault for more or, at the end, fewer than announced."""
    if stream.announced is None:
        return
    stream.announced -= octets
    if stream.announced < 0 or (ends and stream.announced):
        raise Http2Fault(ErrorCode.PROTOCOL_ERROR, "a body of another length than announced", stream.number)

"""Header blocks: those of requests are decoded and checked, those of responses are encoded without a state.

A response may wait for the log while a later one overtakes it. Header blocks of responses therefore use no dynamic
table, so that they do not depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from hpack import Decoder, HPACKError, OversizedHeaderListError
from hpack.hpack import encode_integer

from escrowmq.wire.http2.frames import ErrorCode, Http2Fault

Headers: TypeAlias = list[tuple[bytes, bytes]]

STATUS_200: Final = b"\x88"
"""`:status: 200` is entry 8 of the static table."""
_PSEUDO: Final = frozenset((b":method", b":scheme", b":path", b":authority"))
_NEEDED: Final = frozenset((b":method", b":scheme", b":path"))
_FORBIDDEN: Final = frozenset((b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"))
_SEVEN: Final = 7


class HeaderReader:
    """Decodes the header blocks of one connection, in order."""

    __slots__ = ("_decoder",)

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` bounds a decoded list, counted as the RFC does: each header costs 32 octets more."""
        self._decoder = Decoder(max_header_list_size=limit_bytes)

    def decode(self, block: bytes) -> Headers:
        """Return the headers of a block.

        Raises:     Http2Fault: the block is malformed or its list too long. Either ends the connection, because the
                    tables of both sides are no longer equal.
        """
        try:
            return [(bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)]
        except OversizedHeaderListError:
            raise Http2Fault(ErrorCode.ENHANCE_YOUR_CALM, "a list of headers beyond the limit") from None
        except HPACKError as error:
            raise Http2Fault(ErrorCode.COMPRESSION_ERROR, f"a malformed header block: {error}") from None


def check_request(headers: Headers, stream: int) -> None:
    """Raises Http2Fault for `stream` unless the headers begin a request (RFC 9113, section 8.3.1)."""
    seen: set[bytes] = set()
    regular = False
    for name, value in headers:
        if name.startswith(b":"):
            if regular or name in seen or name not in _PSEUDO:
                raise _malformed(stream, f"pseudo-header {name!r} out of place")
            seen.add(name)
        else:
            regular = True
            _check_regular(name, value, stream)
    if not seen >= _NEEDED or not all(value for name, value in headers if name == b":path"):
        raise _malformed(stream, "a request without method, scheme or path")


def check_trailers(headers: Headers, stream: int) -> None:
    """Raises Http2Fault for `stream` unless the headers can end a request."""
    for name, value in headers:
        if name.startswith(b":"):
            raise _malformed(stream, "a pseudo-header in trailers")
        _check_regular(name, value, stream)


def _check_regular(name: bytes, value: bytes, stream: int) -> None:
    if not name or name != name.lower() or name in _FORBIDDEN or (name == b"te" and value != b"trailers"):
        raise _malformed(stream, f"header {name[:50]!r} is not allowed")


def _malformed(stream: int, text: str) -> Http2Fault:
    return Http2Fault(ErrorCode.PROTOCOL_ERROR, text, stream)


def encode(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a header block of literals that are not added to the table."""
    return b"".join(b"\x00" + _string(name) + _string(value) for name, value in headers)


def _string(octets: bytes) -> bytes:
    return bytes(encode_integer(len(octets), _SEVEN)) + octets

"""Header blocks: those of requests are decoded and checked, those of responses are encoded without a state.

A response may wait for the log while a later one overtakes it. Header blocks of responses therefore use no dynamic
table, so that they do not depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from hpack.hpack import encode_integer

from escrowmq.wire.http2.frames import ErrorCode, Http2Fault
from escrowmq.wire.http2.hpack import HeaderBlockError, HeaderDecoder, HeaderListTooLarge

Headers: TypeAlias = list[tuple[bytes, bytes]]

STATUS_200: Final = b"\x88"
"""`:status: 200` is entry 8 of the static table."""
_PSEUDO: Final = frozenset((b":method", b":scheme", b":path", b":authority"))
_NEEDED: Final = frozenset((b":method", b":scheme", b":path"))
_FORBIDDEN: Final = frozenset((b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"))
_SEVEN: Final = 7
_CACHED: Final = 256
_CACHED_BYTES: Final = 1024


class HeaderReader:
    """Decodes the header blocks of one connection, in order."""

    __slots__ = ("_decoder",)

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes` bounds a decoded list, counted as the RFC does: each header costs 32 octets more."""
        self._decoder = HeaderDecoder(limit_bytes)

    def decode(self, block: bytes) -> Headers:
        """Return the headers of a block.

        Raises:     Http2Fault: the block is malformed or its list too long. Either ends the connection, because the
                    tables of both sides are no longer equal.
        """
        try:
            return self._decoder.decode(block)
        except HeaderListTooLarge:
            raise Http2Fault(ErrorCode.ENHANCE_YOUR_CALM, "a list of headers beyond the limit") from None
        except HeaderBlockError as error:
            raise Http2Fault(ErrorCode.COMPRESSION_ERROR, f"a malformed header block: {error}") from None


def check_request(headers: Headers, stream: int) -> None:
    """Raises Http2Fault for `stream` unless the headers begin a request (RFC 9113, section 8.3.1)."""
    names = tuple([name for name, _ in headers])
    fault = _fault_of_names(names) if sum(map(len, names)) <= _CACHED_BYTES else _names_fault(names)
    if fault:
        raise _malformed(stream, fault)
    if _fault_of_values(headers):
        raise _malformed(stream, "a header with a value that is not allowed")


def _names_fault(names: tuple[bytes, ...]) -> str:
    """Return the reason why a request cannot have headers of these names in this order; empty if it can."""
    seen: set[bytes] = set()
    regular = False
    for name in names:
        if name.startswith(b":"):
            if regular or name in seen or name not in _PSEUDO:
                return f"pseudo-header {name!r} out of place"
            seen.add(name)
        else:
            regular = True
            if _is_forbidden(name):
                return f"header {name[:50]!r} is not allowed"
    return "" if seen >= _NEEDED else "a request without method, scheme or path"


_fault_of_names = lru_cache(_CACHED)(_names_fault)  # clients send the same names again and again


def _fault_of_values(headers: Headers) -> bool:
    return any((name == b":path" and not value) or (name == b"te" and value != b"trailers") for name, value in headers)


def check_trailers(headers: Headers, stream: int) -> None:
    """Raises Http2Fault for `stream` unless the headers can end a request."""
    for name, _ in headers:
        if name.startswith(b":"):
            raise _malformed(stream, "a pseudo-header in trailers")
        if _is_forbidden(name):
            raise _malformed(stream, f"header {name[:50]!r} is not allowed")
    if _fault_of_values(headers):
        raise _malformed(stream, "a header with a value that is not allowed")


def _is_forbidden(name: bytes) -> bool:
    return not name or name != name.lower() or name in _FORBIDDEN


def _malformed(stream: int, text: str) -> Http2Fault:
    return Http2Fault(ErrorCode.PROTOCOL_ERROR, text, stream)


def encode(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a header block of literals that are not added to the table."""
    return b"".join(b"\x00" + _string(name) + _string(value) for name, value in headers)


def _string(octets: bytes) -> bytes:
    return bytes(encode_integer(len(octets), _SEVEN)) + octets

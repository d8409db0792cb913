"""Messages within the DATA of a call: one octet for compression, four for the length, and the message."""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from typing import Final

from escrowmq.wire.rocketmq.grpc.status import GrpcFault, GrpcStatus

LARGEST: Final = (4 << 20) + (128 << 10)
"""Octets of a request: a body of 4 MiB with its properties."""
_PREFIX: Final = struct.Struct(">BI")
_GZIP: Final = 31  # zlib's number for its gzip format
_UNITS: Final = {"H": 3_600_000.0, "M": 60_000.0, "S": 1000.0, "m": 1.0, "u": 1e-3, "n": 1e-6}
_DIGITS: Final = 8


def prefixed(message: bytes) -> bytes:
    """Return a message with its prefix, not compressed."""
    return _PREFIX.pack(0, len(message)) + message


class MessageReader:
    """Cuts the DATA of one call into messages."""

    __slots__ = ("_gzip", "_held")

    def __init__(self, encoding: bytes) -> None:
        """`encoding` is the call's `grpc-encoding`. Raises GrpcFault if it is unknown."""
        if encoding not in {b"", b"identity", b"gzip"}:
            raise GrpcFault(GrpcStatus.UNIMPLEMENTED, "compressed by another method than gzip (grpc-encoding)")
        self._gzip = encoding == b"gzip"
        self._held = bytearray()

    @property
    def size(self) -> int:
        """The number of octets that are kept."""
        return len(self._held)

    def feed(self, data: bytes | bytearray) -> list[bytes]:
        """Return the messages that `data` completes. Raises GrpcFault for one that is malformed or too long."""
        held, at = self._held, 0
        if held:
            held += data
            data = held
        found: list[bytes] = []
        while len(data) - at >= _PREFIX.size:
            compressed, length = _PREFIX.unpack_from(data, at)
            if length > LARGEST:
                raise GrpcFault(GrpcStatus.RESOURCE_EXHAUSTED, f"a message of {length} octets; at most {LARGEST}")
            start, end = at + _PREFIX.size, at + _PREFIX.size + length
            if len(data) < end:
                break
            found.append(self._plain(compressed, bytes(data[start:end])))
            at = end
        if held:
            del held[:at]
        elif at < len(data):
            held += data[at:]
        return found

    def clear(self) -> None:
        """Forget what is incomplete."""
        self._held = bytearray()

    def _plain(self, compressed: int, message: bytes) -> bytes:
        if not compressed:
            return message
        if compressed != 1 or not self._gzip:
            raise GrpcFault(GrpcStatus.INTERNAL, "a compressed message in a call without grpc-encoding")
        return gunzipped(message)


def gunzipped(data: bytes) -> bytes:
    """Return the contents of `data` in the gzip format. Raises GrpcFault if it is malformed or too large."""
    inflater = zlib.decompressobj(_GZIP)
    try:
        message = inflater.decompress(data, LARGEST + 1)
    except zlib.error:
        raise GrpcFault(GrpcStatus.INTERNAL, "a malformed compressed message") from None
    if len(message) > LARGEST or not inflater.eof:
        raise GrpcFault(GrpcStatus.RESOURCE_EXHAUSTED, f"a compressed message of more than {LARGEST} octets")
    return message


@lru_cache(1024)
def timeout_ms(value: bytes) -> int | None:
    """Return the milliseconds in a `grpc-timeout`, rounded up to at least 1; None if there is none.

    Raises:     GrpcFault: the value is malformed.
    """
    if not value:
        return None
    text = value.decode("latin-1")
    digits, unit = text[:-1], _UNITS.get(text[-1])
    if unit is None or not digits.isdecimal() or not digits.isascii() or len(digits) > _DIGITS:
        raise GrpcFault(GrpcStatus.INVALID_ARGUMENT, f"malformed grpc-timeout {text[:20]!r}")
    return max(1, int(int(digits) * unit))

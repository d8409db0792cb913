"""The status with which a call ends: in trailers that are built once for each status without a text."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Final

from escrowmq.wire.http2.headers import STATUS_200, encode


class GrpcStatus(IntEnum):
    """The status codes of gRPC. Errors of RocketMQ are in the responses; these concern the call itself."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class GrpcFault(Exception):  # noqa: N818 - a fault of the client, which gets the text
    """A fault that ends a call."""

    def __init__(self, status: GrpcStatus, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


HEAD: Final = STATUS_200 + encode([(b"content-type", b"application/grpc")])
"""The header block with which a response begins."""
_LONGEST: Final = 1000


@lru_cache(64)
def trailers(status: GrpcStatus) -> bytes:
    """Return the header block that ends a call."""
    return encode([(b"grpc-status", b"%d" % status)])


def failure(fault: GrpcFault) -> bytes:
    """Return the header block that ends a call with an explanation."""
    return encode([(b"grpc-status", b"%d" % fault.status), (b"grpc-message", escaped(fault.text))])


def escaped(text: str) -> bytes:
    """Return `text` as the value of `grpc-message`, with everything but printable ASCII in percent-encoding."""
    data = text.encode("utf-8", "replace")[:_LONGEST]
    return b"".join(b"%c" % octet if 0x20 <= octet < 0x7F and octet != 0x25 else b"%%%02X" % octet for octet in data)

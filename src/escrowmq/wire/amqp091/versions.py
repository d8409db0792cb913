"""AMQP 0-9 and 0-8, which are taken as RabbitMQ takes them: as AMQP 0-9-1 with few differences.

A client of 0-9 is served as one of 0-9-1. For 0-8, `connection.close` has another number, `basic.consume` has no
arguments, `channel.open-ok` is empty, and there is `access.request`, which always gets a ticket: permissions decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.wire.amqp091.frames import PROTOCOL_HEADER
from escrowmq.wire.amqp091.spec import BasicConsume, ChannelOpenOk, ConnectionClose, ConnectionCloseOk

if TYPE_CHECKING:
    from escrowmq.wire.amqp091.method import Method


class Version(NamedTuple):
    """A version as `connection.start` names it. `is_older` is true for 0-8."""

    major: int
    minor: int
    is_older: bool = False


CURRENT: Final = Version(0, 9)
VERSIONS: Final[Mapping[bytes, Version]] = MappingProxyType(
    {
        PROTOCOL_HEADER: CURRENT,
        b"AMQP\x01\x01\x00\x09": CURRENT,
        b"AMQP\x01\x01\x08\x00": Version(8, 0, is_older=True),
        b"AMQP\x01\x01\x09\x01": Version(8, 0, is_older=True),  # the header in the published document of 0-8
    }
)
"""Versions by protocol header."""
ACCESS_REQUEST: Final = b"\x00\x1e\x00\x0a"
"""The first bytes of access.request."""
ACCESS_REQUEST_OK: Final = b"\x00\x1e\x00\x0b\x00\x01"
"""access.request-ok with ticket 1."""

_CONSUME: Final = BasicConsume.INDEX.to_bytes(4, "big")
_NO_ARGUMENTS: Final = bytes(4)
_OLD: Final = {
    ConnectionClose.INDEX.to_bytes(4, "big"): b"\x00\x0a\x00\x3c",
    ConnectionCloseOk.INDEX.to_bytes(4, "big"): b"\x00\x0a\x00\x3d",
}
_NEW: Final = {old: new for new, old in _OLD.items()}


def from_older(payload: bytes) -> bytes:
    """Return a method of a client of 0-8 in the form of 0-9-1."""
    start = payload[:4]
    if start == _CONSUME:
        return payload + _NO_ARGUMENTS
    return _NEW[start] + payload[4:] if start in _NEW else payload


def to_older(method: Method) -> bytes:
    """Return the payload of a method for a client of 0-8."""
    payload = method.encode()
    if method.INDEX == ChannelOpenOk.INDEX:
        return payload[:4]
    return _OLD.get(payload[:4], payload[:4]) + payload[4:]

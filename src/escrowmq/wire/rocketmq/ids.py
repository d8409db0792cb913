"""Message ids that name a place in the broker: the address of the broker and a number of 64 bits.

Clients read the number out of the id, and send it back as the offset in the commit log. It stands for a half message,
or for a position of a stream:

    bit   62     whether it is the number of a half message
    bits  38–61  number of the stream
    bits  0–37   position in the stream, or the number of the half message
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

POSITION_BITS: Final = 38
STREAM_BITS: Final = 24
_HALF: Final = 1 << (POSITION_BITS + STREAM_BITS)
_POSITIONS: Final = (1 << POSITION_BITS) - 1
_BEHIND_HOST: Final = struct.Struct(">iq")
_LENGTHS: Final = (32, 56)
"""Digits of an id with an address of IPv4, and with one of IPv6."""


class StreamPlace(NamedTuple):
    """A place in a stream. `stream` is the number of the queue, and positions begin at 1."""

    stream: int
    position: int


def half_offset(number: int) -> int:
    """Return the offset that stands for half message `number`."""
    return _HALF | number


def place_offset(place: StreamPlace) -> int:
    """Return the offset that stands for a place, or 0 if it is beyond what 63 bits can name."""
    if place.stream >> STREAM_BITS or place.position > _POSITIONS:
        return 0
    return place.stream << POSITION_BITS | place.position


def half_of(offset: int) -> int | None:
    """Return the number of the half message for which `offset` stands; None if it stands for another thing."""
    return offset & ~_HALF if 0 <= offset < 2 * _HALF and offset & _HALF else None


def place_of(offset: int) -> StreamPlace | None:
    """Return the place for which `offset` stands; None if it stands for another thing."""
    if not 0 < offset < _HALF:
        return None
    return StreamPlace(offset >> POSITION_BITS, offset & _POSITIONS)


def message_id(host: bytes, port: int, offset: int) -> str:
    """Return the id for an offset in the broker with this address, of 4 or 16 octets."""
    return (host + _BEHIND_HOST.pack(port, offset)).hex().upper()


def offset_of(text: str) -> int | None:
    """Return the offset in an id, or None if it is none."""
    if len(text) not in _LENGTHS or not text.isascii():
        return None
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return None
    return int(_BEHIND_HOST.unpack_from(data, len(data) - _BEHIND_HOST.size)[1]) if len(data) * 2 == len(text) else None

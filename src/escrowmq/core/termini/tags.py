"""Delivery tags of outgoing links. They are made of what the broker knows anyway, so no table of tags is needed."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

TAG: Final = struct.Struct(">IQI")
"""Queue id, position, and the low 32 bits of the delivery's number. A protocol may pack whole runs with it."""

MASK: Final = 0xFFFFFFFF


class TagParts(NamedTuple):
    """The parts of a delivery tag. `number` is the delivery's number at its terminus, modulo 2**32."""

    queue: int
    position: int
    number: int


def delivery_tag(queue: int, position: int, number: int) -> bytes:
    """Return the tag of a delivery. A message that is delivered again after a return has another number, so its tag
    differs.
    """
    return TAG.pack(queue, position, number & MASK)


def parse_tag(tag: bytes) -> TagParts | None:
    """Return the parts of a tag, or None if this broker cannot have made it."""
    return TagParts(*TAG.unpack(tag)) if len(tag) == TAG.size else None

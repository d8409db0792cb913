"""Where the routing key, the property list and the body are in stored contents (wire.amqp091: packed and keyed)."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from escrowmq.columnar.octets import Octets, Places
from escrowmq.wire.amqp091.keyed import BETWEEN
from escrowmq.wire.amqp091.stored import LEAST_HEADER, SMALLEST

_FIXED: Final = 16  # octets of packed content before its property list
_BETWEEN: Final = 8  # octets between property list and body
_SIZE: Final = 4


class Extent(NamedTuple):
    """Strings in octets, one for each row."""

    starts: Places
    ends: Places


class ContentParts(NamedTuple):
    """The parts of contents, as `stored_parts` finds them in one. Those of malformed content are empty, apart from the
    body; that of a list without flags is malformed as a list, so all its properties are absent.
    """

    routing_key: Extent
    properties: Extent
    body: Extent


def parts(octets: Octets, contents: Extent, *, keyed: bool) -> ContentParts:
    """Find the parts of packed or `keyed` contents."""
    starts, ends = contents
    if octets.size < SMALLEST:
        empty = Extent(starts, starts)
        return ContentParts(empty, empty, contents)
    key_end = packed = starts
    if keyed:
        some = ends > starts
        key_end = starts + 1 + octets.u8(np.where(some, starts, 0))
        packed = key_end + len(BETWEEN)
    fits = packed + SMALLEST <= ends
    size = octets.u32(np.where(fits, packed, 0))
    list_end = packed + _SIZE + size
    fits &= (size >= LEAST_HEADER) & (list_end + _BETWEEN + 1 <= ends)
    body_size = octets.u32(np.where(fits, list_end + _SIZE, 0))
    fits &= list_end + _BETWEEN + body_size + 1 == ends
    if fits.all():
        key = Extent(starts + 1, key_end) if keyed else Extent(starts, starts)
        return ContentParts(key, Extent(packed + _FIXED, list_end), Extent(list_end + _BETWEEN, ends - 1))
    key = (
        Extent(np.where(fits, starts + 1, starts), np.where(fits, key_end, starts)) if keyed else Extent(starts, starts)
    )
    properties = Extent(np.where(fits, packed + _FIXED, starts), np.where(fits, list_end, starts))
    body = Extent(np.where(fits, list_end + _BETWEEN, starts), np.where(fits, ends - 1, ends))
    return ContentParts(key, properties, body)

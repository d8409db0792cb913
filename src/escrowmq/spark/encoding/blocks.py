"""Blocks of messages for the broker, from the columns of rows (docs/internals/bulk.md).

The layout of a content is in docs/internals/records.md: packed content, with the routing key before it if each message
has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.client.blocks import CONTENT_HEADER_SIZE, FRAME_OVERHEAD, KEYED, LARGE, PACKED, build
from escrowmq.spark.encoding.layouts import combined
from escrowmq.spark.encoding.octets import Numbers, binary, integers, is_text, joined, lengths, offsets
from escrowmq.spark.encoding.property_lists import property_lists

BLOCK_BYTES: Final = 256 * 1024
BLOCK_MESSAGES: Final = 2048
"""The limits of a block, in bytes of contents and in messages. The broker reads one while the sink encodes the next."""
ROWS: Final = 16_384
"""Rows that are encoded together, so that their contents fit into an Arrow array."""
_CLASS: Final = bytes.fromhex("003c0000")  # class and weight of a content header
_BETWEEN: Final = bytes.fromhex("ce020001")  # from the routing key to the content header frame on channel 1
_BODY_FRAME: Final = bytes.fromhex("ce030001")
_END: Final = b"\xce"
_MOST_PIECES: Final = 16


class Stretch(NamedTuple):
    """The rows from `begin` to `end`: as a block, or None if they are to be published one by one."""

    begin: int
    end: int
    block: bytes | None


class EncodedRows(NamedTuple):
    """The contents of rows. Those of `odd` rows are not valid. Rows of one layout have equal numbers."""

    octets: pa.Array
    odd: Numbers
    layouts: Numbers | None


def contents(
    bodies: pa.Array,
    properties: pa.Array | None,
    headers: pa.Array | None,
    keys: pa.Array | None = None,
    frame_max: int = 0,
) -> EncodedRows | None:
    """Encode rows as packed contents, or as keyed ones if `keys` are given. None if a text is not UTF-8.

    Odd rows are those without a body, with a large one, and those whose values do not fit their fields.

    Args:
        bodies: the bodies, as strings or binaries.
        properties: a struct with any properties, or None.
        headers: maps from string to string, or None.
        keys: routing keys of at most 255 octets.
        frame_max: the limit of a frame in octets, 0 for none.
    """
    rows = len(bodies)
    lists = property_lists(rows, properties, headers)
    if lists is None or (keys is not None and not is_text(keys)):
        return None
    room = frame_max - FRAME_OVERHEAD if frame_max else LARGE
    bodies = binary(bodies)
    sizes, list_sizes = lengths(bodies), lengths(lists.octets)
    odd = (
        lists.odd
        | (sizes < 1)
        | (sizes >= min(LARGE, room + 1))
        | (list_sizes > min(LARGE, room) - CONTENT_HEADER_SIZE)
    )
    if odd.any():
        bodies = pc.if_else(pa.array(odd), pa.scalar(b"", pa.binary()), bodies)
    shape = lists.shape
    head: list[pa.Array | bytes] = []
    if keys is not None:
        names = binary(keys)
        key_sizes = lengths(names)
        head, shape = [integers(key_sizes, "u1"), names, _BETWEEN], [key_sizes, *shape]
    octets = joined(
        *head,
        integers(list_sizes + CONTENT_HEADER_SIZE, ">u4"),
        _CLASS,
        integers(sizes, ">u8"),
        lists.octets,
        _BODY_FRAME,
        integers(sizes, ">u4"),
        bodies,
        _END,
    )
    return EncodedRows(octets, odd, combined(shape))


def pieces(found: EncodedRows | None, rows: int, *, keyed: bool) -> Iterator[Stretch]:
    """Divide rows, in their order, into blocks and rows that are to be published one by one."""
    if found is None or found.octets.type != pa.binary():
        yield Stretch(0, rows, None)
        return
    edges = [0, *(np.flatnonzero(np.diff(found.odd)) + 1).tolist(), rows]
    if len(edges) > _MOST_PIECES:
        yield Stretch(0, rows, None)
        return
    bounds = offsets(found.octets)
    for begin, end in pairwise(edges):
        if found.odd[begin]:
            yield Stretch(begin, end, None)
            continue
        while begin < end:
            stop = int(np.searchsorted(bounds, bounds[begin] + BLOCK_BYTES, "right")) - 1
            stop = min(max(stop, begin + 1), begin + BLOCK_MESSAGES, end)
            yield Stretch(begin, stop, _block(found, bounds[begin : stop + 1], begin, stop, keyed=keyed))
            begin = stop


def _block(found: EncodedRows, bounds: Numbers, begin: int, end: int, *, keyed: bool) -> bytes:
    if found.layouts is None:
        order, ends = np.arange(end - begin), np.array([end - begin])
    else:
        numbers = found.layouts[begin:end].astype(np.uint16)
        order = np.argsort(numbers, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(numbers[order])) + 1, end - begin)
    data = memoryview(found.octets.buffers()[2])[int(bounds[0]) : int(bounds[-1])]
    return build(
        KEYED if keyed else PACKED,
        (bounds - bounds[0]).astype("<u4").tobytes(),
        ends.astype("<u4").tobytes(),
        order.astype("<u4").tobytes(),
        data,
    )

"""The body of `escrow.publish`: messages whose contents the broker stores as they lie in it (docs/internals/bulk.md).

This module cuts a block into its columns. `block_layouts` checks the contents, and `block_publishing` publishes them.
"""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise
from typing import Final, NamedTuple

from escrowmq.wire.amqp091.keyed import KEYED
from escrowmq.wire.amqp091.packed import PACKED

MAGIC: Final = b"EMQP"
VERSION: Final = 1
HEAD: Final = struct.Struct("<4sHHII")
"""Magic, version, form of the contents, number of messages, number of layouts."""
MOST_MESSAGES: Final = 4096
MOST_BYTES: Final = 1 << 20
"""The limits of one block, since the broker checks a block in one turn."""
_FORMS: Final = (PACKED, KEYED)
_U32: Final = 4


class BlockError(ValueError):
    """The bytes are not a block, or a content does not have the form that the block says."""


class MessageBlock(NamedTuple):
    """A block of packed or keyed contents (`form`). Content i is `data[starts[i]:stops[i]]`.

    `layouts` divides the messages: those of a layout have the same property flags, the same lengths of all properties,
    and equal values of all those that the broker reads.
    """

    form: int
    data: bytes
    starts: list[int]
    stops: list[int]
    layouts: list[list[int]]


def build(form: int, offsets: bytes, ends: bytes, order: bytes, contents: bytes | memoryview) -> bytes:
    """Return a block. All numbers are little-endian, of four octets.

    Args:
        form: PACKED or KEYED.
        offsets: the offset of each content, and the length of all contents.
        ends: for each layout, the number of messages up to its end.
        order: the numbers of the messages, layout by layout.
        contents: the contents, back to back.
    """
    head = HEAD.pack(MAGIC, VERSION, form, len(order) // _U32, len(ends) // _U32)
    return b"".join((head, offsets, ends, order, contents))


def decode(data: bytes) -> MessageBlock:
    """Return the columns of a block. Raises BlockError if `data` is not a block; the contents are not checked."""
    if len(data) < HEAD.size:
        raise BlockError(f"{len(data)} bytes are too few for a block")
    magic, version, form, count, layouts = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise BlockError(f"a block begins with {MAGIC!r}, not {magic!r}")
    if version != VERSION:
        raise BlockError(f"version {version} of blocks is unknown")
    if form not in _FORMS:
        raise BlockError(f"form {form} of contents is unknown")
    if not 0 < count <= MOST_MESSAGES or not 0 < layouts <= count:
        raise BlockError(f"a block has 1 to {MOST_MESSAGES} messages and a layout for each at most")
    first = HEAD.size + _U32 * (2 * count + 1 + layouts)
    if first > len(data):
        raise BlockError(f"a block ends after {len(data)} bytes, in the middle of a column")
    columns = array("I", data[HEAD.size : first])
    bounds = [first + offset for offset in columns[: count + 1]]
    if bounds[0] != first or bounds[-1] != len(data) or bounds != sorted(bounds):
        raise BlockError("the offsets of a block do not ascend from 0 to its end")
    ends, order = columns[count + 1 : -count].tolist(), columns[-count:].tolist()
    if ends != sorted(set(ends)) or ends[-1] != count or not ends[0]:
        raise BlockError("the layouts of a block do not cover its messages")
    if sorted(order) != list(range(count)):
        raise BlockError("a message of a block has no layout, or several")
    return MessageBlock(form, data, bounds[:-1], bounds[1:], [order[begin:end] for begin, end in pairwise([0, *ends])])

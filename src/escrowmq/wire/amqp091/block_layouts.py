"""The check of a block's contents: all messages of a layout together, by comparisons that run in C.

The first message of a layout is surveyed (`shape`). The others must fit its shape. So the broker knows delivery mode,
priority and expiration of all of them, and that their frames can be sent to any consumer, without decoding them.
"""

from __future__ import annotations

import struct
from itertools import chain, repeat
from operator import itemgetter
from typing import Final, NamedTuple

from escrowmq.wire.amqp091.blocks import BlockError, MessageBlock
from escrowmq.wire.amqp091.keyed import BETWEEN, KEYED
from escrowmq.wire.amqp091.shape import Shape, Survey, Values

_U32: Final = struct.Struct(">I")
_CLASS: Final = bytes.fromhex("003c0000 00000000")  # class, weight, upper half of the body's size
_BODY_FRAME: Final = bytes.fromhex("ce030001")  # end of the header frame; type and channel of the body frame
_END: Final = 0xCE
_FIXED: Final = 16  # octets of packed content before the property flags
_AROUND: Final = 9  # octets of packed content besides the header frame and the body
_LEAST_HEADER: Final = 14  # octets of the payload of a header frame without properties
_FEW: Final = 4  # messages for which making a shape takes longer than surveying each of them


class Checked(NamedTuple):
    """The messages of a layout. `values` is None for messages that have to be decoded in full, one by one."""

    rows: list[int]
    values: Values | None
    keys: list[bytes]
    """Their routing keys, if the contents are keyed."""


def check(block: MessageBlock, rows: list[int], most_header: int, most_body: int) -> list[Checked]:
    """Check the messages `rows` of a layout. Returns them in one group or more.

    Args:
        block: the block.
        rows: the numbers of the messages.
        most_header: the limit of a header frame's payload, in octets.
        most_body: the limit of a body, in octets.

    Raises:
        BlockError: a content is not one header frame and one body frame, or differs from the layout of the first.
    """
    data, starts, stops = block.data, _of(rows, block.starts), _of(rows, block.stops)
    keys, skip = _keys(data, starts, min(map(int.__sub__, stops, starts))) if block.form == KEYED else ([], 0)
    head = starts[0] + skip
    if stops[0] - head < _FIXED:
        raise BlockError("a content of a block is too short")
    size = int(_U32.unpack_from(data, head)[0])
    if not _LEAST_HEADER <= size <= most_header:
        raise BlockError(f"the header frame of a content has {size} octets; 14 to {most_header} are possible")
    _check_frames(data, starts, stops, skip, size, most_body)
    heads = [start + skip for start in starts]
    survey = Survey(data, head + _FIXED, head + 4 + size)
    if survey.values is None or survey.reply_to or len(rows) < _FEW:
        return _each(data, rows, heads, size, keys)
    shape = Shape(data, head, survey, survey.values)
    if list(map(shape.literals, repeat(data), heads)).count(shape.expected) != len(rows):
        raise BlockError("the messages of a layout differ in more than the values of their properties")
    if b"".join(chain.from_iterable(map(shape.texts, repeat(data), heads))).isascii():
        return [Checked(rows, survey.values, keys)]
    return _each(data, rows, heads, size, keys)


def _keys(data: bytes, starts: list[int], least: int) -> tuple[list[bytes], int]:
    """Return the routing keys of keyed contents, of at least `least` octets, and the offset of their packed parts."""
    length = data[starts[0]] if least else 0
    skip = 1 + length + len(BETWEEN)
    if least < skip:
        raise BlockError("a content of a block is too short")
    found = list(map(struct.Struct(f"B{length}s{len(BETWEEN)}s").unpack_from, repeat(data), starts))
    lengths, keys, between = zip(*found, strict=True)
    if lengths.count(length) != len(starts) or between.count(BETWEEN) != len(starts):
        raise BlockError("the routing keys of a layout differ in length, or no header frame follows them")
    return list(keys), skip


def _check_frames(data: bytes, starts: list[int], stops: list[int], skip: int, size: int, most_body: int) -> None:
    """Check that each content is a header frame, with a payload of `size` octets, and one body frame."""
    around = skip + 4 + size + _AROUND
    bodies = [stop - start - around for start, stop in zip(starts, stops, strict=True)]
    if not 0 < min(bodies) <= max(bodies) <= most_body:
        raise BlockError(f"a body of a block does not have 1 to {most_body} octets")
    frames = struct.Struct(f">{skip}xI8sI{size - 12}x4sI")
    expected = list(zip(repeat(size), repeat(_CLASS), bodies, repeat(_BODY_FRAME), bodies))
    if list(map(frames.unpack_from, repeat(data), starts)) != expected:
        raise BlockError("a content of a block is not a header frame of its layout's length and one body frame")
    if set(_of([stop - 1 for stop in stops], data)) != {_END}:
        raise BlockError("the body frame of a content has no end octet")


def _each(data: bytes, rows: list[int], heads: list[int], size: int, keys: list[bytes]) -> list[Checked]:
    """Check messages one by one, whose header frames are at `heads`."""
    found = []
    for i, (row, head) in enumerate(zip(rows, heads, strict=True)):
        survey = Survey(data, head + _FIXED, head + 4 + size)
        found.append(Checked([row], None if survey.reply_to else survey.values, keys[i : i + 1]))
    return found


def _of(rows: list[int], column: list[int] | bytes) -> list[int]:
    """Return the items of a column that belong to `rows`."""
    found = itemgetter(*rows)(column)
    return list(found) if len(rows) > 1 else [found]

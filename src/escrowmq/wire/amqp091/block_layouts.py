"""The check of a block's contents: all messages of a layout together, by comparisons that run in C.

The first message of a layout is surveyed (`shape`). The others must fit its shape. So the broker knows delivery mode,
priority and expiration of all of them, and that their frames can be sent to any consumer, without decoding them.
"""

from __future__ import annotations

import struct
from enum import Enum, auto
from itertools import repeat
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
    lengths = list(map(int.__sub__, stops, starts))
    skip = _key_size(data, starts[0], min(lengths)) if block.form == KEYED else 0
    head = starts[0] + skip
    if lengths[0] - skip < _FIXED:
        raise BlockError("a content of a block is too short")
    size = int(_U32.unpack_from(data, head)[0])
    if not _LEAST_HEADER <= size <= most_header:
        raise BlockError(f"the header frame of a content has {size} octets; 14 to {most_header} are possible")
    around = skip + 4 + size + _AROUND
    bodies = [length - around for length in lengths]
    if not 0 < min(bodies) <= max(bodies) <= most_body:
        raise BlockError(f"a body of a block does not have 1 to {most_body} octets")
    if set(_of([stop - 1 for stop in stops], data)) != {_END}:
        raise BlockError("the body frame of a content has no end octet")
    survey = Survey(data, head + _FIXED, head + 4 + size)
    values = None if survey.reply_to or len(rows) < _FEW else survey.values
    fitting = None if values is None else _fitting(data, starts, bodies, survey, skip, head + 4 + size)
    if fitting is not None:
        return [Checked(rows, values, fitting)]
    keys = _keys(data, starts, skip) if skip else []
    _check_frames(data, starts, bodies, skip, size)
    heads = [start + skip for start in starts]
    if values is not None and not _is_one_layout(data, heads, survey, values):
        raise BlockError("the messages of a layout differ in more than the values of their properties")
    return _each(data, rows, heads, size, keys)


class _PartKind(Enum):
    """What is known of a part of all contents of a layout."""

    LITERAL = auto()  # the octets are equal
    KEY = auto()
    TEXT = auto()  # the octets are ASCII
    SIZE = auto()  # of the body
    FREE = auto()


def _fitting(
    data: bytes, starts: list[int], bodies: list[int], survey: Survey, skip: int, end: int
) -> list[bytes] | None:
    """Return the routing keys of the messages at `starts` if all of them fit the first one, whose header frame ends at
    `end`. None if they have to be looked at one by one, or are at fault. All octets before a body are read in one step.
    """
    first, head = starts[0], starts[0] + skip
    if data[head + 4 : head + 12] != _CLASS or data[end : end + 4] != _BODY_FRAME:
        return None
    if skip and data[head - len(BETWEEN) : head] != BETWEEN:
        return None
    marked = [(head + 12, head + 16, _PartKind.SIZE), (end + 4, end + 8, _PartKind.SIZE)]
    marked += [(begin, stop, _PartKind.TEXT) for begin, stop in survey.texts]
    marked += [(begin, stop, _PartKind.FREE) for begin, stop in survey.varying]
    if skip:
        marked.append((first + 1, head - len(BETWEEN), _PartKind.KEY))
    form, kinds = _form(first, sorted(marked, key=itemgetter(0)))
    keys: list[bytes] = []
    columns = zip(*map(struct.Struct(form).unpack_from, repeat(data), starts), strict=True)
    for kind, column in zip(kinds, columns, strict=True):
        if kind is _PartKind.LITERAL:
            fits = column.count(column[0]) == len(starts)
        elif kind is _PartKind.SIZE:
            fits = list(column) == bodies
        elif kind is _PartKind.TEXT:
            fits = b"".join(column).isascii()
        else:
            fits, keys = True, list(column)
        if not fits:
            return None
    return keys


def _form(at: int, marked: list[tuple[int, int, _PartKind]]) -> tuple[str, list[_PartKind]]:
    """Return a `struct` layout of the octets from `at` on, and the kinds of its items. All that is not marked is
    literal.
    """
    form, kinds = [">"], []
    for begin, stop, kind in marked:
        if begin > at:
            form.append(f"{begin - at}s")
            kinds.append(_PartKind.LITERAL)
        if kind is _PartKind.FREE:
            form.append(f"{stop - begin}x")
        else:
            form.append("I" if kind is _PartKind.SIZE else f"{stop - begin}s")
            kinds.append(kind)
        at = stop
    return "".join(form), kinds


def _key_size(data: bytes, first: int, least: int) -> int:
    """Return the octets before the packed part of keyed contents, of at least `least` octets, from the first one."""
    skip = 1 + (data[first] if least else 0) + len(BETWEEN)
    if least < skip:
        raise BlockError("a content of a block is too short")
    return skip


def _keys(data: bytes, starts: list[int], skip: int) -> list[bytes]:
    """Return the routing keys of keyed contents, whose packed parts have the offset `skip`."""
    length = skip - 1 - len(BETWEEN)
    found = list(map(struct.Struct(f"B{length}s{len(BETWEEN)}s").unpack_from, repeat(data), starts))
    lengths, keys, between = zip(*found, strict=True)
    if lengths.count(length) != len(starts) or between.count(BETWEEN) != len(starts):
        raise BlockError("the routing keys of a layout differ in length, or no header frame follows them")
    return list(keys)


def _check_frames(data: bytes, starts: list[int], bodies: list[int], skip: int, size: int) -> None:
    """Check that each content is a header frame, with a payload of `size` octets, and one body frame."""
    frames = struct.Struct(f">{skip}xI8sI{size - 12}x4sI")
    expected = list(zip(repeat(size), repeat(_CLASS), bodies, repeat(_BODY_FRAME), bodies))
    if list(map(frames.unpack_from, repeat(data), starts)) != expected:
        raise BlockError("a content of a block is not a header frame of its layout's length and one body frame")


def _is_one_layout(data: bytes, heads: list[int], survey: Survey, values: Values) -> bool:
    """Return whether the header frames at `heads` differ in texts and values only from the first one."""
    shape = Shape(data, heads[0], survey, values)
    return list(map(shape.literals, repeat(data), heads)).count(shape.expected) == len(heads)


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

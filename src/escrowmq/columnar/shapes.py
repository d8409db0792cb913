"""Shapes of header tables: their names and tags. Tables of one shape are read together, field by field."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from escrowmq.columnar.contents import Extent
from escrowmq.columnar.octets import Mask, Octets, Places
from escrowmq.columnar.texts import TAGS, Tag

_LENGTH = 4


class ShapeField(NamedTuple):
    """One field: the octets before its value or the value's length, its name, and how its value is read. A later field
    of the same name does not count.
    """

    prefix: bytes
    name: str
    tag: Tag
    counts: bool


Shape = tuple[ShapeField, ...]


def learn(table: bytes) -> Shape | None:
    """Return the shape of a table, given without its length. None if it has to be read on its own: because it is
    malformed, or has nested or decimal values.
    """
    at, end = 0, len(table)
    names: set[str] = set()
    shape: list[ShapeField] = []
    while at < end:
        stop = at + 1 + table[at]
        tag = TAGS.get(table[stop : stop + 1])
        if tag is None:
            return None
        try:
            name = table[at + 1 : stop].decode()
        except UnicodeDecodeError:
            return None
        shape.append(ShapeField(table[at : stop + 1], name, tag, name not in names))
        names.add(name)
        at = stop + 1
        size = int.from_bytes(table[at : at + _LENGTH], "big") + _LENGTH if tag.size is None else tag.size
        at += size
    return tuple(shape) if at == end else None


def match(octets: Octets, tables: Extent, shape: Shape) -> tuple[Mask, list[Extent]]:
    """Return which tables have this shape, and for these the values of the fields that count."""
    rows: Places = np.arange(len(tables.starts))
    at, stop = tables
    values: list[Extent] = []
    for field in shape:
        fits = at + len(field.prefix) + (_LENGTH if field.tag.size is None else field.tag.size) <= stop
        if not fits.all():
            rows, at, stop, values = _kept(fits, rows, at, stop, values)
        same = octets.equal(at, field.prefix)
        if not same.all():
            rows, at, stop, values = _kept(same, rows, at, stop, values)
        at = at + len(field.prefix)
        if field.tag.size is None:
            begin = at + _LENGTH
            end = begin + octets.u32(at)
        else:
            begin, end = at, at + field.tag.size
        values.append(Extent(begin, end))
        at = end
    whole = at == stop
    if not whole.all():
        rows, at, stop, values = _kept(whole, rows, at, stop, values)
    matched = np.zeros(len(tables.starts), np.bool_)
    matched[rows] = True
    return matched, [extent for extent, field in zip(values, shape, strict=True) if field.counts]


def _kept(
    mask: Mask, rows: Places, at: Places, stop: Places, values: list[Extent]
) -> tuple[Places, Places, Places, list[Extent]]:
    return rows[mask], at[mask], stop[mask], [Extent(begin[mask], end[mask]) for begin, end in values]

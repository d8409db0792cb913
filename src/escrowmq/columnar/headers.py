"""Header tables as a column of maps from names to texts."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from escrowmq.columnar.contents import Extent
from escrowmq.columnar.message import header_items
from escrowmq.columnar.octets import Octets, Places, bits, numbers
from escrowmq.columnar.properties import Field
from escrowmq.columnar.shapes import learn, match

MOST_SHAPES: Final = 32
"""How many shapes are tried in one block. The tables of all other shapes are read one by one."""


class _Entries:
    """Entries of maps, in the order in which they are found."""

    def __init__(self, count: int) -> None:
        self.counts = np.zeros(count, np.int64)
        self.present = np.zeros(count, np.bool_)
        self._names: dict[str, int] = {}
        self._parts: list[tuple[Places, int, Places, pa.Array]] = []

    def add(self, rows: Places, names: list[str], texts: list[pa.Array]) -> None:
        """Add maps of the same names, one for each of `rows`."""
        self.counts[rows], self.present[rows] = len(names), True
        for number, (name, values) in enumerate(zip(names, texts, strict=True)):
            key = self._names.setdefault(name, len(self._names))
            self._parts.append((rows, number, np.full(len(rows), key), values))

    def add_each(self, rows: list[int], maps: list[list[tuple[str, str | None]]]) -> None:
        """Add a map of its own for each of `rows`."""
        for row, items in zip(rows, maps, strict=True):
            self.add(np.array([row]), [name for name, _ in items], [pa.array([text], pa.string()) for _, text in items])

    def maps(self, kind: pa.DataType) -> pa.Array:
        """Return the maps as an array, null for all rows without one."""
        count = len(self.counts)
        if not self.present.any():
            return pa.nulls(count, kind)
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(self.counts, out=offsets[1:])
        slots = [offsets[rows] + number for rows, number, _, _ in self._parts]
        order = np.empty(offsets[-1], np.int64)
        names = np.empty(offsets[-1], np.int64)
        if slots:
            every = np.concatenate(slots)
            order[every] = np.arange(len(every))
            names[every] = np.concatenate([keys for _, _, keys, _ in self._parts])
            items = pa.concat_arrays([values for *_, values in self._parts]).take(numbers(order))
        else:
            items = pa.array([], pa.string())
        keys = pa.array(list(self._names), pa.string()).take(numbers(names))
        pairs = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
        valid = None if self.present.all() else bits(self.present)
        return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(offsets)], children=[pairs])


def column(octets: Octets, field: Field, kind: pa.DataType) -> pa.Array:
    """Return the tables of property `headers` as an array of maps of type `kind`, null where a valid one is missing."""
    entries = _Entries(len(field.present))
    todo = np.nonzero(field.present)[0]
    for _ in range(MOST_SHAPES):
        if not len(todo):
            break
        starts, ends = field.places.starts[todo], field.places.ends[todo]
        shape = learn(octets.piece(int(starts[0]), int(ends[0])))
        if shape is None:
            todo = _alone(octets, field, entries, todo[:1], todo[1:])
            continue
        matched, values = match(octets, Extent(starts, ends), shape)
        rows, todo = todo[matched], todo[~matched]
        names = [each.name for each in shape if each.counts]
        tags = [each.tag for each in shape if each.counts]
        entries.add(rows, names, [tag.texts(octets, value) for tag, value in zip(tags, values, strict=True)])
    _alone(octets, field, entries, todo, todo[:0])
    return entries.maps(kind)


def _alone(octets: Octets, field: Field, entries: _Entries, rows: Places, rest: Places) -> Places:
    """Read the tables of `rows` one by one. Return `rest`."""
    starts, ends = field.places
    kept: list[int] = []
    maps: list[list[tuple[str, str | None]]] = []
    for row in rows.tolist():
        items = header_items(octets.piece(int(starts[row]) - 4, int(ends[row])))
        if items is not None:
            kept.append(row)
            maps.append(items)
    entries.add_each(kept, maps)
    return rest

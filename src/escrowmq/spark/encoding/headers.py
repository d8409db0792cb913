"""Header tables of many rows at once: the fields of all rows are encoded as one column, and then cut into tables."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from escrowmq.spark.encoding.layouts import codes
from escrowmq.spark.encoding.octets import Numbers, binary, integers, is_text, joined, lengths, slices, valid
from escrowmq.spark.options import SHORT

_TEXT: Final = ord("S")
_VOID: Final = ord("V")


class Tables(NamedTuple):
    """Header tables with their lengths; nothing for rows without headers."""

    octets: pa.Array
    present: Numbers
    odd: Numbers
    """Rows that are to be encoded one by one: a name is too long, or occurs twice."""
    shape: list[Numbers]
    """Columns that are equal for rows with the same names and lengths of values."""


def tables(maps: pa.Array) -> Tables | None:
    """Encode a column of maps from string to string. None if a name or value is not UTF-8."""
    bounds = np.asarray(maps.offsets.to_numpy(), np.int64)
    first, count = int(bounds[0]), int(bounds[-1] - bounds[0])
    keys, items = maps.keys.slice(first, count), maps.items.slice(first, count)
    if not is_text(keys) or not is_text(items):
        return None
    bounds = bounds - first
    present = valid(maps)
    counts = np.where(present, np.diff(bounds), -1)
    names, values = binary(keys), binary(items)
    name_sizes, value_sizes, given = lengths(names), lengths(values), valid(values)
    fields = joined(
        integers(name_sizes, "u1"),
        names,
        integers(np.where(given, _TEXT, _VOID), "u1"),
        integers(value_sizes, ">u4", given),
        values,
    )
    content = slices(fields, bounds, present)
    octets = joined(integers(lengths(content), ">u4", present), content, b"")
    name_codes = codes(keys)
    shape, odd = [counts], np.zeros(len(maps), bool)
    most = int(counts.max(initial=0))
    wide = np.full((len(maps), most), -2, np.int64)  # the names of each row
    for i in range(most):
        has = counts > i
        at = bounds[:-1][has] + i
        wide[has, i] = name_codes[at]
        sizes = np.full(len(maps), -2, np.int64)
        sizes[has] = value_sizes[at]
        odd[has] |= name_sizes[at] > SHORT
        shape += [wide[:, i].copy(), sizes]
    if most > 1:
        wide.sort(axis=1)
        odd |= ((wide[:, 1:] == wide[:, :-1]) & (wide[:, 1:] >= 0)).any(axis=1)
    return Tables(octets, present, odd, shape)

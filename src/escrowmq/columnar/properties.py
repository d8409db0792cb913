"""Property lists of AMQP 0-9-1 (section 4.2.6.1) as columns: the lists with equal flags are read together."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from escrowmq.columnar.contents import Extent
from escrowmq.columnar.octets import Mask, Octets, Places, as_utf8, numbers, with_nulls
from escrowmq.wire.amqp091.codes import BASIC_PROPERTIES

HEADERS: Final = "headers"
TIMESTAMP: Final = "timestamp"
LATEST: Final = 253_402_300_800
"""The year 10000 in seconds since 1970: later than any timestamp of Spark."""
_MICROSECONDS: Final = 1_000_000
_FLAGS: Final = 1 << 16
_UNDEFINED: Final = 0b11
_OCTETS: Final = {"octet": 1, "timestamp": 8}
_LENGTHS: Final = {"shortstr": 1, "table": 4}


class Field(NamedTuple):
    """One property in all lists. `places` are those of its value without a length; only those `present` count."""

    places: Extent
    present: Mask


def fields(octets: Octets, lists: Extent, wanted: Collection[str]) -> dict[str, Field]:
    """Find the `wanted` properties in property lists; those that occur nowhere are left out. A malformed list has none
    (`message.properties_of`).
    """
    starts, ends = lists
    found: dict[str, Field] = {}
    for flags, rows in _groups(octets, lists) if wanted else ():
        at, stop = starts[rows] + 2, ends[rows]
        values: dict[str, Extent] = {}
        for bit, (name, kind) in enumerate(BASIC_PROPERTIES):
            if not flags & 0x8000 >> bit:
                continue
            begin, at = _value(octets, at, stop, kind)
            if name in wanted:
                values[name] = Extent(begin, at)
        whole = at == stop
        if whole.all() and isinstance(rows, slice):
            return {name: Field(extent, whole) for name, extent in values.items()}
        if not whole.all():
            rows = np.arange(len(starts))[rows][whole]
            values = {name: Extent(begin[whole], end[whole]) for name, (begin, end) in values.items()}
        for name, (begin, end) in values.items():
            if name not in found:
                found[name] = Field(Extent(starts.copy(), starts.copy()), np.zeros(len(starts), np.bool_))
            field = found[name]
            field.places.starts[rows], field.places.ends[rows], field.present[rows] = begin, end, True
    return found


def _groups(octets: Octets, lists: Extent) -> Iterator[tuple[int, slice | Places]]:
    """Yield the flags that occur, with the rows that have them. Lists that cannot be valid are left out."""
    starts, ends = lists
    long = ends - starts >= 2
    if not len(starts) or not long.any():
        return
    flags = octets.u16(np.where(long, starts, starts[long.argmax()]))
    if long.all() and not flags[0] & _UNDEFINED and (flags == flags[0]).all():
        yield int(flags[0]), slice(None)
        return
    for value in np.bincount(flags, minlength=_FLAGS).nonzero()[0].tolist():
        if not value & _UNDEFINED:
            yield value, np.nonzero(long & (flags == value))[0]


def _value(octets: Octets, at: Places, stop: Places, kind: str) -> tuple[Places, Places]:
    """Return where the values begin and end that are at these places. Values beyond the end of a list get an end behind
    that of the list, and so does everything that follows.
    """
    inside = np.minimum(at, stop)
    if kind in _OCTETS:
        return at, at + _OCTETS[kind]
    size = octets.u8(inside) if kind == "shortstr" else octets.u32(inside)
    begin = at + _LENGTHS[kind]
    return begin, begin + size


def column(octets: Octets, name: str, field: Field, kind: pa.DataType) -> pa.Array:
    """Return a property as an array of type `kind`, with nulls where it is absent."""
    places, present = field
    if not present.any():
        return pa.nulls(len(present), kind)
    if pa.types.is_string(kind):
        return with_nulls(as_utf8(octets.strings(*places)), present)
    at = places.starts if present.all() else np.where(present, places.starts, places.starts[present.argmax()])
    if name != TIMESTAMP:
        return with_nulls(numbers(octets.u8(at).astype(np.int32), kind), present)
    seconds = octets.u64(at)
    present = present & (seconds < LATEST)
    return with_nulls(numbers(np.where(present, seconds, 0).astype(np.int64) * _MICROSECONDS, kind), present)

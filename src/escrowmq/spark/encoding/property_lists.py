"""Property lists of many rows at once, as in a content header of class basic (section 4.2.6.1)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.spark.encoding.headers import tables
from escrowmq.spark.encoding.layouts import codes
from escrowmq.spark.encoding.octets import Numbers, binary, integers, is_text, joined, lengths, number, valid
from escrowmq.spark.encoding.properties import PERSISTENT
from escrowmq.spark.options import SHORT

_FLAGS: Final[dict[str, int]] = {
    "content_type": 0x8000,
    "content_encoding": 0x4000,
    "headers": 0x2000,
    "delivery_mode": 0x1000,
    "priority": 0x0800,
    "correlation_id": 0x0400,
    "reply_to": 0x0200,
    "expiration": 0x0100,
    "message_id": 0x0080,
    "timestamp": 0x0040,
    "type": 0x0020,
    "user_id": 0x0010,
    "app_id": 0x0008,
    "cluster_id": 0x0004,
}
"""The flag of each property, in the order of the list."""
_VARYING: Final = ("correlation_id", "message_id")
"""Texts that may differ within a layout."""
_SECOND: Final = 1_000_000
_OCTET: Final = 255


class PropertyLists(NamedTuple):
    """The property lists of rows."""

    octets: pa.Array
    odd: Numbers
    """Rows that are to be encoded one by one, because a value does not fit its field."""
    shape: list[Numbers]
    """Columns that are equal for rows of the same layout."""


class _Lists:
    """The parts of property lists, column by column."""

    def __init__(self, rows: int) -> None:
        self.flags: Numbers = np.zeros(rows, np.int64)
        self.parts: list[pa.Array] = []
        self.odd: Numbers = np.zeros(rows, bool)
        self.shape: list[Numbers] = []

    def add(self, name: str, column: pa.Array) -> bool:
        """Add a property. Returns False if a text is not UTF-8."""
        present = valid(column)
        self.flags += np.where(present, _FLAGS[name], 0)
        if name == "timestamp":
            values = number(column.cast(pa.timestamp("us")).cast(pa.int64()).fill_null(0)) // _SECOND
            self.odd |= values < 0
            self.parts.append(integers(values, ">u8", present))
        elif name in {"delivery_mode", "priority"}:
            values = number(column.fill_null(0))
            self.odd |= (values < 0) | (values > _OCTET)
            self.parts.append(integers(values, "u1", present))
            self.shape.append(values)
        else:
            return self._add_text(name, column, present)
        return True

    def _add_text(self, name: str, column: pa.Array, present: Numbers) -> bool:
        if not is_text(column):
            return False
        octets = binary(column)
        sizes = lengths(octets)
        self.odd |= sizes > SHORT
        self.parts += [integers(sizes, "u1", present), octets]
        if name not in _VARYING:
            self.shape.append(codes(column))
            return True
        self.shape.append(sizes)
        data = np.frombuffer(octets.buffers()[2] or b"", np.uint8)
        if len(data) and data.max() >= 0x80:
            self.shape.append(
                number(pc.string_is_ascii(column).cast(pa.int8()))
            )  # the broker reads other texts message by message
        return True


def property_lists(rows: int, properties: pa.Array | None, headers: pa.Array | None) -> PropertyLists | None:
    """Encode the property lists of `rows` rows. None if a text is not UTF-8."""
    lists = _Lists(rows)
    given: dict[str, Any] = {}
    if properties is not None:
        given = {field.name: column for field, column in zip(properties.type, properties.flatten(), strict=True)}
    for name in _FLAGS:
        if name == "headers":
            found = tables(headers) if headers is not None and headers.null_count < rows else None
            if found is None and headers is not None and headers.null_count < rows:
                return None
            if found is not None:
                lists.flags += np.where(found.present, _FLAGS[name], 0)
                lists.parts.append(found.octets)
                lists.odd |= found.odd
                lists.shape += found.shape
            continue
        column = given.get(name)
        if name == "delivery_mode":
            column = pa.array(np.full(rows, PERSISTENT)) if column is None else column.fill_null(PERSISTENT)
        if column is not None and column.null_count < rows and not lists.add(name, column):
            return None
    octets = joined(integers(lists.flags, ">u2"), *lists.parts)
    return PropertyLists(octets, lists.odd, [lists.flags, *lists.shape])

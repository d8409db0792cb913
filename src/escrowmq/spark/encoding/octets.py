"""Arrow arrays of octets: integers in network order, lengths, and the concatenation of columns row by row."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.columnar.octets import scalar

Numbers = np.ndarray[Any, np.dtype[Any]]
_EMPTY: Final = scalar(b"", pa.binary())
_ABSENT: Final = -1


def binary(column: pa.Array) -> pa.Array:
    """Return a column of strings or binaries as binaries, without copying those of the usual type."""
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.large_binary()).cast(pa.binary())
    return column.cast(pa.binary())


def lengths(column: pa.Array) -> Numbers:
    """Return the octets of each row of a column of binaries; -1 for null."""
    return number(pc.binary_length(column))


def number(column: pa.Array) -> Numbers:
    """Return a column of integers; -1 for null."""
    if column.null_count:
        column = column.fill_null(_ABSENT)
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


def valid(column: pa.Array) -> Numbers:
    """Return for each row whether it is not null."""
    if not column.null_count:
        return np.ones(len(column), bool)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def integers(values: Numbers, code: str, present: Numbers | None = None) -> pa.Array:
    """Return integers as octets, in the layout of a numpy type such as `>u4`. Rows that are not `present` are null."""
    data = np.ascontiguousarray(values.astype(code))
    count = len(data)
    return pa.Array.from_buffers(
        pa.binary(), count, [_bitmap(present), _steps(count, data.itemsize), pa.py_buffer(data)], -1
    )


def slices(column: pa.Array, bounds: Numbers, present: Numbers | None = None) -> pa.Array:
    """Join neighbouring rows of a column: row i of the result has the rows `bounds[i]` up to `bounds[i + 1]`."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][bounds]
    buffers = [_bitmap(present), pa.py_buffer(np.ascontiguousarray(offsets)), column.buffers()[2] or pa.py_buffer(b"")]
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers, -1)


def joined(*columns: pa.Array | bytes) -> pa.Array:
    """Concatenate columns row by row. Null is nothing; `bytes` are the same in each row.

    In each row one of them must not be null: Arrow 26 leaves out rows in which all are.
    """
    parts = [pa.scalar(column, pa.binary()) if isinstance(column, bytes) else column for column in columns]
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="skip")


def offsets(column: pa.Array) -> Numbers:
    """Return the offsets of a column of binaries: one more than it has rows."""
    begin = column.offset
    return np.frombuffer(column.buffers()[1], np.int32)[begin : begin + len(column) + 1]


def is_text(column: pa.Array) -> bool:
    """Return whether all rows are UTF-8. Spark does not check it for strings that were made from binaries."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _bitmap(present: Numbers | None) -> pa.Buffer | None:
    if present is None or present.all():
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))


@lru_cache(maxsize=64)
def _steps(count: int, width: int) -> pa.Buffer:
    return pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(width))

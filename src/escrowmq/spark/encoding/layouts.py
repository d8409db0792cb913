"""Layouts: rows whose contents differ only in values that the broker does not read, and not in any length.

The broker surveys one content of each layout, and compares the others with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from escrowmq.spark.encoding.octets import Numbers, number

_MOST: Final = 1 << 62


def codes(column: pa.Array) -> Numbers:
    """Return a number for each row. Equal values have equal numbers; null is -1."""
    return number(column.dictionary_encode().indices)


def combined(columns: Iterable[Numbers]) -> Numbers | None:
    """Return a number for each row; rows with equal numbers in all columns, and only those, have the same one.

    None if all rows are equal.
    """
    found: Numbers | None = None
    size = 1
    for column in columns:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if len(column) and (column == column[0]).all():
            continue
        width = high - low + 1
        if found is None:
            found, size = column - low, width
            continue
        if size * width > _MOST:
            found = np.unique(found, return_inverse=True)[1]
            size = int(found.max()) + 1
        found, size = found * width + (column - low), size * width
    return None if found is None else np.asarray(np.unique(found, return_inverse=True)[1])

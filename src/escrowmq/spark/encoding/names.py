"""Names of queues and exchanges, and routing keys, in columns of strings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.spark.encoding.octets import is_text
from escrowmq.spark.errors import EscrowSparkError
from escrowmq.spark.options import SHORT


def names(column: pa.Array, what: str) -> str | pa.Array:
    """Return the names in a column: one string if all rows are equal, otherwise the column.

    Args:
        column: the strings.
        what: the column's name, for error messages.

    Raises:
        EscrowSparkError: a row is null, longer than 255 bytes or not UTF-8.
    """
    _check(column, column, what)
    if not is_text(column):
        raise EscrowSparkError(f"column {what} contains text that is not UTF-8")
    if not len(column) or pc.all(pc.equal(column, column[0])).as_py():
        return str(column[0].as_py()) if len(column) else ""
    return column


def groups(column: pa.Array, what: str) -> Iterator[tuple[str, pa.Array | None]]:
    """Yield each distinct value with the numbers of its rows, in their order; None for all rows. Raises as `names`."""
    found = names(column, what)
    if isinstance(found, str):
        yield found, None
        return
    encoded = found.dictionary_encode()
    numbers = encoded.indices.to_numpy()
    rows = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(encoded.dictionary)))
    begin = 0
    for value, end in zip(encoded.dictionary.to_pylist(), ends.tolist(), strict=True):
        yield value, pa.array(rows[begin:end])
        begin = end


def runs(column: pa.Array, what: str) -> Iterator[tuple[str, int, int]]:
    """Runs of equal values, each as (value, first row, row after the last).

    Raises:
        EscrowSparkError: a row is null or longer than 255 bytes.
    """
    ends = pc.run_end_encode(column)
    _check(column, ends.values, what)
    begin = 0
    for value, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
        yield value, begin, end
        begin = end


def _check(column: pa.Array, values: pa.Array, what: str) -> None:
    if column.null_count:
        raise EscrowSparkError(f"column {what} contains a null")
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    if longest > SHORT:
        raise EscrowSparkError(f"column {what} has a value of {longest} bytes; the limit is {SHORT} bytes")

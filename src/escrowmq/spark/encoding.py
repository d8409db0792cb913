"""Columns of Arrow as what a bulk publish takes: names, and properties encoded once for each distinct combination.

No object is made for a row unless each row has something of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.client import Error, ProgrammingError, Properties
from escrowmq.spark.errors import EscrowSparkError
from escrowmq.spark.options import SHORT

PERSISTENT: Final = 2
DEFAULT: Final[bytes] = Properties(delivery_mode=PERSISTENT).encode()
"""What a message without any properties gets: it is to survive a restart."""
_SECOND: Final = 1_000_000
_KNOWN: Final = 65_536
Codes = np.ndarray[Any, np.dtype[np.int64]]


def names(column: pa.Array, what: str) -> str | list[str]:
    """Strings: one if all are the same, else one for each row. Raises EscrowSparkError for a null, or a long one."""
    encoded = column.dictionary_encode()
    _check(column, encoded.dictionary, what)
    values = encoded.dictionary.to_pylist()
    if len(values) == 1:
        return str(values[0])
    if len(values) * 2 > len(column):
        return list(column.to_pylist())
    return [values[i] for i in encoded.indices.to_numpy().tolist()]


def runs(column: pa.Array, what: str) -> Iterator[tuple[str, int, int]]:
    """Values with the rows (from, to) that have them, side by side. Raises as `names`."""
    ends = pc.run_end_encode(column)
    _check(column, ends.values, what)
    begin = 0
    for value, end in zip(ends.values.to_pylist(), ends.run_ends.to_pylist(), strict=True):
        yield value, begin, end
        begin = end


def _check(column: pa.Array, values: pa.Array, what: str) -> None:
    if column.null_count:
        raise EscrowSparkError(f"column {what} is null in a row")
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    if longest > SHORT:
        raise EscrowSparkError(f"column {what} has {longest} bytes in a row, at most {SHORT} are possible")


class PropertiesEncoder:
    """Makes the octets of properties and headers, and remembers them."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], bytes] = {}

    def encode(self, properties: pa.Array | None, headers: pa.Array | None) -> bytes | list[bytes]:
        """For all rows if these are alike, else for each row. Raises EscrowSparkError for a value that does not fit."""
        rows = 0
        columns: list[tuple[str, pa.Array]] = []
        codes: list[Codes] = []
        if properties is not None and properties.null_count < len(properties):
            rows = len(properties)
            for field, column in zip(properties.type, properties.flatten(), strict=True):
                if column.null_count < rows:
                    if field.name == "timestamp":
                        column = column.cast(pa.timestamp("us")).cast(pa.int64())
                    columns.append((field.name, column))
                    codes.append(_codes(column))
        if headers is not None and headers.null_count < len(headers):
            rows = len(headers)
            codes += _codes_of_maps(headers)
        else:
            headers = None
        if not codes:
            return DEFAULT
        first, number = _distinct(codes)
        made = self._make(columns, headers, first)
        if len(made) == 1:
            return made[0]
        return [made[i] for i in number.tolist()]

    def _make(self, columns: Sequence[tuple[str, pa.Array]], headers: pa.Array | None, rows: Codes) -> list[bytes]:
        """The octets of these rows."""
        picked = pa.array(rows)
        fields = [name for name, _ in columns]
        values: list[list[Any]] = [column.take(picked).to_pylist() for _, column in columns]
        maps = headers.take(picked).to_pylist() if headers is not None else [None] * len(rows)
        known = self._known
        if len(known) + len(rows) > _KNOWN:
            known.clear()
        made = []
        for row, items in zip(zip(*values, strict=True) if values else [()] * len(rows), maps, strict=True):
            key = (*fields, *row, None if items is None else tuple(items))
            found = known.get(key)
            if found is None:
                found = known[key] = _octets(dict(zip(fields, row, strict=True)), items)
            made.append(found)
        return made


def _octets(fields: dict[str, Any], items: list[tuple[str, str | None]] | None) -> bytes:
    if fields.get("delivery_mode") is None:
        fields["delivery_mode"] = PERSISTENT
    if fields.get("timestamp") is not None:
        fields["timestamp"] //= _SECOND
    try:
        return Properties(**fields, headers=None if items is None else dict(items)).encode()
    except (ValueError, TypeError, AttributeError, Error, ProgrammingError) as error:
        raise EscrowSparkError(f"properties or headers cannot be written: {error}") from None


def _codes(column: pa.Array) -> Codes:
    """A number for each row, the same for equal values; -1 for null."""
    indices = column.dictionary_encode().indices
    return np.asarray(indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def _codes_of_maps(maps: pa.Array) -> list[Codes]:
    """Numbers for each row, all of them the same for equal maps."""
    begin = np.asarray(maps.offsets.to_numpy(), np.int64)
    lengths = np.diff(begin)
    if maps.null_count:
        lengths[maps.is_null().to_numpy(zero_copy_only=False)] = -1
    most = int(lengths.max(initial=0))
    codes = [lengths]
    for entries in (maps.keys, maps.items):
        numbers = np.append(_codes(entries), -1)
        for i in range(most):
            at = np.where(lengths > i, begin[:-1] - begin[0] + i, len(numbers) - 1)
            codes.append(numbers[at])
    return codes


def _distinct(codes: list[Codes]) -> tuple[Codes, Codes]:
    """The first row of each combination, and for each row the number of its combination."""
    found = codes[0]
    first: Codes
    _, first, found = np.unique(found, return_index=True, return_inverse=True)
    for more in codes[1:]:
        if len(first) == len(found):
            break  # all rows differ already
        joined = found * (int(more.max(initial=0)) + 2) + more + 1
        _, first, found = np.unique(joined, return_index=True, return_inverse=True)
    return first, found

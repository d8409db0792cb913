"""Convert Arrow columns to the arguments of a bulk publish.

Names and properties are converted once for each distinct value. A Python object for each row is created only if most
rows differ.
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
"""Properties of a message for which none are given: persistent, so that it survives a restart."""
_SECOND: Final = 1_000_000
_KNOWN: Final = 65_536
Codes = np.ndarray[Any, np.dtype[np.int64]]


def names(column: pa.Array, what: str) -> str | list[str]:
    """Return the names in a column: one string if all rows are equal, otherwise one for each row.

    Args:
        column: the strings.
        what: the column's name, for error messages.

    Raises:
        EscrowSparkError: a row is null or longer than 255 bytes.
    """
    encoded = column.dictionary_encode()
    _check(column, encoded.dictionary, what)
    values = encoded.dictionary.to_pylist()
    if len(values) == 1:
        return str(values[0])
    if len(values) * 2 > len(column):
        return list(column.to_pylist())
    return [values[i] for i in encoded.indices.to_numpy().tolist()]


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


class PropertiesEncoder:
    """Encodes properties and headers as AMQP property lists, and caches the results."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], bytes] = {}

    def encode(self, properties: pa.Array | None, headers: pa.Array | None) -> bytes | list[bytes]:
        """Encode the property lists: one if all rows are equal, otherwise one for each row.

        Raises:
            EscrowSparkError: a value cannot be encoded, for example a priority above 255.
        """
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
        """Encode the property lists of these rows."""
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
        raise EscrowSparkError(f"cannot encode properties or headers: {error}") from None


def _codes(column: pa.Array) -> Codes:
    """Return a code for each row. Equal values have equal codes; null is -1."""
    indices = column.dictionary_encode().indices
    return np.asarray(indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def _codes_of_maps(maps: pa.Array) -> list[Codes]:
    """Return several columns of codes; two rows with equal maps have equal codes in all of them."""
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
    """Return the first row of each distinct combination of codes, and each row's index among the combinations."""
    found = codes[0]
    first: Codes
    _, first, found = np.unique(found, return_index=True, return_inverse=True)
    for more in codes[1:]:
        if len(first) == len(found):
            break  # all rows differ already
        joined = found * (int(more.max(initial=0)) + 2) + more + 1
        _, first, found = np.unique(joined, return_index=True, return_inverse=True)
    return first, found

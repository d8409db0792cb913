"""Property lists one by one, by the codec of the client: once for each distinct combination of values.

Rows whose values are equal are encoded here, and those that do not fit the templates of `property_lists`, which must
give the same octets for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from escrowmq.client import Error, ProgrammingError, Properties
from escrowmq.spark.encoding.layouts import codes as codes_of
from escrowmq.spark.encoding.octets import Numbers
from escrowmq.spark.errors import EscrowSparkError

PERSISTENT: Final = 2
DEFAULT: Final[bytes] = Properties(delivery_mode=PERSISTENT).encode()
"""Properties of a message for which none are given: persistent, so that it survives a restart."""
_SECOND: Final = 1_000_000
_KNOWN: Final = 65_536


class PropertiesEncoder:
    """Encodes properties and headers as AMQP property lists, and caches the results."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], bytes] = {}

    def uniform(self, properties: pa.Array | None, headers: pa.Array | None) -> bytes | None:
        """Return the property list of all rows, or None if they are not all equal. Raises the errors of `encode`."""
        columns = [column for column in (properties, headers) if column is not None and len(column)]
        for column in columns:  # most rows that differ do so in the first and the last one
            if not column[0].equals(column[-1]):
                return None
        found = self.encode(properties, headers)
        return found if isinstance(found, bytes) else None

    def encode(self, properties: pa.Array | None, headers: pa.Array | None) -> bytes | list[bytes]:
        """Encode the property lists: one if all rows are equal, otherwise one for each row.

        Raises:
            EscrowSparkError: a value cannot be encoded, for example a priority above 255.
        """
        rows = 0
        columns: list[tuple[str, pa.Array]] = []
        codes: list[Numbers] = []
        if properties is not None and properties.null_count < len(properties):
            rows = len(properties)
            for field, column in zip(properties.type, properties.flatten(), strict=True):
                if column.null_count < rows:
                    if field.name == "timestamp":
                        column = column.cast(pa.timestamp("us")).cast(pa.int64())
                    columns.append((field.name, column))
                    codes.append(codes_of(column))
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

    def _make(self, columns: Sequence[tuple[str, pa.Array]], headers: pa.Array | None, rows: Numbers) -> list[bytes]:
        """Encode the property lists of these rows."""
        picked = pa.array(rows)
        fields = [name for name, _ in columns]
        try:
            values: list[list[Any]] = [column.take(picked).to_pylist() for _, column in columns]
            maps = headers.take(picked).to_pylist() if headers is not None else [None] * len(rows)
        except UnicodeDecodeError as error:
            raise EscrowSparkError(f"cannot encode properties or headers: {error}") from None
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


def _codes_of_maps(maps: pa.Array) -> list[Numbers]:
    """Return several columns of codes; two rows with equal maps have equal codes in all of them."""
    begin = np.asarray(maps.offsets.to_numpy(), np.int64)
    lengths = np.diff(begin)
    if maps.null_count:
        lengths[maps.is_null().to_numpy(zero_copy_only=False)] = -1
    most = int(lengths.max(initial=0))
    codes = [lengths]
    for entries in (maps.keys, maps.items):
        numbers = np.append(codes_of(entries), -1)
        for i in range(most):
            at = np.where(lengths > i, begin[:-1] + i, len(numbers) - 1)
            codes.append(numbers[at])
    return codes


def _distinct(codes: list[Numbers]) -> tuple[Numbers, Numbers]:
    """Return the first row of each distinct combination of codes, and each row's index among the combinations."""
    found = codes[0]
    first: Numbers
    _, first, found = np.unique(found, return_index=True, return_inverse=True)
    for more in codes[1:]:
        if len(first) == len(found):
            break  # all rows differ already
        joined = found * (int(more.max(initial=0)) + 2) + more + 1
        _, first, found = np.unique(joined, return_index=True, return_inverse=True)
    return first, found

"""Convert blocks from the broker to Arrow record batches without creating an object for each message.

Bodies and positions are not copied. All other columns are decoded once for each envelope.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from escrowmq.client import Properties
from escrowmq.client.escrow import Bulk
from escrowmq.spark.errors import EscrowSparkError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_MICROSECONDS: Final = 1_000_000
_LATEST: Final = 253_402_300_800  # the year 10000, in seconds: later than any timestamp of Spark
_REDELIVERED: Final = 1


class Columns:
    """Builds record batches with the columns of a schema that `schema.check_source` has accepted."""

    def __init__(self, schema: StructType) -> None:
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def batch(self, queue: str, bulk: Bulk) -> pa.RecordBatch:
        """Return all messages of a block, one row each.

        Raises:
            EscrowSparkError: the schema asks for the body as a string, and a body is not UTF-8.
        """
        rows = _Rows(queue, bulk)
        arrays = [_MAKERS[field.name](rows, field.type) for field in self._schema]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * bulk.count, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Rows:
    """A block, with helpers that expand values of envelopes and runs to one value for each message."""

    def __init__(self, queue: str, bulk: Bulk) -> None:
        self.queue = queue
        self.bulk = bulk
        self.count = bulk.count
        ends = np.frombuffer(bulk.run_ends, np.uint32)
        self._lengths = np.diff(ends, prepend=np.uint32(0))
        self._envelope_of_run = np.frombuffer(bulk.run_envelopes, np.uint32)
        self.envelopes = len(bulk.properties.offsets) - 1
        self._indices: pa.Array | None = None

    def of_envelopes(self, values: pa.Array) -> pa.Array:
        """Expand one value for each envelope to one value for each message."""
        if values.null_count == len(values):
            return pa.nulls(self.count, values.type)
        if self._indices is None:
            spread = np.repeat(self._envelope_of_run, self._lengths)
            self._indices = pa.array(spread, pa.uint32())
        return values.take(self._indices)

    def of_runs(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Expand one value for each run to one value for each message."""
        return np.repeat(values, self._lengths)


def _queue(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(rows.queue, kind), rows.count)


def _position(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, rows.count, [None, pa.py_buffer(rows.bulk.positions)])


def _body(rows: _Rows, kind: pa.DataType) -> pa.Array:
    bodies = rows.bulk.bodies
    buffers = [None, pa.py_buffer(bodies.offsets), pa.py_buffer(bodies.data)]
    found = pa.Array.from_buffers(pa.binary(), rows.count, buffers)
    if kind == pa.binary():
        return found
    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        raise _not_utf8(rows) from None


def _not_utf8(rows: _Rows) -> EscrowSparkError:
    """Return the error that names the first body that is not UTF-8."""
    position = next(each.position for each in rows.bulk.messages() if _text(each.body).encode() != each.body)
    return EscrowSparkError(
        f"queue {rows.queue!r}: the body of the message at position {position} is not UTF-8: "
        "declare the column body as binary in the schema"
    )


def _timestamp(rows: _Rows, kind: pa.DataType) -> pa.Array:
    times = rows.of_runs(np.frombuffer(rows.bulk.run_times, np.int64))
    return pa.Array.from_buffers(kind, rows.count, [None, pa.py_buffer(times)])


def _redelivered(rows: _Rows, kind: pa.DataType) -> pa.Array:
    flags = np.frombuffer(rows.bulk.run_flags, np.uint8) & _REDELIVERED
    return pa.array(rows.of_runs(flags.astype(bool)), kind)


def _exchange(rows: _Rows, kind: pa.DataType) -> pa.Array:
    strings = rows.bulk.exchanges
    return rows.of_envelopes(pa.array([_text(strings[i]) for i in range(rows.envelopes)], kind))


def _routing_key(rows: _Rows, kind: pa.DataType) -> pa.Array:
    strings = rows.bulk.routing_keys
    return rows.of_envelopes(pa.array([_text(strings[i]) for i in range(rows.envelopes)], kind))


def _properties(rows: _Rows, kind: pa.DataType) -> pa.Array:
    found = [_decoded(rows.bulk.properties[i]) for i in range(rows.envelopes)]
    fields = [_field(rows, found, field.name, field.type) for field in kind]
    if not fields:
        return pa.array([{}] * rows.count, kind)
    return pa.StructArray.from_arrays(fields, fields=list(kind))


def _field(rows: _Rows, found: Sequence[Properties], name: str, kind: pa.DataType) -> pa.Array:
    values = [getattr(properties, name) for properties in found]
    if name == "timestamp":
        values = [None if value is None or value >= _LATEST else value * _MICROSECONDS for value in values]
    return rows.of_envelopes(pa.array(values, kind))


def _headers(rows: _Rows, kind: pa.DataType) -> pa.Array:
    found = [_header_items(rows.bulk.properties[i]) for i in range(rows.envelopes)]
    return rows.of_envelopes(pa.array(found, kind))


_MAKERS: Final[dict[str, Callable[[_Rows, pa.DataType], pa.Array]]] = {
    "queue": _queue,
    "position": _position,
    "exchange": _exchange,
    "routing_key": _routing_key,
    "properties": _properties,
    "headers": _headers,
    "body": _body,
    "timestamp": _timestamp,
    "redelivered": _redelivered,
}


@lru_cache(maxsize=4096)
def _decoded(props: bytes) -> Properties:
    return Properties.decode(props)


@lru_cache(maxsize=4096)
def _header_items(props: bytes) -> list[tuple[str, str | None]] | None:
    headers = _decoded(props).headers
    return None if headers is None else [(name, as_text(value)) for name, value in headers.items()]


def as_text(value: object) -> str | None:
    """Return the value of a header as text, or None.

    Text stays as it is. Bytes are decoded as UTF-8, or encoded in base64 if they are not valid UTF-8. Numbers are
    decimal, timestamps ISO 8601, tables and arrays JSON.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return _bytes(bytes(value))
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict | list):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return str(value)


def _plain(value: object) -> str | None:
    return as_text(value)


def _bytes(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")

"""Convert blocks from the broker to Arrow record batches without creating an object for each message.

Bodies of plain contents and positions are not copied. Columns that the schema does not have are not decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from escrowmq.client.escrow import Bulk
from escrowmq.columnar.block import BlockColumns
from escrowmq.columnar.octets import bits, scalar
from escrowmq.spark.errors import EscrowSparkError
from escrowmq.spark.features import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_REDELIVERED: Final = 1


class Columns:
    """Builds record batches with the columns of a schema that `schema.check_source` has accepted."""

    def __init__(self, schema: StructType) -> None:
        self._schema: pa.Schema = arrow_schema(schema)
        self._wanted = frozenset(
            name
            for field in self._schema
            for name in ([each.name for each in field.type] if field.name == "properties" else [field.name])
        )

    def batch(self, queue: str, bulk: Bulk) -> pa.RecordBatch:
        """Return all messages of a block, one row each.

        Raises:
            EscrowSparkError: the schema asks for the body as a string, and a body is not UTF-8.
        """
        rows = _Rows(queue, bulk, BlockColumns(bulk, self._wanted))
        arrays = [_MAKERS[field.name](rows, field.type) for field in self._schema]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * bulk.count, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Rows(NamedTuple):
    queue: str
    bulk: Bulk
    block: BlockColumns


def _queue(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return pa.repeat(scalar(rows.queue.encode(), kind), rows.block.count)


def _position(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, rows.block.count, [None, pa.py_buffer(rows.bulk.positions)])


def _body(rows: _Rows, kind: pa.DataType) -> pa.Array:
    found = rows.block.body()
    if kind == pa.binary():
        return found
    try:
        return found.cast(kind)
    except pa.ArrowInvalid:
        raise _not_utf8(rows) from None


def _not_utf8(rows: _Rows) -> EscrowSparkError:
    """Return the error that names the first body that is not UTF-8."""
    bodies = rows.block.body().to_pylist()
    first = next(i for i, body in enumerate(bodies) if body.decode("utf-8", "replace").encode() != body)
    return EscrowSparkError(
        f"queue {rows.queue!r}: the body of the message at position {rows.bulk.positions[first]} is not UTF-8: "
        "declare the column body as binary in the schema"
    )


def _timestamp(rows: _Rows, kind: pa.DataType) -> pa.Array:
    times = rows.block.of_runs(np.frombuffer(rows.bulk.run_times, np.int64))
    return pa.Array.from_buffers(kind, rows.block.count, [None, pa.py_buffer(times)])


def _redelivered(rows: _Rows, kind: pa.DataType) -> pa.Array:
    flags = np.frombuffer(rows.bulk.run_flags, np.uint8) & _REDELIVERED
    mask = bits(rows.block.of_runs(flags.astype(bool)))
    return pa.Array.from_buffers(kind, rows.block.count, [None, mask])


def _exchange(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return rows.block.exchange().cast(kind)


def _routing_key(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return rows.block.routing_key().cast(kind)


def _properties(rows: _Rows, kind: pa.DataType) -> pa.Array:
    fields = [rows.block.property(field.name, field.type) for field in kind]
    if not fields:
        return pa.array([{}] * rows.block.count, kind)
    return pa.StructArray.from_arrays(fields, fields=list(kind))


def _headers(rows: _Rows, kind: pa.DataType) -> pa.Array:
    return rows.block.headers(kind)


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

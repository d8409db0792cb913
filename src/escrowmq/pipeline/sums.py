"""Sum up rows of the table `messages` while they are written, so that Spark need not read them again.

A sum contains a row for each group of messages in a batch. Spark adds up the batches of all tasks.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.pipeline.columns import Ints
from escrowmq.pipeline.events import BUCKET_BITS
from escrowmq.pipeline.writing import Sum

MINUTE: Final = 60_000_000
HOUR: Final = 60 * MINUTE
"""In microseconds. Integers are grouped much faster than names or timestamps."""
STEPS: Final = 32
"""The number of latency classes for each power of two. With 32, percentiles are accurate to 2.2 %."""

FLOW: Final = "staging.flow"
LATENCIES: Final = "staging.latencies"
ORDER: Final = "staging.order"
DDL: Final = {
    FLOW: "queue_id long, outcome string, came long, went long, messages long, bytes long, deliveries long",
    LATENCIES: "queue_id long, hour long, handed boolean, class int, messages long",
    ORDER: "queue_id long, bucket long, top long, low long, high long, known long",
}
"""The tables of sums, with their columns.

`came` and `went` are the minutes of publication, if that was after the last run, and of settlement. `class` is the
class of the time in microseconds from the commit to the first delivery (`handed`) or to the acceptance of messages in
`hour`. `top` is the highest position that was published in a bucket since the last run, `low` and `high` are the first
and last LSN of these publications, and `known` is the first position in the part of the log without gaps.
"""


def of_messages(begin: int, start: int) -> dict[str, Sum]:
    """Return the sums of the table `messages`, by the tables into which they are written.

    Args:
        begin: the LSN up to which earlier runs have read the log.
        start: the LSN from which the log has no gaps.
    """
    return {FLOW: partial(_flow, begin=begin), LATENCIES: _latencies, ORDER: partial(_order, begin=begin, start=start)}


def _flow(batch: pa.RecordBatch, begin: int) -> pa.RecordBatch:
    fresh = pc.greater_equal(batch.column("publish_lsn"), begin)
    settled = pc.equal(batch.column("state"), "settled")
    columns = {
        "queue_id": batch.column("queue_id"),
        "outcome": batch.column("outcome"),
        "came": pc.if_else(fresh, pc.divide(_micros(batch, "confirmed_at"), MINUTE), pa.scalar(None, pa.int64())),
        "went": pc.if_else(settled, pc.divide(_micros(batch, "settled_at"), MINUTE), pa.scalar(None, pa.int64())),
        "bytes": batch.column("bytes"),
        "deliveries": batch.column("deliveries").cast(pa.int64()),
    }
    keys = ["queue_id", "outcome", "came", "went"]
    sums = [("bytes", "sum"), ("deliveries", "sum"), ([], "count_all")]
    found = pa.table(columns).group_by(keys, use_threads=False).aggregate(sums)
    names = {"bytes_sum": "bytes", "deliveries_sum": "deliveries", "count_all": "messages"}
    return _batch(found.rename_columns([names.get(name, name) for name in found.column_names]), FLOW)


def _latencies(batch: pa.RecordBatch) -> pa.RecordBatch:
    accepted = pc.fill_null(pc.equal(batch.column("outcome"), "accepted"), fill_value=False)
    settled = pc.equal(batch.column("state"), "settled")
    parts = [
        _stage(batch, accepted, "settled_at", handed=False),
        _stage(batch, settled, "first_delivered_at", handed=True),
    ]
    return _batch(pa.concat_tables(parts), LATENCIES)


def _stage(batch: pa.RecordBatch, chosen: pa.BooleanArray, moment: str, *, handed: bool) -> pa.Table:
    """Return the numbers of messages by class of the time that passed between their commit and `moment`."""
    known = pc.and_(batch.column("confirmed_at").is_valid(), batch.column(moment).is_valid())
    rows = batch.filter(pc.and_(chosen, known))
    begin, end = (_micros(rows, name).to_numpy(zero_copy_only=False) for name in ("confirmed_at", moment))
    columns = {
        "queue_id": rows.column("queue_id"),
        "hour": pa.array(end // HOUR, pa.int64()),
        "class": pa.array(_class_of(end - begin), pa.int32()),
    }
    found = pa.table(columns).group_by(list(columns), use_threads=False).aggregate([([], "count_all")])
    handed_ = pa.array(np.full(len(found), handed))
    return found.rename_columns([*columns, "messages"]).append_column("handed", handed_)


def _class_of(micros: Ints) -> Ints:
    """Return the classes of latencies in microseconds."""
    found: Ints = np.floor(np.log2(np.maximum(micros, 0) + 1) * STEPS).astype(np.int32)
    return found


def _order(batch: pa.RecordBatch, begin: int, start: int) -> pa.RecordBatch:
    fresh = pc.and_(
        pc.greater_equal(batch.column("publish_lsn"), begin), pc.greater_equal(batch.column("publish_order"), 0)
    )
    rows = batch.filter(pc.fill_null(fresh, fill_value=False))
    position, lsn = rows.column("position"), rows.column("publish_lsn")
    columns = {
        "queue_id": rows.column("queue_id"),
        "bucket": pc.shift_right(position, BUCKET_BITS),
        "position": position,
        "lsn": lsn,
        "known": pc.if_else(pc.greater_equal(lsn, start), position, pa.scalar(None, pa.int64())),
    }
    wanted = {"top": ("position", "max"), "low": ("lsn", "min"), "high": ("lsn", "max"), "known": ("known", "min")}
    found = pa.table(columns).group_by(["queue_id", "bucket"], use_threads=False).aggregate(list(wanted.values()))
    renamed = {"_".join(each): name for name, each in wanted.items()}
    return _batch(found.rename_columns([renamed.get(name, name) for name in found.column_names]), ORDER)


def _micros(batch: pa.RecordBatch, name: str) -> pa.Int64Array:
    return batch.column(name).cast(pa.int64())


def _batch(found: pa.Table, table: str) -> pa.RecordBatch:
    """Return the rows with the columns of the table in order."""
    names = [column.split()[0] for column in DDL[table].split(", ")]
    columns = [found.column(name).combine_chunks() for name in names]
    return pa.RecordBatch.from_arrays(columns, names)

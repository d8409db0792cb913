"""Serialize events for transport between Spark's tasks: a few large binary values, each for one part of the work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from escrowmq.pipeline import identity_columns
from escrowmq.pipeline.blocks import BODY
from escrowmq.pipeline.columns import Ints, Rows
from escrowmq.pipeline.events import BUCKET_BITS, EVENT, Events, by_bucket, chosen

SCHEMA: Final = pa.schema(
    [
        ("part", pa.int32()),
        ("lsn", pa.int64()),
        ("rows", pa.binary()),
        ("texts", pa.list_(pa.binary())),
        ("bodies", pa.binary()),
        ("ids", pa.binary()),
        ("open", pa.binary()),
    ]
)
DDL: Final = "part int, lsn long, rows binary, texts array<binary>, bodies binary, ids binary, open binary"
"""`lsn` orders the rows of a part. A row contains either events, or messages that an earlier run left open (`open`)."""


class Packed(NamedTuple):
    """Events of one part of the work. `lsn` is the address of the first one's record."""

    part: int
    lsn: int
    rows: bytes
    texts: list[bytes]
    bodies: bytes
    ids: bytes | None


def part_of(queue: Ints, first: Ints, parts: int) -> Ints:
    """Return the part of the work, from 0 to `parts` - 1, to which each position belongs.

    A bucket belongs to one part. Consecutive buckets of a queue go to consecutive parts, which balances the work.
    """
    mixed = (queue.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)
    return ((mixed + (first.astype(np.uint64) >> np.uint64(BUCKET_BITS))) % np.uint64(parts)).astype(np.int64)


def pack(events: Events, parts: int) -> Iterator[Packed]:
    """Split events at the borders of buckets, and serialize them by part."""
    events = by_bucket(events)
    if not len(events):
        return
    rows = events.rows
    owner = part_of(rows["queue"], rows["first"], parts)
    order = np.argsort(owner, kind="stable")
    borders = np.flatnonzero(np.diff(owner[order])) + 1
    for numbers in np.split(order, borders):
        mine = chosen(events, rows[numbers])
        yield Packed(
            int(owner[numbers[0]]),
            int(mine.rows["lsn"][0]),
            _small(mine.rows),
            mine.texts,
            _small(mine.bodies),
            None if mine.ids is None else identity_columns.pack(mine.ids),
        )


def batch(packed: list[Packed]) -> pa.RecordBatch:
    """Convert packed events to a batch with the columns of SCHEMA."""
    columns = [
        *(pa.array([item[i] for item in packed], field.type) for i, field in zip(range(6), SCHEMA, strict=False)),
        pa.nulls(len(packed), pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def unpack(rows: bytes, texts: list[bytes], bodies: bytes, ids: bytes | None) -> Events:
    """Restore the events from the fields of Packed."""
    found: Rows = np.frombuffer(_large(rows), EVENT)
    known = None if ids is None else identity_columns.unpack(ids)
    return Events(found, texts, np.frombuffer(_large(bodies), BODY), known)


def _small(rows: Rows) -> bytes:
    """Compress rows. Compression in Python takes less time than it saves in the JVM, which has to copy the bytes."""
    data = rows.tobytes()
    return len(data).to_bytes(8, "little") + bytes(pa.compress(data, codec="zstd", asbytes=True))


def _large(data: bytes) -> bytes:
    size = int.from_bytes(data[:8], "little")
    return bytes(pa.decompress(data[8:], size, codec="zstd", asbytes=True))


def joined(parts: list[Events]) -> Events:
    """Concatenate events in order."""
    rows, texts, bodies = [], list[bytes](), []
    counted = 0
    for part in parts:
        mine = part.rows.copy()
        mine["text"] += np.where(mine["text"] >= 0, len(texts), 0)
        mine["bodies"] += np.where(mine["bodies"] >= 0, counted, 0)
        rows.append(mine)
        own = part.bodies.copy()
        own["text"] += np.where(own["text"] >= 0, len(texts), 0).astype(np.int32)
        texts += part.texts
        bodies.append(own)
        counted += len(part.bodies)
    if not rows:
        return Events(np.empty(0, EVENT), [], np.empty(0, BODY))
    ids = [identity_columns.nothing(len(part.bodies)) if part.ids is None else part.ids for part in parts]
    known = any(part.ids is not None for part in parts)
    return Events(
        np.concatenate(rows), texts, np.concatenate(bodies), identity_columns.concatenated(ids) if known else None
    )

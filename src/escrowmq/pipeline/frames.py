"""Convert frames of the journal to columns of records, without copying payloads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from escrowmq.journal.bulk import Window
from escrowmq.pipeline.columns import U32, Bytes, Ints, integers, ragged, take

HEADER = 40
"""The number of bytes between the address of a frame and that of its payload."""


@dataclass(frozen=True, slots=True)
class Records:
    """Columns of records, one element for each record.

    Args:
        data: the bytes that contain the payloads.
        at: the offset of each payload in `data`.
        length: the length of each payload in bytes.
        kind: the kind of each record (`core.records.Kind`).
        lsn: the address of each record.
        frame: the address of the frame that contains it.
        time: when that frame was written, in microseconds since the epoch.
    """

    data: Bytes
    at: Ints
    length: Ints
    kind: Ints
    lsn: Ints
    frame: Ints
    time: Ints

    def __len__(self) -> int:
        return len(self.at)

    def of_kind(self, *kinds: int) -> Ints:
        """Return the indexes of the records of these kinds."""
        return np.flatnonzero(np.isin(self.kind, kinds))

    def payload(self, i: int) -> memoryview:
        """Return the payload of the record with the index `i`."""
        at = int(self.at[i])
        return self.data.data[at : at + int(self.length[i])]


def records(window: Window) -> Records:
    """Return the records of a window's frames, in order."""
    data: Bytes = np.frombuffer(window.data, np.uint8)
    frames = integers(window.frames).reshape(-1, 5)
    body, lsn, time, payload, count = frames.T
    table = body + payload + -payload % 8
    owner, inner = ragged(count)
    places = table[owner] + 4 * inner
    start = integers(take(data, places, U32))
    end = integers(take(data, places + 4, U32))
    kind = integers(data[table[owner] + 4 * (count[owner] + 1) + inner])
    return Records(data, body[owner] + start, end - start, kind, lsn[owner] + HEADER + start, lsn[owner], time[owner])


SCHEMA = pa.schema(
    [
        ("lsn", pa.int64()),
        ("frame_lsn", pa.int64()),
        ("written_at", pa.timestamp("us", tz="UTC")),
        ("kind", pa.int16()),
        ("size", pa.int32()),
        ("payload", pa.binary()),
    ]
)


def table(found: Records, *, payloads: bool) -> pa.RecordBatch:
    """Return the records as rows of the bronze table. The column `payload` is null unless `payloads` is set."""
    n = len(found)
    columns = [
        pa.array(found.lsn),
        pa.array(found.frame),
        pa.array(found.time, pa.timestamp("us", tz="UTC")),
        pa.array(found.kind.astype(np.int16)),
        pa.array(found.length.astype(np.int32)),
        _payloads(found) if payloads else pa.nulls(n, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _payloads(found: Records) -> pa.Array:
    """Return the payloads as an Arrow array. Payloads of one frame are contiguous, so each frame is copied in one
    piece.
    """
    starts = np.flatnonzero(np.r_[True, found.frame[1:] != found.frame[:-1]])
    ends = np.r_[starts[1:], len(found)] - 1
    view = found.data.data
    pieces = [
        view[a:b]
        for a, b in zip(found.at[starts].tolist(), (found.at[ends] + found.length[ends]).tolist(), strict=True)
    ]
    offsets = np.zeros(len(found) + 1, np.int32)
    np.cumsum(found.length, out=offsets[1:])
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(found), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(pieces))]
    )

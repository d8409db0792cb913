"""The life of single messages: every record about them, with its time and address."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from escrowmq.core.records.deliveries import REDELIVERED
from escrowmq.pipeline.blocks import Lookup
from escrowmq.pipeline.columns import Ints, integers
from escrowmq.pipeline.events import Events, Happened, events
from escrowmq.pipeline.frames import Records
from escrowmq.pipeline.identities import MessageIdentity, identity, read_block
from escrowmq.pipeline.messages import OUTCOMES
from escrowmq.pipeline.operations import operations

Places = Mapping[int, Sequence[int]]
"""Positions of messages, by the number of the queue."""
SCHEMA: Final = pa.schema(
    [
        ("queue_id", pa.int64()),
        ("position", pa.int64()),
        ("lsn", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("what", pa.string()),
        ("message_id", pa.string()),
        ("correlation_id", pa.string()),
        ("publisher", pa.string()),
    ]
)
DDL: Final = (
    "queue_id long, position long, lsn long, at timestamp_ltz, what string, message_id string, correlation_id string, "
    "publisher string"
)
_PASSIVE: Final = (Happened.HANDED_OUT, Happened.COUNTED, Happened.NEXT, Happened.HELD_IN_SNAPSHOT)


class TracedStep(NamedTuple):
    """A record about a message. The identity is that in the message's content, known where it was published."""

    queue_id: int
    position: int
    lsn: int
    at: int
    what: str
    identity: MessageIdentity = MessageIdentity()


def steps(found: Records, places: Places, lookup: Lookup) -> Iterator[TracedStep]:
    """Yield the records about the messages at these places, in the order of the log."""
    wanted = {queue: integers(sorted(positions)) for queue, positions in places.items()}
    said = events(found, operations(found), lookup)
    rows = said.rows
    chosen = np.isin(rows["queue"], list(wanted)) & ~np.isin(rows["what"], _PASSIVE)
    for i in np.flatnonzero(chosen).tolist():
        row = rows[i]
        for position in _within(wanted[int(row["queue"])], int(row["first"]), int(row["count"])):
            who = MessageIdentity()
            if row["what"] in (Happened.PUBLISHED, Happened.COPIED):
                who = _identity(lookup, int(row["block"]), int(row["index"]) + position - int(row["first"]))
            yield TracedStep(int(row["queue"]), position, int(row["lsn"]), int(row["time"]), _what(said, row), who)


def _within(positions: Ints, first: int, count: int) -> list[int]:
    low, high = np.searchsorted(positions, (first, first + count))
    found: list[int] = positions[low:high].tolist()
    return found


def _identity(lookup: Lookup, lsn: int, index: int) -> MessageIdentity:
    block = read_block(lookup, lsn)
    if block is None or index >= len(block.contents):
        return MessageIdentity()
    return identity(block.envelope, block.contents[index])


def _what(said: Events, row: Any) -> str:
    happened, branch = Happened(int(row["what"])), int(row["branch"])
    text = happened.name.lower().replace("_", " ")
    match happened:
        case Happened.SETTLED | Happened.SETTLED_BY_GROUP:
            text = f"left its queue: {OUTCOMES.get(int(row['code']), 'unknown outcome')}"
        case Happened.DELIVERED:
            again = " again" if int(row["code"]) & REDELIVERED else ""
            text = f"delivered{again} to {said.texts[int(row['text'])].decode('utf-8', 'replace')}"
        case Happened.MOVED | Happened.COPIED:
            text = f"{text} to the block at LSN {int(row['block']):#x}"
        case Happened.RETURNED:
            text = f"returned to its queue, {int(row['index'])} times by now"
        case Happened.MARKED:
            text = f"marked with {int(row['index'])} failed deliveries"
        case Happened.TAKEN:
            text = "reserved for a group of bulk readers"
    return f"{text}, in branch {branch}" if branch > 0 else text


def batch(rows: Iterable[TracedStep]) -> pa.RecordBatch:
    """Return steps as rows of the table."""
    found = [(*row[:-1], *row.identity) for row in rows]
    columns = zip(*found, strict=True) if found else ((),) * len(SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

"""Convert between MessageColumns and rows of the silver table `messages`, which have names and timestamps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.core.queues.outcome import Outcome
from escrowmq.pipeline.columns import Ints, distinct
from escrowmq.pipeline.identity_columns import IdentityColumns
from escrowmq.pipeline.lifecycle import HISTORY_GONE, QUEUE_DELETED, is_open
from escrowmq.pipeline.message_columns import COLUMNS, MessageColumns, used

BATCH: Final = 50_000
KNOWN_TEXTS: Final = 65_536
"""Texts of envelopes whose parts are kept, since they repeat in every batch."""
OUTCOMES: Final[dict[int, str | None]] = {
    0: None,
    **{int(outcome): outcome.name.lower().replace("_", " ") for outcome in Outcome},
    QUEUE_DELETED: "queue deleted",
    HISTORY_GONE: "history gone",
}
_OUTCOME_OF: Final = {name: number for number, name in OUTCOMES.items()}

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
# Column of the table, its type, and the column of MessageColumns that it is made from.
_PLAIN: Final[list[tuple[str, pa.DataType, str]]] = [
    ("queue_id", pa.int64(), "queue"),
    ("position", pa.int64(), "position"),
    ("published_at", _TIMESTAMP, "came_ms"),
    ("confirmed_at", _TIMESTAMP, "publish_us"),
    ("publish_lsn", pa.int64(), "publish_lsn"),
    ("publish_frame_lsn", pa.int64(), "publish_frame"),
    ("publish_order", pa.int32(), "publish_order"),
    ("publish_branch", pa.int64(), "publish_branch"),
    ("publications", pa.int32(), "publications"),
    ("bytes", pa.int64(), "size"),
    ("digest", pa.int64(), "digest"),
    ("block_lsn", pa.int64(), "block"),
    ("block_index", pa.int64(), "index"),
    ("deliveries", pa.int32(), "deliveries"),
    ("redeliveries", pa.int32(), "redeliveries"),
    ("first_delivered_at", _TIMESTAMP, "first_delivered_us"),
    ("last_delivered_at", _TIMESTAMP, "last_delivered_us"),
    ("first_delivered_lsn", pa.int64(), "first_delivered_lsn"),
    ("last_delivery_flags", pa.int32(), "last_flags"),
    ("held_for_group", pa.int32(), "taken"),
    ("returned", pa.int32(), "returned"),
    ("failures", pa.int32(), "failures"),
    ("settled_at", _TIMESTAMP, "settle_us"),
    ("settle_lsn", pa.int64(), "settle_lsn"),
    ("settle_frame_lsn", pa.int64(), "settle_frame"),
    ("settle_branch", pa.int64(), "settle_branch"),
    ("settlements", pa.int32(), "settlements"),
    ("snapshot_lsn", pa.int64(), "held"),
    ("findings", pa.int32(), "findings"),
    ("reported", pa.int32(), "reported"),
    ("finding_lsn", pa.int64(), "finding_lsn"),
]
_ZERO_IS_NULL: Final = frozenset({"publish_branch", "settle_branch", "held"})
SCHEMA: Final = pa.schema(
    [
        ("queue", pa.string()),
        ("vhost", pa.string()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("priority", pa.int16()),
        ("envelope", pa.binary()),
        ("consumer", pa.string()),
        ("outcome", pa.string()),
        *((name, pa.string()) for name in IdentityColumns._fields),
        ("committed_at", _TIMESTAMP),
        *((name, type_) for name, type_, _ in _PLAIN),
        ("state", pa.string()),
        ("day", pa.date32()),
    ]
)


class Names(NamedTuple):
    """The virtual host and name of each queue, by queue number."""

    queues: Mapping[int, tuple[str, str]]


def batches(messages: MessageColumns, names: Names) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the table, in batches of at most BATCH rows."""
    for begin in range(0, len(messages), BATCH):
        yield _batch(messages.take(slice(begin, begin + BATCH)), names)


def _batch(messages: MessageColumns, names: Names) -> pa.RecordBatch:
    queues = distinct(messages["queue"])
    inverse = np.searchsorted(queues, messages["queue"])
    known = [names.queues.get(queue, ("", f"queue {queue}")) for queue in queues.tolist()]
    texts, text = used(messages.texts, messages["text"])  # the others are those of other batches
    consumers, consumer = used(messages.consumers, messages["consumer"])
    heads = [_names(each) for each in texts]
    columns = {
        "queue": _coded([name for _, name in known], inverse),
        "vhost": _coded([vhost for vhost, _ in known], inverse),
        "exchange": _coded([head[0] for head in heads], text),
        "routing_key": _coded([head[1] for head in heads], text),
        "priority": _coded([head[2] for head in heads], text, pa.int16()),
        "envelope": _coded(texts, text, pa.binary()),
        "consumer": _coded([_text(name) for name in consumers], consumer),
        "outcome": _outcomes(messages["outcome"]),
    }
    columns |= messages.identities()._asdict()
    for name, type_, source in _PLAIN:
        values = messages[source]
        missing = values == 0 if source in _ZERO_IS_NULL else values < 0
        if source == "came_ms":
            values = values * 1000
        columns[name] = pa.array(values, pa.int64(), mask=missing if missing.any() else None).cast(type_)
    by_none = pa.array(messages["publish_branch"] <= 0)
    columns["committed_at"] = pc.if_else(by_none, pa.scalar(None, _TIMESTAMP), columns["confirmed_at"])
    columns["state"] = _coded(["open", "settled"], (~is_open(messages)).astype(np.int64))
    moment = np.where(messages["publish_us"] >= 0, messages["publish_us"], messages["settle_us"])
    columns["day"] = pa.array((moment // 86_400_000_000).astype(np.int32), pa.int32(), mask=moment < 0).cast(
        pa.date32()
    )
    return pa.RecordBatch.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA)


def from_rows(batch: pa.RecordBatch) -> MessageColumns:
    """Return the columns of open messages that an earlier run wrote to the table."""
    found = MessageColumns.empty(len(batch))
    for name, _, source in _PLAIN:
        column = batch.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        values = column.cast(pa.int64()).fill_null(COLUMNS[source]).to_numpy(zero_copy_only=False).astype(np.int64)
        found[source][:] = np.where(values >= 0, values // 1000, values) if source == "came_ms" else values
    found["reported"][:] = found["findings"]
    found.texts, found["text"][:] = _numbers(batch.column("envelope"))
    found.consumers, found["consumer"][:] = _numbers(batch.column("consumer").cast(pa.binary()))
    found.ids = IdentityColumns(*(batch.column(name).cast(pa.string()) for name in IdentityColumns._fields))
    found["ident"][:] = np.arange(len(batch))
    return found


def _numbers(column: pa.Array) -> tuple[list[bytes], Ints]:
    coded = column.dictionary_encode()
    numbers = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return coded.dictionary.to_pylist(), numbers


def _coded(values: list[str] | list[bytes] | list[int], numbers: Ints, type_: pa.DataType | None = None) -> pa.Array:
    """Return the values at the indexes `numbers`; null for a negative index."""
    known = pa.array(values, type_ or pa.string())
    missing = numbers < 0
    return known.take(pa.array(numbers, pa.int64(), mask=missing if missing.any() else None))


def _outcomes(numbers: Ints) -> pa.Array:
    names = [OUTCOMES.get(n, f"outcome {n}") for n in range(int(numbers.max(initial=0)) + 1)]
    return pa.array(names, pa.string()).take(pa.array(numbers))


@lru_cache(KNOWN_TEXTS)
def _names(text: bytes) -> tuple[str, str, int]:
    """Exchange, routing key and priority from the text of an envelope."""
    if len(text) < 13:
        return "", "", 0
    at = 13 + int.from_bytes(text[11:13], "little")
    return _text(text[13:at]), _text(text[at + 2 :]), text[2]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")

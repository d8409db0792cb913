"""The audit's state of messages as columns of integers, with one row for each message on each queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from escrowmq.pipeline import identity_columns
from escrowmq.pipeline.columns import Ints, numbered
from escrowmq.pipeline.identity_columns import IdentityColumns

COLUMNS: Final[dict[str, int]] = {
    "queue": 0,
    "position": 0,
    "publications": 0,
    "publish_lsn": -1,
    "publish_order": -1,
    "publish_frame": -1,
    "publish_us": -1,
    "came_ms": -1,
    "publish_branch": 0,
    "text": -1,
    "ident": -1,
    "size": -1,
    "digest": -1,
    "block": -1,
    "index": 0,
    "deliveries": 0,
    "redeliveries": 0,
    "first_delivered_us": -1,
    "last_delivered_us": -1,
    "first_delivered_lsn": -1,
    "consumer": -1,
    "returned": 0,
    "failures": -1,
    "settlements": 0,
    "settle_lsn": -1,
    "settle_frame": -1,
    "settle_us": -1,
    "settle_branch": 0,
    "outcome": 0,
    "findings": 0,
    "finding_lsn": -1,
    "reported": 0,
    "held": 0,
    "taken": 0,
    "last_flags": 0,
}
"""The columns, each with its value for "unknown" or "none". Names of times end in their unit, `_us` or `_ms`."""


@dataclass(slots=True)
class MessageColumns:
    """Facts about messages, one integer column for each kind of fact.

    Args:
        columns: the columns of COLUMNS, all of one length.
        texts: envelopes up to and including the routing key; the column `text` is an index into this list.
        consumers: names of consumers; the column `consumer` is an index into this list.
        ids: identities of messages; the column `ident` is an index into them.
    """

    columns: dict[str, Ints]
    texts: list[bytes] = field(default_factory=list)
    consumers: list[bytes] = field(default_factory=list)
    ids: IdentityColumns = field(default_factory=lambda: identity_columns.nothing(0))

    @classmethod
    def empty(cls, count: int) -> MessageColumns:
        """`count` rows about which nothing is known."""
        return cls({name: np.full(count, value, np.int64) for name, value in COLUMNS.items()})

    def __getitem__(self, name: str) -> Ints:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["queue"])

    def take(self, rows: npt.NDArray[Any] | slice) -> MessageColumns:
        """Select rows by index, mask or slice."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return MessageColumns(columns, self.texts, self.consumers, self.ids)

    def identities(self) -> IdentityColumns:
        """Return the identity of each message."""
        return self.ids.take(self["ident"])

    def report(self, rows: npt.NDArray[Any], finding: int, lsns: Ints | int) -> None:
        """Add `finding` to these rows. `lsns` are the addresses of the records that show it."""
        self["findings"][rows] |= finding
        self["finding_lsn"][rows] = lsns

    def pack(self) -> bytes:
        """Serialize as compressed Arrow streams: the names that are referred to, the columns, and the identities."""
        texts, text = used(self.texts, self["text"])
        consumers, consumer = used(self.consumers, self["consumer"])
        known = np.flatnonzero(self["ident"] >= 0)
        ident = self["ident"].copy()
        ident[known] = np.arange(len(known))
        columns = {**self.columns, "text": text, "consumer": consumer, "ident": ident}
        batch = pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})
        names = pa.RecordBatch.from_pydict({"name": pa.array(texts + consumers, pa.binary())})
        sink = pa.BufferOutputStream()
        for part in (names, batch):
            schema = part.schema.with_metadata({"texts": str(len(texts))})
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            with pa.ipc.new_stream(sink, schema, options=options) as writer:
                writer.write_batch(part)
        return bytes(sink.getvalue()) + identity_columns.pack(self.ids.take(self["ident"][known]))

    @classmethod
    def unpack(cls, data: bytes) -> MessageColumns:
        """Restore what `pack` has written."""
        source = pa.BufferReader(data)
        with pa.ipc.open_stream(source) as reader:
            count = int(reader.schema.metadata[b"texts"])
            names = reader.read_all().column("name").to_pylist()
        with pa.ipc.open_stream(source) as reader:
            table = reader.read_all()
        ids = identity_columns.unpack(source.read())
        columns = {name: table.column(name).to_numpy().copy() for name in COLUMNS}
        return cls(columns, names[:count], names[count:], ids)


def used(names: list[bytes], numbers: Ints) -> tuple[list[bytes], Ints]:
    """Drop the names without a reference, and renumber the references."""
    known = numbers >= 0
    whole = bool(known.all())
    found, number = numbered(numbers if whole else numbers[known], len(names))
    if not whole:
        every = np.full(len(numbers), -1, np.int64)
        every[known] = number
        number = every
    return [names[i] for i in found.tolist()], number


def joined(parts: list[MessageColumns], count: int) -> MessageColumns:
    """Concatenate `parts`, and append `count` rows about which nothing is known."""
    messages = MessageColumns.empty(count)
    texts: list[bytes] = []
    consumers: list[bytes] = []
    identified = 0
    columns: dict[str, list[Ints]] = {name: [] for name in COLUMNS}
    for part in parts:
        for name, column in part.columns.items():
            if name == "text":
                column = np.where(column >= 0, column + len(texts), column)
            elif name == "consumer":
                column = np.where(column >= 0, column + len(consumers), column)
            elif name == "ident":
                column = np.where(column >= 0, column + identified, column)
            columns[name].append(column)
        texts += part.texts
        consumers += part.consumers
        identified += len(part.ids.message_id)
    whole = {name: np.concatenate([*columns[name], messages[name]]) for name in COLUMNS}
    return MessageColumns(whole, texts, consumers, identity_columns.concatenated([part.ids for part in parts]))

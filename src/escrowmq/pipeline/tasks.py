"""The tasks that Spark's executors run on pieces of the journal: functions from Arrow batches to Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain as chain_
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa

from escrowmq.core.records.kinds import Kind
from escrowmq.journal.bulk import Damaged
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.frames import JournalFile
from escrowmq.journal.reader import JournalReader
from escrowmq.pipeline import (
    branches,
    chain,
    digests,
    frames,
    groups,
    half,
    lifecycle,
    links,
    messages,
    packing,
    routing,
    traces,
)
from escrowmq.pipeline.columns import U32, integers, take
from escrowmq.pipeline.events import BUCKET_BITS, TARGET, Events, events
from escrowmq.pipeline.frames import Records, records
from escrowmq.pipeline.message_columns import MessageColumns
from escrowmq.pipeline.names import TOLD
from escrowmq.pipeline.operations import operations
from escrowmq.pipeline.planning import Piece
from escrowmq.pipeline.topology import TopologyHistory

NAMED: Final = (
    Kind.QUEUE_DECLARED,
    Kind.QUEUE_DELETED,
    Kind.TERMINUS_SET,
    Kind.TERMINUS_DELETED,
    Kind.GROUP_SET,
    Kind.GROUP_DELETED,
    *(kind for kind in sorted(TOLD) if kind not in (Kind.QUEUE_DECLARED, Kind.QUEUE_DELETED)),
)
"""The kinds of records about names, link termini and consumer groups, which Scan returns."""

SET_BACK_US: Final = 23 * 3_600_000_000
"""The broker's time goes back only if it was ahead by a day or more."""
SET_BACK: Final = -1
BEGINS: Final = -2

SCAN_SCHEMA: Final = pa.schema(
    [
        ("file", pa.string()),
        ("snapshot", pa.int64()),
        ("lsn", pa.int64()),
        ("frame", pa.int64()),
        ("time", pa.int64()),
        ("kind", pa.int32()),
        ("number", pa.int64()),
        ("payload", pa.binary()),
    ]
)
SCAN_DDL: Final = "file string, snapshot long, lsn long, frame long, time long, kind int, number long, payload binary"
"""A row is a record of NAMED, or of removed segments, a summary of a piece, a hand-out, or a queue from which link
termini have acquired messages, or tells when frames were written.

A summary has kind 0, and either the `number` of records, or damage described by `payload`. A hand-out has kind
DELIVERED, and says that the queue `number` has been handed out up to below the position `time`. Such a queue has kind
ACQUIRED, and is the `number`. The kind SET_BACK says that the frame at `lsn` is much older than the frame before it in
the piece, and BEGINS when the first frame of the piece was written.
"""

PIECES_DDL: Final = "file string, first long, end long, snapshot long"
Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Scan:
    """Checks every frame of pieces, counts records, and picks out those of NAMED and of removed segments."""

    journal: str

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for piece in _pieces_of(batches):
            rows: list[tuple[str, int, int, int, int, int, int, bytes]] = []
            count, last = 0, 0
            broken: list[Damaged] = []
            for found in _records(self.journal, piece, broken):
                for i in found.of_kind(*NAMED, Kind.REMOVED).tolist():
                    numbers = (int(column[i]) for column in (found.lsn, found.frame, found.time, found.kind))
                    lsn, frame, time, kind = numbers
                    rows.append((piece.file, piece.snapshot, lsn, frame, time, kind, 0, bytes(found.payload(i))))
                rows += [(piece.file, piece.snapshot, *said, b"") for said in _handed_out(found)]
                rows += [(piece.file, piece.snapshot, 0, 0, 0, int(Kind.ACQUIRED), n, b"") for n in _acquired(found)]
                if piece.snapshot < 0:
                    rows += _times(piece, found, last)
                count += len(found)
                last = int(found.time[-1])
            rows.append((piece.file, piece.snapshot, piece.first, piece.first, last, 0, count, b""))
            for each in broken:
                text = f"{each.why}; {each.end - each.lsn} bytes up to LSN {each.end:#x} cannot be read"
                rows.append((piece.file, piece.snapshot, each.lsn, each.end, last, 0, 0, text.encode()))
            columns = zip(*rows, strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, SCAN_SCHEMA, strict=True)],
                schema=SCAN_SCHEMA,
            )


def _handed_out(found: Records) -> Iterator[tuple[int, int, int, int, int]]:
    """LSN, frame, position, kind and queue of the DELIVERED records that other buckets and later runs need.

    Those are, for each queue, the first record that reaches into each bucket of positions, and the one with the highest
    position.
    """
    chosen = found.of_kind(Kind.DELIVERED)
    targets = take(found.data, found.at[chosen], TARGET)
    queue, below = integers(targets["queue"]), integers(targets["first"])
    bucket = (below - 1) >> BUCKET_BITS
    first = np.unique(np.c_[queue, bucket], axis=0, return_index=True)[1]
    order = np.lexsort((-np.arange(len(queue)), below, queue))
    last = order[np.flatnonzero(np.r_[np.diff(queue[order]) != 0, len(order) > 0])]
    for i in np.unique(np.r_[first, last]).tolist():
        record = chosen[i]
        yield int(found.lsn[record]), int(found.frame[record]), int(below[i]), int(Kind.DELIVERED), int(queue[i])


def _times(piece: Piece, found: Records, last: int) -> Iterator[tuple[str, int, int, int, int, int, int, bytes]]:
    """Yield rows about frames that are much older than the one before. `last` is when the frame before was written."""
    where = (piece.file, piece.snapshot)
    if not last:
        yield *where, int(found.frame[0]), int(found.frame[0]), int(found.time[0]), BEGINS, 0, b""
    back = np.flatnonzero(found.time + SET_BACK_US < np.r_[last, found.time[:-1]])
    for i in back.tolist():
        yield *where, int(found.frame[i]), int(found.frame[i]), int(found.time[i]), SET_BACK, 0, b""


def _acquired(found: Records) -> list[int]:
    """Return the queues that ACQUIRED records name."""
    queues = take(found.data, found.at[found.of_kind(Kind.ACQUIRED)] + 8, U32)
    return [int(queue) for queue in np.unique(queues)]


@dataclass(frozen=True, slots=True)
class Chained:
    """Computes the digests of segments, and compares their frames with those that the frames have, up to the end of
    each piece. The last audit ended at the LSN `past`.
    """

    journal: str
    past: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        reader = JournalReader.open(self.journal)
        try:
            for piece in _pieces_of(batches):
                file = reader.file(piece.file)
                row = chain.examined(file, piece.end, self.past, partial(digests.before, reader, file))
                yield pa.RecordBatch.from_pylist([row], schema=chain.SCHEMA)
        finally:
            reader.close()


@dataclass(frozen=True, slots=True)
class Bronze:
    """Converts the records of pieces to rows of the bronze table."""

    journal: str
    payloads: bool

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for piece in _pieces_of(batches):
            if piece.snapshot < 0:
                for found in _records(self.journal, piece):
                    yield frames.table(found, payloads=self.payloads)


@dataclass(frozen=True, slots=True)
class Happenings:
    """Converts pieces to events, packed by part of the work. `ids` says whether messages' identities are read."""

    journal: str
    parts: int
    ids: bool

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        reader = JournalReader.open(self.journal)
        lookup = BlockLookup(reader)
        try:
            for piece in _pieces_of(batches):
                for found in _records(self.journal, piece):
                    snapshot = piece.snapshot if piece.snapshot >= 0 else None
                    said = events(found, operations(found), lookup, snapshot, ids=self.ids)
                    packed = list(packing.pack(said, self.parts))
                    if packed:
                        yield packing.batch(packed)
        finally:
            reader.close()


@dataclass(frozen=True, slots=True)
class Reopen:
    """Packs messages that an earlier run left open, by part of the work."""

    parts: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            known = messages.from_rows(batch)
            owner = packing.part_of(known["queue"], known["position"], self.parts)
            for part in np.unique(owner).tolist():
                data = known.take(np.flatnonzero(owner == part)).pack()
                columns = [[part], [-1], [b""], [[]], [b""], [None], [data]]
                yield pa.RecordBatch.from_arrays(
                    [pa.array(column, field.type) for column, field in zip(columns, packing.SCHEMA, strict=True)],
                    schema=packing.SCHEMA,
                )


@dataclass(frozen=True, slots=True)
class Lives:
    """Combines the events of each part into rows of `messages`. The rows of a part arrive together and in order."""

    facts: lifecycle.MessageFacts
    names: messages.Names

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        part = None
        found: list[Events] = []
        before: list[MessageColumns] = []
        for batch in batches:
            for row in batch.to_pylist():
                if part is not None and row["part"] != part:
                    yield from self._finish(found, before)
                    found, before = [], []
                part = row["part"]
                if row["open"] is not None:
                    before.append(MessageColumns.unpack(row["open"]))
                else:
                    found.append(packing.unpack(row["rows"], row["texts"], row["bodies"], row["ids"]))
        if part is not None:
            yield from self._finish(found, before)

    def _finish(self, found: list[Events], before: list[MessageColumns]) -> Iterator[pa.RecordBatch]:
        known = lifecycle.lives(packing.joined(found), before, self.facts)
        found.clear()
        yield from messages.batches(known, self.names)


@dataclass(frozen=True, slots=True)
class Routes:
    """Routes the messages of pieces again, from the LSN `first` on. `sample` is the share of the records to check."""

    journal: str
    history: TopologyHistory
    sample: float
    first: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        reader = JournalReader.open(self.journal)
        lookup = BlockLookup(reader)
        try:
            for piece in _pieces_of(batches):
                if piece.snapshot < 0:
                    routes = routing.RouteCheck(self.history, lookup, self.sample, self.first)
                    every = (routes.check(found, operations(found)) for found in _records(self.journal, piece))
                    wrong = list(islice(chain_.from_iterable(every), routing.MOST))
                    yield routing.batch(wrong, routes.checked, routes.untold)
        finally:
            reader.close()


@dataclass(frozen=True, slots=True)
class Traces:
    """Finds every record about messages at some places."""

    journal: str
    places: traces.Places

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        reader = JournalReader.open(self.journal)
        lookup = BlockLookup(reader)
        try:
            for piece in _pieces_of(batches):
                if piece.snapshot < 0:
                    for found in _records(self.journal, piece):
                        yield traces.batch(traces.steps(found, self.places, lookup))
        finally:
            reader.close()


@dataclass(frozen=True, slots=True)
class Branches:
    """Extracts the steps of transaction branches from pieces."""

    journal: str

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for piece in _pieces_of(batches):
            for found in _records(self.journal, piece):
                yield branches.steps(found, operations(found), snapshot=piece.snapshot)


@dataclass(frozen=True, slots=True)
class Links:
    """Extracts the steps of deliveries of link termini."""

    journal: str
    watched: links.Watched

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for piece in _pieces_of(batches):
            for found in _records(self.journal, piece):
                yield links.steps(found, operations(found), self.watched, piece.snapshot)


@dataclass(frozen=True, slots=True)
class JudgedLinks:
    """Judges the steps of deliveries. All rows of a part arrive together."""

    facts: links.LinkFacts

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from links.judge(pa.Table.from_batches(list(batches), links.SCHEMA), self.facts).to_batches()


@dataclass(frozen=True, slots=True)
class HalfSteps:
    """Extracts the steps of half messages."""

    journal: str

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for piece in _pieces_of(batches):
            for found in _records(self.journal, piece):
                yield half.steps(found, operations(found), piece.snapshot)


@dataclass(frozen=True, slots=True)
class JudgedHalf:
    """Judges the steps of half messages. All rows of a part arrive together."""

    start: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from half.judge(pa.Table.from_batches(list(batches), half.SCHEMA), self.start).to_batches()


@dataclass(frozen=True, slots=True)
class GroupSteps:
    """Extracts the steps of consumer groups. `streams` are the numbers of all streams."""

    journal: str
    streams: frozenset[int]

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for piece in _pieces_of(batches):
            for found in _records(self.journal, piece):
                yield groups.steps(found, operations(found), self.streams, piece.snapshot)


@dataclass(frozen=True, slots=True)
class JudgedGroups:
    """Judges the steps of consumer groups. All rows of a stream arrive together."""

    facts: groups.GroupFacts

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from groups.judge(pa.Table.from_batches(list(batches), groups.SCHEMA), self.facts).to_batches()


class BlockLookup:
    """Looks up blocks in other parts of the log."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._files: dict[str, JournalFile] = {}
        self._starts = reader.segment_starts()

    def __call__(self, lsn: int, length: int) -> bytes | None:
        name = next((name for start, name in reversed(self._starts) if start <= lsn), None)
        if name is None:
            return None
        try:
            file = self._files.get(name) or self._reader.file(name)
            self._files[name] = file
            data = file.storage.read(name, file.offset_of(lsn), length)
        except (FileNotFoundError, JournalDamaged):
            return None
        return data if len(data) == length else None


def _pieces_of(batches: Batches) -> Iterator[Piece]:
    for batch in batches:
        for row in batch.to_pylist():
            yield Piece(row["file"], row["first"], row["end"], row["snapshot"])


def _records(journal: str, piece: Piece, broken: list[Damaged] | None = None) -> Iterator[Records]:
    """Yield the records in valid frames of a piece. Damage is appended to `broken`."""
    reader = JournalReader.open(journal)
    try:
        skipped = [] if broken is None else broken
        for window in reader.windows(piece.file, piece.first, piece.end, skipped=skipped):
            yield records(window)
    finally:
        reader.close()

"""Follow the unsettled deliveries of link termini: tags that arrived, and messages that termini have acquired (SET).

A *thing* is a delivery tag of an incoming terminus, or a position of a queue from which a terminus has acquired
messages. All steps of one thing are judged together, in the order of the log.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from escrowmq.core.records.deliveries import SETTLED, decode_deliveries
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.settling import decode_settle
from escrowmq.core.records.termini import decode_acquired, decode_arrived, decode_forgotten, decode_given_back
from escrowmq.pipeline.columns import Ints
from escrowmq.pipeline.findings import LinkRule, Rule
from escrowmq.pipeline.frames import Records
from escrowmq.pipeline.operations import Operations


class Step(IntEnum):
    """What happened to a tag or a message."""

    ARRIVED = 1
    FORGOTTEN = 2
    ACQUIRED = 3
    GIVEN_BACK = 4
    SETTLED = 5
    HELD_IN_SNAPSHOT = 6
    DELIVERED = 7


class DurableLink(NamedTuple):
    """A link whose terminus acquires every message before it is delivered, from the LSN `since` up to `end`.

    `label` names it in records of deliveries, which only a log with details has.
    """

    terminus: int
    vhost: str
    label: str
    since: int
    end: int


class Watched(NamedTuple):
    """Queues and links whose steps are extracted.

    Args:
        queues: the queues from which termini have acquired messages; settlements on others are ignored.
        vhosts: the virtual host of each queue from which durable links may deliver.
        links: the durable links.
    """

    queues: Collection[int] = frozenset()
    vhosts: Mapping[int, str] = {}
    links: Collection[DurableLink] = ()

    def terminus(self, queue: int, label: str, lsn: int) -> int | None:
        """Return the terminus over whose link a message of a queue was delivered."""
        vhost = self.vhosts.get(queue)
        for link in self.links:
            if link.label == label and link.vhost == vhost and link.since <= lsn < link.end:
                return link.terminus
        return None


class LinkFacts(NamedTuple):
    """Facts that apply to all things.

    Args:
        start: the LSN from which the log is complete.
        gone: the LSN of the deletion of each deleted terminus.
        deleted: the LSN of the deletion of each deleted queue.
        told: the LSN from which all acquired messages are known.
    """

    start: int = 0
    gone: Mapping[int, int] = {}
    deleted: Mapping[int, int] = {}
    told: int = 0


def told(start: int, compared: int, snapshots: Collection[int]) -> int:
    """Return the LSN from which all acquired messages are known: that of the first snapshot behind the gaps.

    Args:
        start: the LSN from which the log is complete.
        compared: the LSN of the last snapshot that an earlier run has compared with the log, -1 for none.
        snapshots: the LSNs of the snapshots that this run compares with it.
    """
    return start if not start or compared >= start else min(snapshots, default=_NEVER)


SCHEMA: Final = pa.schema(
    [
        ("part", pa.int64()),
        ("place", pa.int64()),
        ("key", pa.binary()),
        ("step", pa.int8()),
        ("terminus", pa.int64()),
        ("lsn", pa.int64()),
        ("past", pa.int64()),
        ("since", pa.int64()),
        ("wrong", pa.string()),
    ]
)
DDL: Final = (
    "part long, place long, key binary, step tinyint, terminus long, lsn long, past long, since long, wrong string"
)
"""A row is a step, and in the result an unsettled thing or a violation.

`place` is the queue's number, or minus the number of the terminus for a tag; `key` is the tag, or the position in eight
bytes, most significant first. `since` is when the frame was written, in microseconds; in the result, since when the
thing is unsettled. `past` is the LSN of the step that a violation contradicts, `wrong` a key of WRONG, or empty. All
rows of a thing have the same `part`.
"""

WRONG: Final[Mapping[str, Rule]] = {
    "arrived": LinkRule.ARRIVED_TWICE,
    "acquired": LinkRule.ACQUIRED_TWICE,
    "settled": LinkRule.AFTER_SETTLEMENT,
    "unacquired": LinkRule.UNACQUIRED,
}
_PARTS: Final = 1 << 16
_NEVER: Final = int(np.iinfo(np.int64).max)
_HOLDS: Final = (Step.ARRIVED, Step.ACQUIRED, Step.HELD_IN_SNAPSHOT)


def steps(records: Records, operations: Operations, watched: Watched, snapshot: int) -> pa.RecordBatch:
    """Extract the steps in `records`.

    Args:
        records: records of the log or of a snapshot.
        operations: the operations in these records.
        watched: the queues and links in question.
        snapshot: the LSN at which the snapshot was taken; -1 for records of the log.
    """
    rows: list[tuple[int, bytes, int, int, int, int]] = []
    kinds = [Kind.ARRIVED, Kind.FORGOTTEN, Kind.ACQUIRED, Kind.GIVEN_BACK]
    kinds += [Kind.SETTLE] if watched.queues else []
    kinds += [Kind.DELIVERIES] if watched.links else []
    for i in operations.of_kind(*kinds).tolist():
        record, at = int(operations.record[i]), int(operations.at[i])
        payload = records.data.data[at : at + int(operations.length[i])]
        lsn = int(records.lsn[record] + operations.order[i]) if snapshot < 0 else snapshot
        since = int(records.time[record])
        for place, key, step, terminus in _things(Kind(int(operations.kind[i])), payload, watched, lsn):
            rows.append((place, key, step if snapshot < 0 else Step.HELD_IN_SNAPSHOT, terminus, lsn, since))
    columns: list[list[Any]] = [[row[i] for row in rows] for i in range(6)]
    part = [zlib.crc32(row[1]) % _PARTS for row in rows]
    columns = [part, *columns[:5], [0] * len(rows), columns[5], [""] * len(rows)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _things(kind: Kind, payload: memoryview, watched: Watched, lsn: int) -> Iterator[tuple[int, bytes, Step, int]]:
    if kind is Kind.ARRIVED:
        arrived = decode_arrived(payload)
        yield from ((-arrived.terminus, tag, Step.ARRIVED, arrived.terminus) for tag in arrived.tags)
    elif kind is Kind.FORGOTTEN:
        forgotten = decode_forgotten(payload)
        yield from ((-forgotten.terminus, tag, Step.FORGOTTEN, forgotten.terminus) for tag in forgotten.tags)
    elif kind is Kind.ACQUIRED:
        acquired = decode_acquired(payload)
        for _, first, length in acquired.ranges:
            yield from _positions(acquired.queue, first, length, Step.ACQUIRED, acquired.terminus)
    elif kind is Kind.GIVEN_BACK:
        back = decode_given_back(payload)
        for first, length in back.ranges:
            yield from _positions(back.queue, first, length, Step.GIVEN_BACK, back.terminus)
    elif kind is Kind.DELIVERIES:
        delivered = decode_deliveries(payload)
        for part in delivered.parts:
            terminus = None if part.flags & SETTLED else watched.terminus(delivered.queue, part.consumer, lsn)
            if terminus is not None:
                for first, length in part.ranges:
                    yield from _positions(delivered.queue, first, length, Step.DELIVERED, terminus)
    else:
        settled = decode_settle(payload)
        if settled.queue in watched.queues:
            for first, length in settled.ranges:
                yield from _positions(settled.queue, first, length, Step.SETTLED, 0)


def _positions(
    queue: int, first: int, length: int, step: Step, terminus: int
) -> Iterator[tuple[int, bytes, Step, int]]:
    return ((queue, position.to_bytes(8, "big"), step, terminus) for position in range(first, first + length))


def judge(found: pa.Table, facts: LinkFacts) -> pa.Table:
    """Judge all steps of some things. Return the violations, and the things that are unsettled at the end."""
    found = found.sort_by([("place", "ascending"), ("key", "ascending"), ("lsn", "ascending")])
    delivered = _delivered_without_acquisition(found, facts)
    found = found.filter(pc.not_equal(found["step"], int(Step.DELIVERED)))
    if not len(found):
        return delivered
    column = {name: found[name].to_numpy() for name in ("place", "step", "terminus", "lsn", "since")}
    keys = found["key"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    place, step, lsn = column["place"], column["step"], column["lsn"]
    same = np.r_[False, (np.diff(place) == 0) & (np.diff(keys) == 0)]  # as the step before
    end = _ends(place, column["terminus"], facts)
    holds = np.isin(step, _HOLDS) & (lsn >= facts.start)
    known = np.r_[False, lsn[:-1] >= facts.start] & same
    held = known & np.r_[False, holds[:-1]] & (np.r_[0, end[:-1]] > lsn)
    settled = known & np.r_[False, step[:-1] == Step.SETTLED]
    again = np.select(
        [held & (step == Step.ARRIVED), held & (step == Step.ACQUIRED), settled & (step == Step.ACQUIRED)],
        ["arrived", "acquired", "settled"],
        "",
    )
    wrong = np.flatnonzero(again != "")
    last = np.r_[~same[1:], True]
    kept = np.flatnonzero(last & holds & (end == _NEVER))
    since = _since(column["since"], held & (step == Step.HELD_IN_SNAPSHOT))
    past = np.r_[0, lsn[:-1]]
    broken = _with(found.take(wrong), past=past[wrong], wrong=again[wrong])
    return pa.concat_tables([broken, delivered, _with(found.take(kept), since=since[kept])])


def _delivered_without_acquisition(found: pa.Table, facts: LinkFacts) -> pa.Table:
    """Return the deliveries, in sorted steps, before which their own terminus had not acquired the message. Deliveries
    after the settlement are found among the messages.
    """
    step = found["step"].to_numpy()
    if not (step == Step.DELIVERED).any():
        return found.slice(0, 0)
    place, terminus, lsn = (found[name].to_numpy() for name in ("place", "terminus", "lsn"))
    keys = found["key"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    at = np.arange(len(step))
    before = np.maximum.accumulate(np.where(step == Step.DELIVERED, -1, at))
    known = (before >= 0) & (place[before] == place) & (keys[before] == keys)
    held = known & np.isin(step[before], _HOLDS) & (terminus[before] == terminus)
    settled = known & (step[before] == Step.SETTLED)
    complete = (lsn >= facts.told) | (known & (lsn[before] >= facts.start))
    wrong = np.flatnonzero((step == Step.DELIVERED) & ~held & ~settled & (lsn >= facts.start) & complete)
    past = np.where(known, lsn[before], lsn)[wrong]
    return _with(found.take(wrong), past=past, wrong=np.full(len(wrong), "unacquired"))


def _ends(place: Ints, terminus: Ints, facts: LinkFacts) -> Ints:
    """Return the LSN at which each step's terminus or queue was deleted; _NEVER if it was not."""
    end = np.full(len(place), _NEVER, np.int64)
    for column, ends in ((terminus, facts.gone), (place, facts.deleted)):
        values, inverse = np.unique(column, return_inverse=True)
        end = np.minimum(end, np.array([ends.get(value, _NEVER) for value in values.tolist()], np.int64)[inverse])
    return end


def _since(since: Ints, continued: Any) -> Ints:
    """Return since when each thing is unsettled. `continued` steps are as old as those before them."""
    first = np.maximum.accumulate(np.where(continued, 0, np.arange(len(since))))
    return since[first]


def _with(table: pa.Table, **columns: Any) -> pa.Table:
    for name, values in columns.items():
        i = SCHEMA.get_field_index(name)
        table = table.set_column(i, SCHEMA.field(i), pa.array(values.tolist(), SCHEMA.field(i).type))
    return table

"""Follow the progress of consumer groups over streams, and their leases (GRP).

All steps of the groups of one stream are judged together, in the order of the log. A lease that runs out leaves no
record, so a member that settles by such a handle is found only if the message was leased again meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa

from escrowmq.core.records.groups import (
    GroupLeased,
    GroupSettled,
    LeasedRange,
    ProgressCause,
    SettledCause,
    SettledRange,
    decode_group_progress,
    decode_group_settled,
    decode_leased,
    encode_group_progress,
    encode_group_settled,
    encode_leased,
)
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.settling import decode_settle
from escrowmq.pipeline.findings import GroupRule, Rule
from escrowmq.pipeline.frames import Records
from escrowmq.pipeline.operations import Operations


class StepSource(IntEnum):
    """Where a step was found."""

    LOG = 1
    SNAPSHOT = 2
    KNOWN = 3
    """The previous run knows it."""


SCHEMA: Final = pa.schema(
    [
        ("stream", pa.int64()),
        ("group", pa.int64()),
        ("kind", pa.int32()),
        ("source", pa.int8()),
        ("lsn", pa.int64()),
        ("place", pa.int64()),
        ("frame", pa.int64()),
        ("since", pa.int64()),
        ("position", pa.int64()),
        ("payload", pa.binary()),
        ("past", pa.int64()),
        ("wrong", pa.string()),
    ]
)
DDL: Final = (
    "stream long, group long, kind int, source tinyint, lsn long, place long, frame long, since long, position long, "
    "payload binary, past long, wrong string"
)
"""A row is a record, and in the result a part of the state at the end or a violation.

`group` is 0 for what has left the stream, with `position` as the end of that. Otherwise `position` is that of a
violation, and for progress that a previous run knows the floor that was recorded last. `place` orders the steps of a
snapshot, which have one LSN. `since` is the time of the frame in microseconds. `past` is the LSN of the record that a
violation contradicts, `wrong` a key of WRONG, or empty.
"""

WRONG: Final[Mapping[str, Rule]] = {
    "back": GroupRule.WENT_BACK,
    "passed": GroupRule.PASSED,
    "stale": GroupRule.STALE,
    "twice": GroupRule.LEASED_TWICE,
    "settled": GroupRule.LEASED_SETTLED,
    "too often": GroupRule.TOO_OFTEN,
}
_KINDS: Final = (Kind.GROUP_LEASED, Kind.GROUP_SETTLED, Kind.GROUP_PROGRESS)
_ORDER: Final = ("stream", "lsn", "place")
_Violation = tuple[str, int, int, int, int, int]
"""Key of WRONG, group, position, LSN, LSN of the record that is contradicted, time."""


class Terms(NamedTuple):
    """Options of a group from the LSN `since` on."""

    since: int
    most: int
    topic: str
    """The dead-letter topic."""


class Life(NamedTuple):
    """The LSNs of the declaration and the deletion of a queue."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """Facts that apply to all streams.

    Args:
        start: the LSN from which the log is complete.
        vhosts: the virtual host of each stream.
        terms: the options of each group, in order.
        lives: the lives of the queues of each name, by virtual host and name.
        ended: deleted groups, and deleted streams, of which nothing need be known any more.
    """

    start: int
    vhosts: Mapping[int, str]
    terms: Mapping[int, Sequence[Terms]]
    lives: Mapping[tuple[str, str], Sequence[Life]]
    ended: tuple[Collection[int], Collection[int]] = ((), ())

    def most_attempts(self, group: int, stream: int, past: int, lsn: int) -> int | None:
        """Return the attempts that a message may have by the lease at `lsn`, if the lease before that was at `past`.
        None if they are not bounded, because there was no dead-letter topic, or the options are not known.
        """
        before = [terms for terms in self.terms.get(group, ()) if terms.since <= past]
        between = [terms for terms in self.terms.get(group, ()) if past < terms.since <= lsn]
        if not before:
            return None
        found = [before[-1], *between]
        for terms in found:
            lives = self.lives.get((self.vhosts.get(stream, ""), f"{terms.topic}-0"), ())
            if not any(life.begin <= past and lsn < life.end for life in lives):
                return None
        return max(terms.most for terms in found)


def steps(records: Records, operations: Operations, streams: Collection[int], snapshot: int) -> pa.RecordBatch:
    """Extract the steps in some records.

    Args:
        records: records of the log or of a snapshot.
        operations: the operations in these records.
        streams: the streams, of which settlements are what has left them.
        snapshot: the LSN at which the snapshot was taken; -1 for records of the log.
    """
    rows: list[tuple[Any, ...]] = []
    source = StepSource.LOG if snapshot < 0 else StepSource.SNAPSHOT
    for i in operations.of_kind(*_KINDS, Kind.SETTLE).tolist():
        kind, record, at = int(operations.kind[i]), int(operations.record[i]), int(operations.at[i])
        payload = records.data.data[at : at + int(operations.length[i])]
        place = int(records.lsn[record] + operations.order[i])
        lsn = place if snapshot < 0 else snapshot
        frame = int(records.frame[record]) if snapshot < 0 else snapshot
        where = source, lsn, place, frame, int(records.time[record])
        if kind == Kind.SETTLE:
            queue, _, ranges = decode_settle(payload)
            if queue in streams and ranges:
                left = max(first + length for first, length in ranges)
                rows.append((queue, 0, kind, *where, left, b"", 0, ""))
        else:
            group, stream = _of(kind, payload)
            rows.append((stream, group, kind, *where, 0, bytes(payload), 0, ""))
    return _batch(rows)


def _of(kind: int, payload: memoryview) -> tuple[int, int]:
    match kind:
        case Kind.GROUP_LEASED:
            return decode_leased(payload)[:2]
        case Kind.GROUP_SETTLED:
            return decode_group_settled(payload)[:2]
        case _:
            return decode_group_progress(payload)[:2]


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(list(column), each.type) for column, each in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class _Out(NamedTuple):
    """A message that was leased: the end of the lease in milliseconds, and the LSN of its record."""

    due: int
    attempts: int
    generation: int
    lsn: int


@dataclass(slots=True)
class _Cursor:
    """The progress of a group over a stream, as the log has it. `told` is the floor that was recorded last."""

    group: int
    stream: int
    known: bool
    floor: int = 1
    told: int = 0
    told_at: int = 0
    done: set[int] = field(default_factory=set)
    out: dict[int, _Out] = field(default_factory=dict)
    seen: int = 0
    """The LSN of the last record."""
    loading: int = -1
    """The LSN of the snapshot from which this state is read."""
    wrong: list[_Violation] = field(default_factory=list)

    def settled(self, position: int) -> bool:
        return position < self.floor or position in self.done

    def raise_to(self, floor: int) -> None:
        """Settle everything before `floor`, and what is settled from there on without a gap."""
        if floor > self.floor:
            self.done = {position for position in self.done if position >= floor}
            self.floor = floor
        while self.floor in self.done:
            self.done.discard(self.floor)
            self.floor += 1

    def tell(self, floor: int, lsn: int, since: int, free: int) -> None:
        """Judge a recorded floor, and take it over. It may pass everything before `free`."""
        if floor < self.told:
            self.fault("back", floor, lsn, self.told_at, since)
        elif self.known and floor > self._reach(free):
            self.fault("passed", self._reach(free), lsn, self.told_at, since)
        self.raise_to(floor)
        self.told, self.told_at = max(self.told, floor), lsn

    def _reach(self, free: int) -> int:
        """Return the first position from `free` on, or after the floor, that is not settled."""
        reached = max(self.floor, free)
        while reached in self.done:
            reached += 1
        return reached

    def fault(self, wrong: str, position: int, lsn: int, past: int, since: int) -> None:
        self.wrong.append((wrong, self.group, position, lsn, past or lsn, since))

    def state(self, lsn: int, since: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows from which the next run goes on."""
        head, where = (self.stream, self.group), (StepSource.KNOWN, lsn)
        records = [
            (Kind.GROUP_PROGRESS, encode_group_progress(self.group, self.stream, ProgressCause.RESET, self.floor))
        ]
        if self.done:
            ranges = [SettledRange(position, 1, 0) for position in sorted(self.done)]
            settled = encode_group_settled(self.group, self.stream, SettledCause.HANDLED, self.floor, ranges)
            records.append((Kind.GROUP_SETTLED, settled))
        for position, out in self.out.items():
            ranges_out = [LeasedRange(position, 1, out.attempts)]
            leased = encode_leased(self.group, self.stream, out.generation, out.due, ranges_out)
            records.append((Kind.GROUP_LEASED, leased))
        for place, (kind, payload) in enumerate(records):
            yield *head, int(kind), *where, place, 0, since, self.told, payload, 0, ""


class _Stream:
    """The groups of one stream. `left` is the end of what has left it."""

    def __init__(self, stream: int, facts: GroupFacts) -> None:
        self.cursors: dict[int, _Cursor] = {}
        self.left = 0
        self._leaving = 0
        self._stream = stream
        self._facts = facts
        self._time = 0

    def take(self, row: dict[str, Any], leaving: int) -> None:
        """Judge the next record of a group. `leaving` is the end of what has left the stream at the end of its turn."""
        self._leaving = leaving
        self._time = max(self._time, row["since"])
        cursor, start = self.cursors.get(row["group"]), self._facts.start
        if cursor is None or cursor.seen < start <= row["lsn"]:  # records in between may be missing
            known = start == 0 and row["source"] == StepSource.LOG
            cursor = self.cursors[row["group"]] = _Cursor(row["group"], self._stream, known)
        cursor.seen = row["lsn"]
        if row["source"] == StepSource.LOG:
            cursor.raise_to(self.left)
            self._judge(cursor, row)
        elif row["source"] == StepSource.KNOWN or not cursor.known or cursor.loading == row["lsn"]:
            _load(cursor, row)
        elif row["kind"] == Kind.GROUP_PROGRESS:
            floor = decode_group_progress(row["payload"]).floor
            if floor < cursor.told:
                cursor.fault("back", floor, row["lsn"], cursor.told_at, row["since"])

    def _judge(self, cursor: _Cursor, row: dict[str, Any]) -> None:
        payload, lsn, since = row["payload"], row["lsn"], row["since"]
        match row["kind"]:
            case Kind.GROUP_LEASED:
                self._leased(cursor, decode_leased(payload), lsn, since)
            case Kind.GROUP_SETTLED:
                _settled(cursor, decode_group_settled(payload), lsn, since, self._leaving)
            case _:
                _, _, cause, floor = decode_group_progress(payload)
                if cause is ProgressCause.RESET:
                    cursor.done.clear()
                    cursor.out.clear()
                    cursor.floor, cursor.told, cursor.told_at, cursor.known = floor, floor, lsn, True
                else:
                    cursor.tell(floor, lsn, since, floor)

    def _leased(self, cursor: _Cursor, record: GroupLeased, lsn: int, since: int) -> None:
        for first, length, attempts in record.ranges:
            for position in range(first, first + length):
                before = cursor.out.get(position)
                past = before.lsn if before else 0
                if attempts > (before.attempts if before else 0) and cursor.known:
                    if before and before.generation and before.due > self._time // 1000:
                        cursor.fault("twice", position, lsn, past, since)
                    elif cursor.settled(position):
                        cursor.fault("settled", position, lsn, cursor.told_at, since)
                    elif before and self._too_often(cursor, attempts, past, lsn):
                        cursor.fault("too often", position, lsn, past, since)
                cursor.out[position] = _Out(record.due, attempts, record.generation, lsn)

    def _too_often(self, cursor: _Cursor, attempts: int, past: int, lsn: int) -> bool:
        most = self._facts.most_attempts(cursor.group, self._stream, past, lsn)
        return most is not None and attempts > most


def _settled(cursor: _Cursor, record: GroupSettled, lsn: int, since: int, leaving: int) -> None:
    for first, length, generation in record.ranges:
        for position in range(first, first + length):
            out = cursor.out.pop(position, None)
            stale = out.generation != generation if out else cursor.known
            if record.cause is SettledCause.HANDLED and stale:
                cursor.fault("stale", position, lsn, out.lsn if out else cursor.told_at, since)
            if position >= cursor.floor:
                cursor.done.add(position)
    cursor.raise_to(cursor.floor)
    cursor.tell(record.floor, lsn, since, leaving)


def _load(cursor: _Cursor, row: dict[str, Any]) -> None:
    """Take over a record of a snapshot, or of what the previous run knows."""
    cursor.known, cursor.loading = True, row["lsn"]
    match row["kind"]:
        case Kind.GROUP_PROGRESS:
            cursor.done.clear()
            cursor.out.clear()
            cursor.floor = decode_group_progress(row["payload"]).floor
            cursor.told = row["position"] if row["source"] == StepSource.KNOWN else cursor.floor
            cursor.told_at = row["lsn"]
        case Kind.GROUP_SETTLED:
            for first, length, _ in decode_group_settled(row["payload"]).ranges:
                cursor.done.update(range(first, first + length))
        case _:
            _, _, generation, due, ranges = decode_leased(row["payload"])
            for first, length, attempts in ranges:
                for position in range(first, first + length):
                    cursor.out[position] = _Out(due, attempts, generation, row["lsn"])


def judge(found: pa.Table, facts: GroupFacts) -> pa.Table:
    """Judge all steps of the groups of some streams. Return the violations, and the state at the end."""
    rows = found.sort_by([(name, "ascending") for name in _ORDER]).to_pylist()
    by_stream: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        by_stream.setdefault(row["stream"], []).append(row)
    result: list[tuple[Any, ...]] = []
    for ident, each in by_stream.items():
        result += _judged(ident, each, facts)
    return pa.Table.from_batches([_batch(result)], SCHEMA)


def _judged(ident: int, rows: list[dict[str, Any]], facts: GroupFacts) -> Iterator[tuple[Any, ...]]:
    stream = _Stream(ident, facts)
    # Messages that leave are recorded at the end of the turn, after the groups that have noticed it.
    gone = [(row["frame"], row["position"]) for row in rows if not row["group"]]
    at = leaving = 0
    for row in rows:
        while at < len(gone) and gone[at][0] <= row["frame"]:
            leaving = max(leaving, gone[at][1])
            at += 1
        if row["group"]:
            stream.take(row, leaving)
        else:
            stream.left = max(stream.left, row["position"])
    last = rows[-1]["lsn"], rows[-1]["since"]
    groups, streams = facts.ended
    for cursor in stream.cursors.values():
        for wrong, group, position, lsn, past, since in cursor.wrong:
            if lsn >= facts.start:
                yield ident, group, 0, StepSource.LOG, lsn, lsn, 0, since, position, b"", past, wrong
        if cursor.group not in groups and ident not in streams:
            yield from cursor.state(*last)
    if stream.left and ident not in streams:
        yield ident, 0, int(Kind.SETTLE), StepSource.KNOWN, last[0], 0, 0, last[1], stream.left, b"", 0, ""

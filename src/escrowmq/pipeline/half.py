"""Follow half messages from their arrival to their decision (HALF).

All steps of one half message are judged together, in the order of the log. The hidden queue in which half messages wait
is audited like any other queue; here its removals are compared with the decisions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from escrowmq.core.half.state import HalfState
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.half import (
    decode_half_decided,
    decode_half_many,
    decode_half_resumed,
    decode_half_states,
    split_half_stored,
)
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.settling import decode_settle
from escrowmq.pipeline.findings import HalfRule, Rule
from escrowmq.pipeline.frames import Records
from escrowmq.pipeline.operations import Operations

if TYPE_CHECKING:
    from escrowmq.pipeline.audit import Audit

HIDDEN: Final = "amq.half"
"""The name of the queues in which half messages wait."""
_PARTS: Final = 1 << 16
_OUTCOME_AT: Final = 4  # in a SETTLE record
_STATE_AT: Final = 12  # in a HALF_DECIDED record


class HalfStep(IntEnum):
    """What happened to a half message. Steps in one record are judged in this order."""

    STORED = 1
    REMOVED = 2
    """It left the hidden queue; the value is the outcome."""
    DECIDED = 3
    """The value is `_Decided` as a number."""
    CHECKED = 4
    """The value is the number of checks that are allowed."""
    PARKED = 5
    RESUMED = 6
    KNOWN = 7
    """A snapshot or the previous run knows it; the value is its state and the number of its checks."""


class _Decided(NamedTuple):
    """A decision: the new state, whether an operator made it, and the number of runs placed by the same record, -1 if
    that has commits, which place them.
    """

    state: int
    forced: int
    placed: int

    def packed(self) -> int:
        return (self.placed + 1) << 4 | self.forced << 3 | self.state

    @classmethod
    def unpacked(cls, value: int) -> _Decided:
        return cls(value & 7, value >> 3 & 1, (value >> 4) - 1)


SCHEMA: Final = pa.schema(
    [
        ("part", pa.int64()),
        ("queue", pa.int64()),
        ("number", pa.int64()),
        ("step", pa.int8()),
        ("lsn", pa.int64()),
        ("since", pa.int64()),
        ("value", pa.int64()),
        ("past", pa.int64()),
        ("wrong", pa.string()),
    ]
)
DDL: Final = (
    "part long, queue long, number long, step tinyint, lsn long, since long, value long, past long, wrong string"
)
"""A row is a step, and in the result an undecided half message or a violation. `queue` is the hidden queue. `lsn` is
that of the record, `since` the time of its frame in microseconds. `past` is the LSN of the record that a violation
contradicts, `wrong` a key of WRONG, or empty.
"""

WRONG: Final[Mapping[str, Rule]] = {
    "twice": HalfRule.TWICE,
    "contradicted": HalfRule.CONTRADICTED,
    "against": HalfRule.AGAINST,
    "undecided": HalfRule.UNDECIDED,
    "late": HalfRule.LATE,
    "unknown": HalfRule.UNKNOWN,
    "too often": HalfRule.TOO_OFTEN,
}
_Row = tuple[int, int, int, int, int, int]
"""Queue, number, step, LSN, time, value."""


def steps(records: Records, operations: Operations, snapshot: int) -> pa.RecordBatch:
    """Extract the steps in some records. `snapshot` is the LSN at which a snapshot was taken; -1 for the log."""
    rows = list(_known(records, snapshot)) if snapshot >= 0 else [*_in_commits(records, operations), *_alone(records)]
    columns: list[list[Any]] = [[row[i] for row in rows] for i in range(6)]
    columns = [[row[1] % _PARTS for row in rows], *columns, [0] * len(rows), [""] * len(rows)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _known(records: Records, snapshot: int) -> Iterator[_Row]:
    for i in records.of_kind(Kind.HALF_STATE).tolist():
        states = decode_half_states(records.payload(i))
        for row in states.rows:
            value = row.checks << 3 | row.state
            yield states.queue, row.number, HalfStep.KNOWN, snapshot, int(records.time[i]), value


def _in_commits(records: Records, operations: Operations) -> Iterator[_Row]:
    """Yield what the records of decisions say: arrivals, removals from hidden queues, and decisions."""
    decided = operations.of_kind(Kind.HALF_DECIDED)
    number = len(operations.commits.record)
    within = operations.commit[operations.of_kind(Kind.PUBLISH, Kind.PLACED)]
    placed = np.bincount(within[within >= 0], minlength=number)
    states = records.data[operations.at[decided] + _STATE_AT]
    delivers = np.bincount(operations.commit[decided[states == HalfState.COMMITTED]], minlength=number) > 0
    settles = operations.of_kind(Kind.SETTLE)
    outcomes = records.data[operations.at[settles] + _OUTCOME_AT]
    left = settles[np.isin(outcomes, (Outcome.COMMITTED, Outcome.ROLLED_BACK))]
    for i in [*operations.of_kind(Kind.HALF_STORED).tolist(), *left.tolist(), *decided.tolist()]:
        record, at = int(operations.record[i]), int(operations.at[i])
        payload = records.data.data[at : at + int(operations.length[i])]
        where = int(records.lsn[record]), int(records.time[record])
        match int(operations.kind[i]):
            case Kind.HALF_STORED:
                stored = split_half_stored(payload)
                yield stored.queue, stored.number, HalfStep.STORED, *where, 0
            case Kind.SETTLE:
                queue, outcome, ranges = decode_settle(payload)
                for first, length in ranges:
                    for position in range(first, first + length):
                        yield queue, position, HalfStep.REMOVED, *where, int(outcome)
            case _:
                found, commit = decode_half_decided(payload), int(operations.commit[i])
                runs = -1 if commit < 0 or delivers[commit] else int(placed[commit])
                value = _Decided(found.state, int(found.forced), runs).packed()
                yield found.queue, found.number, HalfStep.DECIDED, *where, value


def _alone(records: Records) -> Iterator[_Row]:
    """Yield checks, parkings and resumptions, which are records of their own."""
    for i in records.of_kind(Kind.HALF_CHECKED, Kind.HALF_PARKED).tolist():
        checked = int(records.kind[i]) == Kind.HALF_CHECKED
        many = decode_half_many(records.payload(i))
        for number, most in zip(many.numbers, many.limits, strict=True):
            step = HalfStep.CHECKED if checked else HalfStep.PARKED
            yield many.queue, number, step, int(records.lsn[i]), int(records.time[i]), most
    for i in records.of_kind(Kind.HALF_RESUMED).tolist():
        resumed = decode_half_resumed(records.payload(i))
        yield resumed.queue, resumed.number, HalfStep.RESUMED, int(records.lsn[i]), int(records.time[i]), 0


class _Life:
    """The life of one half message. `wrong` collects violations: name, LSN, LSN of the record that is contradicted,
    time.
    """

    def __init__(self) -> None:
        self.state = 0
        self.checks = 0
        self.wrong: list[tuple[str, int, int, int]] = []
        self._removed = (0, 0)  # LSN and outcome
        self._last = 0

    def take(self, step: int, lsn: int, since: int, value: int) -> None:
        """Judge the next step."""
        if self._removed[0] and (step != HalfStep.DECIDED or self._removed[0] != lsn):
            self.end(since)
        fault = ""
        match step:
            case HalfStep.STORED:
                self.state = self.state or HalfState.PENDING
            case HalfStep.REMOVED:
                self._removed = lsn, value
            case HalfStep.DECIDED:
                fault = self._decided(_Decided.unpacked(value))
            case HalfStep.CHECKED:
                self.checks += 1
                fault = "too often" if self.state > HalfState.PENDING or self.checks > value else ""
            case HalfStep.PARKED:
                fault = "contradicted" if self.state > HalfState.PARKED else ""
                self.state = self.state if fault else HalfState.PARKED
            case HalfStep.RESUMED:
                fault = "contradicted" if self.state > HalfState.PARKED else ""
                self.state, self.checks = (self.state if fault else HalfState.PENDING), 0
            case _:
                fault = "contradicted" if self.state not in (0, value & 7) else ""
                self.state, self.checks = value & 7, value >> 3
        if fault:
            self.wrong.append((fault, lsn, self._last or lsn, since))
        if step != HalfStep.REMOVED:
            self._last = lsn

    def _decided(self, decided: _Decided) -> str:
        before, self.state = self.state, decided.state
        removed, self._removed = self._removed, (0, 0)
        if before >= HalfState.COMMITTED:
            return "twice" if before == decided.state else "contradicted"
        if before == HalfState.PARKED and not decided.forced:
            return "late"
        commit = decided.state == HalfState.COMMITTED
        outcome = Outcome.COMMITTED if commit else Outcome.ROLLED_BACK
        if removed[1] != outcome or (not commit and decided.placed > 0):
            return "against"
        return "" if before else "unknown"

    def end(self, since: int) -> None:
        """Judge a removal that no decision in the same record explains."""
        lsn, outcome = self._removed
        if outcome:
            self.wrong.append(("undecided", lsn, self._last or lsn, since))
        self._removed = 0, 0


def judge(found: pa.Table, start: int) -> pa.Table:
    """Judge all steps of some half messages. Return the violations, and those that are undecided at the end. `start` is
    the LSN from which the log is complete.
    """
    order = [(name, "ascending") for name in ("queue", "number", "lsn", "step")]
    names = ("queue", "number", "step", "lsn", "since", "value")
    rows = zip(*(found.sort_by(order)[name].to_pylist() for name in names), strict=True)
    result: list[tuple[Any, ...]] = []
    for (queue, number), each in groupby(rows, key=lambda row: row[:2]):
        life, lsn, since, oldest = _Life(), 0, 0, 0
        for _, _, step, at, since, value in each:
            if lsn < start <= at:
                life = _Life()  # the part of the log in between was deleted, so more may have happened to it
            lsn, oldest = at, oldest or since
            life.take(step, lsn, since, value)
        life.end(since)
        part = number % _PARTS
        for fault, at, past, when in life.wrong:
            if at >= start and (fault != "unknown" or not start):  # a deleted part of the log may have stored it
                result.append((part, queue, number, HalfStep.KNOWN, at, when, 0, past, fault))
        if HalfState.PENDING <= life.state <= HalfState.PARKED:
            known = life.checks << 3 | life.state
            result.append((part, queue, number, HalfStep.KNOWN, lsn, oldest, known, 0, ""))
    columns = list(zip(*result, strict=True)) or [()] * len(SCHEMA)
    return pa.table([pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def violations(audit: Audit) -> list[tuple[Any, ...]]:
    """Return rows of the table `violations` about half messages."""
    if audit.half is None:
        return []
    rows: list[tuple[Any, ...]] = []
    for row in audit.half.where("wrong != ''").collect():
        rule = WRONG[row.wrong]
        queue = audit.state.queues.get(row.queue)
        vhost = queue.vhost if queue else ""
        at = datetime.fromtimestamp(row.since / 1e6, UTC)
        text = f"Half message {row.number} in vhost {vhost}: {rule.text}"
        rows.append((rule.rule, rule.name, vhost, HIDDEN, row.number, None, [row.past, row.lsn], at, text))
    return rows

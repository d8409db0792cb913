"""Convert records to columns of operations: those that are records themselves, and those in a branch's record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from escrowmq.core.records.kinds import Kind
from escrowmq.pipeline.columns import Ints, Rows, take
from escrowmq.pipeline.frames import Records

COMMIT_HEAD = np.dtype([("branch", "<u8"), ("count", "<u4")])
OPERATION_HEAD = np.dtype([("kind", "u1"), ("length", "<u4")])
DECIDE_HEAD = np.dtype([("epoch", "<i8"), ("name", "<u2"), ("lost", "<u4"), ("won", "<u4")])


class Decision(NamedTuple):
    """The head of a DECIDE record.

    Args:
        application: the virtual host, a NUL, and the application's name, which may be empty.
        epoch: the application's epoch.
        lost: the number of branches rolled back.
        won: the number of branches committed.
        end: the offset at which the head ends.
    """

    application: str
    epoch: int
    lost: int
    won: int
    end: int


def decision(payload: memoryview) -> Decision:
    """Decode the head of a DECIDE record."""
    epoch, length, lost, won = np.frombuffer(payload, DECIDE_HEAD, 1)[0].tolist()
    end = DECIDE_HEAD.itemsize + length
    return Decision(bytes(payload[DECIDE_HEAD.itemsize : end]).decode("utf-8", "replace"), epoch, lost, won, end)


@dataclass(frozen=True, slots=True)
class Commits:
    """Columns of lists of operations. A record contains one list for each branch that it commits."""

    record: Ints
    branch: Ints
    count: Ints
    whole: Ints
    """1 if the record contains exactly as many operations as its head says, otherwise 0."""


@dataclass(frozen=True, slots=True)
class Operations:
    """Columns of operations, one element for each operation.

    Args:
        kind: the operation's kind (`core.records.Kind`).
        at: the offset of its payload.
        length: the length of its payload in bytes.
        record: the index of the record that contains it.
        order: its offset in the record, 0 for an operation that is a record itself.
        branch: the branch's number, 0 for an operation that is a record itself.
        commit: an index into `commits`, -1 for an operation that is a record itself.
        commits: the lists of operations.
    """

    kind: Ints
    at: Ints
    length: Ints
    record: Ints
    order: Ints
    branch: Ints
    commit: Ints
    commits: Commits

    def of_kind(self, *kinds: int) -> Ints:
        """Return the indexes of the operations of these kinds."""
        return np.flatnonzero(np.isin(self.kind, kinds))


def operations(records: Records) -> Operations:
    """Return the operations in `records` that concern queues, link termini and groups, in no particular order."""
    alone = records.of_kind(
        Kind.PUBLISH,
        Kind.SETTLE,
        Kind.RELOCATE,
        Kind.READDRESSED,
        Kind.RETURNED,
        Kind.MARKED,
        Kind.DELIVERED,
        Kind.QUEUE_STATE,
        Kind.HELD,
        Kind.DELIVERIES,
        Kind.ARRIVED,
        Kind.FORGOTTEN,
        Kind.ACQUIRED,
        Kind.GIVEN_BACK,
        Kind.GROUP_LEASED,
        Kind.GROUP_SETTLED,
        Kind.GROUP_PROGRESS,
    )
    record, at, end = _lists(records)
    heads = take(records.data, at, COMMIT_HEAD)
    owners, places, kinds, lengths, whole = _walk(records, at + COMMIT_HEAD.itemsize, heads["count"], end)
    commits = Commits(record, heads["branch"].astype(np.int64), heads["count"].astype(np.int64), whole)
    none = np.full(len(alone), -1, np.int64)
    return Operations(
        np.r_[records.kind[alone], kinds],
        np.r_[records.at[alone], places],
        np.r_[records.length[alone], lengths],
        np.r_[alone, record[owners]],
        np.r_[np.zeros(len(alone), np.int64), places - records.at[record[owners]]],
        np.r_[np.zeros(len(alone), np.int64), commits.branch[owners]],
        np.r_[none, owners],
        commits,
    )


def _lists(records: Records) -> tuple[Ints, Ints, Ints]:
    """Return all lists of operations: the record's index, the list's offset, and the offset at which it must end."""
    commits, forced = records.of_kind(Kind.COMMIT), records.of_kind(Kind.HEURISTIC)
    record, at = [*commits, *forced], [*records.at[commits], *(records.at[forced] + 1)]
    end = [*(records.at + records.length)[commits], *(records.at + records.length)[forced]]
    for i in records.of_kind(Kind.DECIDE).tolist():
        for begin, stop in decided(records, i):
            record.append(i)
            at.append(begin)
            end.append(stop)
    return np.array(record, np.int64), np.array(at, np.int64), np.array(end, np.int64)


def decided(records: Records, i: int) -> list[tuple[int, int]]:
    """Begin and end of each list in the DECIDE record with the index `i`, one list for each branch that it commits."""
    data, at, stop = records.data, int(records.at[i]), int(records.at[i] + records.length[i])
    _, name, lost, won = take(data, np.array([at]), DECIDE_HEAD)[0].tolist()
    at += DECIDE_HEAD.itemsize + name + 8 * lost
    lists = []
    for _ in range(won):
        begin = at
        _, count = np.frombuffer(data, COMMIT_HEAD, 1, at)[0].tolist()
        at += COMMIT_HEAD.itemsize
        for _ in range(count):
            at += OPERATION_HEAD.itemsize + int(np.frombuffer(data, OPERATION_HEAD, 1, at)[0]["length"])
        lists.append((begin, min(at, stop)))
    return lists


def _walk(records: Records, at: Ints, count: Rows, end: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Find the operations of all lists.

    Operations have variable length, so each pass takes the next operation of every list at once. Returns the operations
    as columns (list, offset, kind, length), and for each list 1 if it is complete, otherwise 0.
    """
    left, at = count.astype(np.int64), at.copy()
    unfinished = np.arange(len(at), dtype=np.int64)
    torn = np.zeros(len(at), bool)
    found: list[tuple[Ints, Ints, Ints, Ints]] = [(unfinished[:0],) * 4]
    size = OPERATION_HEAD.itemsize
    while True:
        unfinished = unfinished[left[unfinished] > 0]
        if not len(unfinished):
            break
        short = at[unfinished] + size > end[unfinished]
        torn[unfinished[short]] = True
        unfinished = unfinished[~short]
        heads = take(records.data, at[unfinished], OPERATION_HEAD)
        begin, length = at[unfinished] + size, heads["length"].astype(np.int64)
        fits = begin + length <= end[unfinished]
        torn[unfinished[~fits]] = True
        unfinished, begin, length = unfinished[fits], begin[fits], length[fits]
        found.append((unfinished, begin, heads["kind"][fits].astype(np.int64), length))
        at[unfinished] = begin + length
        left[unfinished] -= 1
    owners, places, kinds, lengths = (np.concatenate(column) for column in zip(*found, strict=True))
    return owners, places, kinds, lengths, (~torn & (at == end)).astype(np.int64)

"""Check the two kinds of consecutive numbers in the log: those of reservations by bulk readers, and epochs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.reservations import Released, decode_held, decode_released
from escrowmq.core.records.settling import decode_settle
from escrowmq.pipeline.columns import plain
from escrowmq.pipeline.findings import BranchRule, Rule
from escrowmq.pipeline.frames import Records
from escrowmq.pipeline.operations import Operations, decision

STEPS: Final = ("held", "released", "epoch", "owned", "reset")
"""The steps that are about numbers. They share the columns of the steps of branches; `owner` is a group or application.

For a group, `branch` is the queue, `operations` the first number, `published` the number of messages reserved, or
settled by the same record (-1: none, because they were returned), and `settled` the number below which all were
settled. For an application, `published` is the number of branches committed; it is `owned` when it gets an owner, and
`reset` when its progress is forgotten.
"""

Numbers = dict[str, list[int]]
"""The numbers of each group (`queue NUL name`), or the epoch of each application.

A group has the number below which all messages are settled, the first number reserved, and the next one. The last
element is always the LSN of the record.
"""


class Wrong(NamedTuple):
    """A number that does not continue the sequence, or another violation of the log as a whole.

    Args:
        rule: the rule that is broken.
        lsn: the record that breaks it.
        text: what follows the rule's own text.
        others: the LSNs of other records that prove it.
    """

    rule: Rule
    lsn: int
    text: str
    others: tuple[int, ...] = ()


def notes(records: Records, operations: Operations, snapshot: int) -> Iterator[dict[str, object]]:
    """Extract steps that are about numbers.

    Args:
        records: records of the log or of a snapshot.
        operations: the operations in these records.
        snapshot: the LSN at which the snapshot was taken; -1 for records of the log.
    """

    def row(step: str, i: int, order: int = 0, **fields: object) -> dict[str, object]:
        lsn = int(records.lsn[i]) + order if snapshot < 0 else snapshot
        known = {"branch": 0, "settled": 0, "operations": 0, "at_us": int(records.time[i])}
        return {**known, "step": step, "lsn": lsn, "whole": True, "snapshot": snapshot >= 0, **fields}

    def group(step: str, i: int, order: int, said: Any, count: int) -> dict[str, object]:
        names = {"branch": said.queue, "owner": plain(said.group)}
        return row(step, i, order, **names, operations=said.first, settled=said.settled, published=count)

    for i in records.of_kind(Kind.HELD).tolist():
        held = decode_held(records.payload(i))
        yield group("held", i, 0, held, sum(each.length for each in held.ranges))
    for i in records.of_kind(Kind.RELEASED).tolist():
        yield group("released", i, 0, decode_released(records.payload(i)), -1)
    settlements = operations.of_kind(Kind.SETTLE)
    for i in operations.of_kind(Kind.RELEASED).tolist():
        released = decode_released(_payload(records, operations, i))
        order = int(operations.order[i])
        before = settlements[operations.record[settlements] == operations.record[i]]
        before = before[operations.order[before] < order]
        yield group(
            "released", int(operations.record[i]), order, released, _settled(records, operations, before, released)
        )
    for i in records.of_kind(Kind.DECIDE).tolist():
        decided = decision(records.payload(i))
        if decided.application:
            yield row("epoch", i, owner=plain(decided.application), epoch=decided.epoch, published=decided.won)
    for i in records.of_kind(Kind.PROGRESS).tolist():
        fields = decode_change(records.payload(i))
        yield row("epoch", i, owner=plain(fields["application"]), epoch=fields["epoch"], published=0)
    for kind, step in ((Kind.PROGRESS_OWNED, "owned"), (Kind.PROGRESS_RESET, "reset")):
        for i in records.of_kind(kind).tolist():
            fields = decode_change(records.payload(i))
            yield row(step, i, owner=plain(fields["application"]), epoch=-1, published=0)


def _payload(records: Records, operations: Operations, i: int) -> memoryview:
    at = int(operations.at[i])
    return records.data.data[at : at + int(operations.length[i])]


def _settled(records: Records, operations: Operations, before: np.ndarray[Any, Any], released: Released) -> int:
    """Return the number of messages in the last settlement of the same queue before a RELEASED operation."""
    for i in before[np.argsort(-operations.order[before])].tolist():
        found = decode_settle(_payload(records, operations, i))
        if found.queue == released.queue:
            return sum(count for _, count in found.ranges)
    return 0


class Sequences:
    """Follows the numbers of all groups and applications. The log below `start` may have gaps."""

    def __init__(self, groups: Numbers, epochs: Numbers, start: int, deleted: Mapping[int, Sequence[int]]) -> None:
        """Continue from the numbers of the previous run, which are updated in place.

        `deleted` contains LSN, frame and time of the deletion of each deleted queue.
        """
        self._groups, self._epochs = groups, epochs
        self._start = start
        self._deleted = deleted
        self._wrong: list[Wrong] = []

    def check(self, rows: Sequence[Mapping[str, Any]], snapshots: Collection[int]) -> list[Wrong]:
        """Check rows of the log, and compare them with the rows of snapshots taken at the LSNs `snapshots`."""
        said = sorted((row for row in rows if not row["snapshot"]), key=lambda row: row["lsn"])
        done = 0
        for lsn in sorted(snapshots):
            while done < len(said) and said[done]["lsn"] < lsn:
                self._apply(said[done])
                done += 1
            self._compare(lsn, [row for row in rows if row["snapshot"] and row["lsn"] == lsn])
        for row in said[done:]:
            self._apply(row)
        return self._wrong

    def _certain(self, lsn: int) -> bool:
        """Return whether the log is complete from `lsn` on."""
        return self._start == 0 or lsn >= self._start

    def _apply(self, row: Mapping[str, Any]) -> None:
        if row["step"] == "epoch":
            self._decided(row)
            return
        if row["step"] == "owned":
            self._epochs.setdefault(row["owner"], [-1, row["lsn"]])
            return
        if row["step"] == "reset":
            if self._epochs.pop(row["owner"], None) is None and self._start == 0:
                text = f": the progress of application {_name(row['owner'])} was forgotten, but there was none"
                self._wrong.append(Wrong(BranchRule.NAMES, row["lsn"], text))
            return
        key = f"{row['branch']}\0{row['owner']}"
        known = self._groups.get(key, [1, 1, 1, 0])
        settled, first, end, where = known
        number, count, below, lsn = row["operations"], row["published"], row["settled"], row["lsn"]
        if row["step"] == "held":
            right = number == end and below == settled
            now = [below, first if right else number, number + count]
        else:
            right = first < number <= end
            right &= (number, below) == (end, settled) if count < 0 else (below, count) == (number, number - first)
            now = [below, number, max(end, number)]
        certain = self._certain(where)
        self._groups[key] = [*now, lsn if certain else where]  # a record updates a part of the numbers, a snapshot all
        if not right and certain:
            self._wrong.append(Wrong(BranchRule.NUMBERS, lsn, _group(key)))

    def _decided(self, row: Mapping[str, Any]) -> None:
        epoch, lsn = row["epoch"], row["lsn"]
        last, where = self._epochs.get(row["owner"], [-1, 0])
        if (epoch < last or (epoch == last and row["published"])) and self._certain(where):
            self._wrong.append(Wrong(BranchRule.EPOCH, lsn, f": epoch {epoch} of {_name(row['owner'])}"))
        self._epochs[row["owner"]] = [max(epoch, last), lsn]

    def _compare(self, lsn: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Compare the numbers of the log up to `lsn` with those of the snapshot taken there, and adopt the latter."""
        for key in [key for key in self._groups if self._deleted.get(_queue(key), (lsn,))[0] < lsn]:
            del self._groups[key]
        groups = {
            f"{row['branch']}\0{row['owner']}": [
                row["settled"],
                row["operations"],
                row["operations"] + row["published"],
            ]
            for row in rows
            if row["step"] == "held"
        }
        for key in self._groups.keys() | groups.keys():
            *said, where = self._groups.get(key, [0])
            if said != groups.get(key) and self._certain(where):
                self._wrong.append(Wrong(BranchRule.NUMBERS, lsn, _group(key)))
        epochs = {row["owner"]: [row["epoch"]] for row in rows if row["step"] == "epoch"}
        for name in self._epochs.keys() | epochs.keys():
            *said, where = self._epochs.get(name, [0])
            if said != epochs.get(name) and self._certain(where):
                self._wrong.append(Wrong(BranchRule.EPOCH, lsn, f": the snapshot's epoch of {_name(name)}"))
        for known, found in ((self._groups, groups), (self._epochs, epochs)):
            known.clear()
            known.update({key: [*numbers, lsn] for key, numbers in found.items()})


def _queue(key: str) -> int:
    return int(key.partition("\0")[0])


def _group(key: str) -> str:
    queue, _, name = key.partition("\0")
    return f": group {name} of queue {queue}"


def _name(application: str) -> str:
    return application.rpartition("\0")[2]

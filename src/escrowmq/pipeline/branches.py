"""Extract steps of transaction branches: one for each record that prepares, decides or forgets a branch."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa

from escrowmq.core.branches.branch import State
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.branches import decode_prepare
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import merged
from escrowmq.core.records.reservations import decode_released
from escrowmq.pipeline import mentions, sequences
from escrowmq.pipeline.blocks import BLOCK
from escrowmq.pipeline.columns import U32, U64, Ints, integers, plain, ragged, take
from escrowmq.pipeline.events import RANGE, SETTLE, TARGET
from escrowmq.pipeline.frames import Records
from escrowmq.pipeline.operations import Decision, Operations, decision

SCHEMA: Final = pa.schema(
    [
        ("branch", pa.int64()),
        ("step", pa.string()),
        ("lsn", pa.int64()),
        ("at_us", pa.int64()),
        ("operations", pa.int64()),
        ("published", pa.int64()),
        ("settled", pa.int64()),
        ("whole", pa.bool_()),
        ("snapshot", pa.bool_()),
        ("xid", pa.binary()),
        ("owner", pa.string()),
        ("application", pa.string()),
        ("epoch", pa.int64()),
        ("started_ms", pa.int64()),
        ("effects", pa.list_(pa.string())),
    ]
)
DDL: Final = (
    "branch long, step string, lsn long, at_us long, operations long, published long, settled long, whole boolean, "
    "snapshot boolean, xid binary, owner string, application string, epoch long, started_ms long, effects array<string>"
)
"""`step` is prepared, committed, decided, heuristically committed, and so on. `effects` lists the effects of a
two-phase branch: `publish QUEUE COUNT`, `place QUEUE COUNT BLOCK` (`fetch` if the block precedes these records),
`settle QUEUE FIRST COUNT` (accepted), `reject QUEUE FIRST COUNT`, and `release QUEUE NUMBER`. A prepared step may also
contain `return QUEUE FIRST COUNT`.
"""

_STEP_OF: Final = {
    int(State.HEURISTIC_COMMITTED): "heuristically committed",
    int(State.HEURISTIC_ROLLED_BACK): "heuristically rolled back",
}


def steps(records: Records, operations: Operations, *, snapshot: int = -1) -> pa.RecordBatch:
    """Return the steps in some records, as a batch with the columns of SCHEMA.

    Args:
        records: records of the log or of a snapshot.
        operations: the operations in these records.
        snapshot: the LSN at which the snapshot was taken; -1 for records of the log.
    """
    found = [_committed(records, operations)] if snapshot < 0 else []
    rows = [*_prepared(records, snapshot), *sequences.notes(records, operations, snapshot)]
    if snapshot < 0:
        rows += [*_ended(records), *mentions.steps(records, operations)]
    if rows:
        found.append(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    if not found:
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    return pa.concat_batches(found)


def _committed(records: Records, operations: Operations) -> pa.RecordBatch:
    commits = operations.commits
    n = len(commits.record)
    kind = records.kind[commits.record]
    published, settled = _messages(records, operations, n)
    forced = kind == Kind.HEURISTIC
    outcome = np.zeros(n, np.int64)
    outcome[kind == Kind.DECIDE] = 1
    outcome[forced] = np.where(records.data[records.at[commits.record[forced]]] > 0, 2, 3)
    names = pa.array(["committed", "decided", "heuristically committed", "heuristically rolled back"])
    two_phase = np.zeros(n, bool)
    two_phase[operations.commit[operations.of_kind(Kind.PLACED)]] = True
    prepared = [int.from_bytes(records.payload(i)[:8], "little") for i in records.of_kind(Kind.PREPARE).tolist()]
    two_phase |= np.isin(commits.branch, prepared)  # such a commit may repeat prepared messages as PUBLISH
    application: list[str | None] = [None] * n
    epoch: list[int | None] = [None] * n
    for i in np.flatnonzero(kind == Kind.DECIDE).tolist():
        said = decision(records.payload(int(commits.record[i])))
        application[i], epoch[i] = _name(said), said.epoch
    effects: list[list[str] | None] = [None] * n
    pages = frozenset(records.lsn[records.of_kind(Kind.PAGE)].tolist()) if two_phase.any() else frozenset()
    for i in np.flatnonzero(two_phase | (kind != Kind.COMMIT) | (published == 0)).tolist():
        effects[i] = _effects(records, operations, i, pages)
    columns = {
        "branch": pa.array(commits.branch),
        "step": names.take(pa.array(outcome)),
        "lsn": pa.array(records.lsn[commits.record]),
        "at_us": pa.array(records.time[commits.record]),
        "operations": pa.array(commits.count),
        "published": pa.array(published),
        "settled": pa.array(settled),
        "whole": pa.array(commits.whole > 0),
        "snapshot": pa.array(np.zeros(n, bool)),
        "application": pa.array(application, pa.string()),
        "epoch": pa.array(epoch, pa.int64()),
        "effects": pa.array(effects, pa.list_(pa.string())),
    }
    whole = [columns.get(field.name, pa.nulls(n, field.type)) for field in SCHEMA]
    batch = pa.RecordBatch.from_arrays(whole, schema=SCHEMA)
    # Branch 0 is dead-lettering, which no client decided. It is shown only if its record is torn.
    return batch.filter(pa.array((commits.branch > 0) | (commits.whole == 0)))


def _messages(records: Records, operations: Operations, n: int) -> tuple[Ints, Ints]:
    """Return the number of messages that each list of operations publishes, and the number that it settles."""
    data = records.data
    published, settled = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for kind in (Kind.PUBLISH, Kind.PLACED):
        chosen = operations.of_kind(kind)
        chosen = chosen[operations.commit[chosen] >= 0]
        targets = integers(take(data, operations.at[chosen], U32))
        behind = operations.at[chosen] + 4 + TARGET.itemsize * targets
        if kind == Kind.PUBLISH:
            count = integers(take(data, behind, BLOCK)["count"])
        else:
            count = integers(take(data, behind + 8, U32))
        np.add.at(published, operations.commit[chosen], count * targets)
    chosen = operations.of_kind(Kind.SETTLE)
    chosen = chosen[operations.commit[chosen] >= 0]
    owner, nth = ragged(integers(take(data, operations.at[chosen], SETTLE)["ranges"]))
    at = operations.at[chosen][owner] + SETTLE.itemsize + RANGE.itemsize * nth
    np.add.at(settled, operations.commit[chosen][owner], integers(take(data, at, RANGE)["count"]))
    return published, settled


def _effects(records: Records, operations: Operations, commit: int, pages: Collection[int]) -> list[str]:
    """Return the effects of one list of operations.

    `pages` are the LSNs of blocks in PAGE records, which may be placed without having been prepared.
    """
    data = records.data
    found = []
    for i in np.flatnonzero(operations.commit == commit).tolist():
        at = operations.at[i : i + 1]
        kind = int(operations.kind[i])
        if kind in (Kind.PUBLISH, Kind.PLACED):
            number = int(take(data, at, U32)[0])
            behind = at + 4 + TARGET.itemsize * number
            count = take(data, behind, BLOCK)["count"][0] if kind == Kind.PUBLISH else take(data, behind + 8, U32)[0]
            targets = take(data, at + 4 + TARGET.itemsize * np.arange(number), TARGET)
            what, block = "publish", ""
            if kind == Kind.PLACED and (lsn := int(take(data, behind, U64)[0])) not in pages:
                what, block = "place" if lsn >= records.lsn[0] else "fetch", f" {lsn}"
            found += [f"{what} {queue} {count}{block}" for queue in targets["queue"].tolist()]
        elif kind == Kind.SETTLE:
            head = take(data, at, SETTLE)[0]
            places = at + SETTLE.itemsize + RANGE.itemsize * np.arange(int(head["ranges"]))
            verb = "settle" if head["outcome"] == Outcome.ACCEPTED else "reject"
            found += [f"{verb} {head['queue']} {first} {count}" for first, count in take(data, places, RANGE).tolist()]
        elif kind == Kind.RELEASED:
            released = decode_released(data.data[int(at[0]) : int(at[0] + operations.length[i])])
            found.append(f"release {released.queue} {released.first}")
    return found


def _prepared(records: Records, snapshot: int) -> list[dict[str, object]]:
    """Return a step for each PREPARE record. Steps of a snapshot have the snapshot's LSN instead of their record's."""
    rows: list[dict[str, object]] = []
    for i in records.of_kind(Kind.PREPARE).tolist():
        found = decode_prepare(records.payload(i), int(records.lsn[i]))
        settle = [item for item in found.settlements if not item.requeue]
        back = [item for item in found.settlements if item.requeue]
        effects = [f"place {queue} {run.length} {run.lsn}" for run in found.runs for queue in run.queues]
        for item in settle:
            verb = "settle" if item.outcome == Outcome.ACCEPTED else "reject"
            effects += [f"{verb} {item.queue} {first} {count}" for first, count in merged(item.ranges)]
        effects += [f"return {item.queue} {first} {count}" for item in back for first, count in merged(item.ranges)]
        effects += [f"release {hold.queue} {hold.first}" for hold in found.reservations]
        rows.append(
            {
                "branch": found.number,
                "step": _STEP_OF.get(found.state, "prepared"),
                "lsn": int(records.lsn[i]) if snapshot < 0 else snapshot,
                "at_us": found.time * 1000,
                "operations": len(found.runs) + len(found.settlements) + len(found.reservations),
                "published": sum(run.length * len(run.queues) for run in found.runs),
                "settled": sum(count for item in settle for _, count in item.ranges),
                "whole": True,
                "snapshot": snapshot >= 0,
                "xid": found.xid,
                "owner": plain(found.owner),
                "started_ms": found.started,
                "effects": effects,
            }
        )
    return rows


def _ended(records: Records) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for i in records.of_kind(Kind.ROLLBACK, Kind.FORGET, Kind.DECIDE).tolist():
        payload = records.payload(i)
        where = {"lsn": int(records.lsn[i]), "at_us": int(records.time[i]), "whole": True, "snapshot": False}
        kind = int(records.kind[i])
        if kind != Kind.DECIDE:
            step = "rolled back" if kind == Kind.ROLLBACK else "forgotten"
            rows.append({"branch": int.from_bytes(payload[:8], "little"), "step": step, **where})
            continue
        said = decision(payload)
        numbers = np.frombuffer(payload, "<u8", said.lost, said.end).tolist()
        by = {"application": _name(said), "epoch": said.epoch}
        rows += [{"branch": number, "step": "rolled back", **by, **where} for number in numbers]
    return rows


def _name(said: Decision) -> str | None:
    return said.application.rpartition("\0")[2] or None

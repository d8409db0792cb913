"""The pipeline's tasks without Spark, one after the other in this process: for many small journals in little time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.journal.memory import MemoryStorage
from escrowmq.pipeline import decisions, tasks
from escrowmq.pipeline.columns import plain
from escrowmq.pipeline.decisions import together
from escrowmq.pipeline.findings import RULES, BranchRule, Finding
from escrowmq.pipeline.judging import WRONG
from escrowmq.pipeline.lifecycle import World
from escrowmq.pipeline.messages import Names
from escrowmq.pipeline.packing import SCHEMA
from escrowmq.pipeline.planning import Plan, plan
from escrowmq.pipeline.sequences import STEPS, Sequences


class Audited(NamedTuple):
    """What came out: rows of `messages` and `branches`, and what is wrong, as (name of the rule, subject, LSN)."""

    plan: Plan
    messages: list[dict[str, Any]]
    branches: list[dict[str, Any]]
    wrong: list[tuple[str, str, int]]


def export(storage: MemoryStorage, folder: Path) -> Path:
    """What lies on a simulated disk, as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name in storage.names():
        (folder / name).write_bytes(storage.read(name, 0, storage.size(name)))
    return folder


def audited(journal: Path, parts: int = 2) -> Audited:
    """Audit a whole journal."""
    found = plan(journal)

    def pieces() -> Iterator[pa.RecordBatch]:
        for piece in found.pieces:
            yield pa.RecordBatch.from_pylist([piece._asdict()])

    names: dict[int, tuple[str, str]] = {}
    arguments: dict[int, dict[str, Any]] = {}
    deleted: dict[int, tuple[int, int, int]] = {}
    wrong: list[tuple[str, str, int]] = [("damaged log", each.file, each.lsn) for each in found.damage]
    handed: dict[int, list[tuple[int, int, int]]] = {}
    for row in _rows(tasks.Scan(str(journal))(pieces())):
        if row["kind"] == Kind.DELIVERED:
            handed.setdefault(row["number"], []).append((row["time"], row["lsn"], row["frame"]))
            continue
        fields = decode_change(row["payload"]) if row["kind"] else {}
        if row["kind"] == Kind.QUEUE_DECLARED:
            names[fields["id"]], arguments[fields["id"]] = (
                (plain(fields["vhost"]), plain(fields["name"])),
                fields["arguments"],
            )
        elif row["kind"] == Kind.QUEUE_DELETED:
            deleted[fields["id"]] = (row["lsn"], row["frame"], row["time"])
        elif row["kind"] == 0 and row["payload"]:
            wrong.append(("damaged log", row["file"], row["lsn"]))
    world = World(
        start=found.start,
        deleted=deleted,
        handed=handed,
        snapshots=found.snapshots,
        holes=found.holes,
        priorities=frozenset(i for i, each in arguments.items() if each.get("x-max-priority")),
        streams=frozenset(i for i, each in arguments.items() if each.get("x-queue-type") == "stream"),
        declared=frozenset(arguments) if found.start else None,
    )
    packed = [batch for batch in tasks.Happenings(str(journal), parts)(pieces()) if len(batch)]
    messages: list[dict[str, Any]] = []
    if packed:
        table = pa.Table.from_batches(packed, SCHEMA).sort_by([("part", "ascending"), ("lsn", "ascending")])
        messages = _rows(tasks.Lives(world, Names(names))(table.to_batches()))
    first: dict[int, int] = {}
    for row in messages:
        if row["publish_lsn"] is not None and row["publish_lsn"] >= found.start:
            first[row["queue_id"]] = min(first.get(row["queue_id"], row["position"]), row["position"])
    for row in messages:
        for finding in Finding:
            if row["findings"] & finding:
                horizon = first.get(row["queue_id"])
                history = found.start > 0 and (horizon is None or row["position"] < horizon)
                if finding is not Finding.UNKNOWN or not history:
                    wrong.append((RULES[finding].name, f"{row['queue']} {row['position']}", row["finding_lsn"]))
    steps: dict[int, list[dict[str, Any]]] = {}
    said = _rows(tasks.Branches(str(journal))(pieces()))
    numbered = [step for step in said if step["step"] in STEPS]
    follow = Sequences({}, {}, found.start, deleted)
    wrong += [(each.rule.name, each.text[2:], each.lsn) for each in follow.check(numbered, found.snapshots)]
    for step in sorted((step for step in said if step["step"] not in STEPS), key=lambda step: step["lsn"]):
        steps.setdefault(step["branch"], []).append(step)
    decided = decisions.World(frozenset(deleted), tuple(found.snapshots), found.start)
    branches = [together(branch, each, decided) for branch, each in steps.items()]
    wrong += [
        (
            WRONG.get(row["wrong"], BranchRule.DIFFERENT).name,
            f"branch {row['branch']}",
            max(row["records"], default=0),
        )
        for row in branches
        if row["wrong"]
    ]
    return Audited(found, messages, branches, wrong)


def _rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]

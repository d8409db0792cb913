"""Run the pipeline's tasks in this process without Spark, to audit many small journals in little time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from escrowmq.core.records.changes import decode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.journal.memory import Faults, MemoryStorage
from escrowmq.pipeline import (
    chain,
    decisions,
    digests,
    group_facts,
    groups,
    half,
    links,
    mentions,
    removals,
    routing,
    tasks,
    unsettled,
)
from escrowmq.pipeline import names as names_
from escrowmq.pipeline.columns import plain
from escrowmq.pipeline.decisions import together
from escrowmq.pipeline.findings import RULES, BranchRule, Finding
from escrowmq.pipeline.judging import WRONG
from escrowmq.pipeline.lifecycle import MessageFacts
from escrowmq.pipeline.messages import Names
from escrowmq.pipeline.names import TOLD
from escrowmq.pipeline.packing import SCHEMA
from escrowmq.pipeline.planning import Plan, plan
from escrowmq.pipeline.policies import PolicyHistory
from escrowmq.pipeline.queue_terms import terms
from escrowmq.pipeline.sequences import STEPS, Sequences, Wrong
from escrowmq.pipeline.store import Queue, State
from escrowmq.pipeline.topology import continued

Violation = tuple[str, str, int]


class Audited(NamedTuple):
    """The result of an audit.

    Args:
        plan: what was read.
        messages: rows of the table `messages`.
        branches: rows of the table `branches`.
        wrong: violations, each as (name of the violation, subject, LSN).
        head: the end of the log.
    """

    plan: Plan
    messages: list[dict[str, Any]]
    branches: list[dict[str, Any]]
    wrong: list[Violation]
    head: chain.Head | None


class Routed(NamedTuple):
    """The result of routing messages again: what is wrong, as (kind, subject, LSN), and the numbers of messages."""

    wrong: list[Violation]
    checked: int
    untold: int


def export(storage: MemoryStorage, folder: Path) -> Path:
    """Write the files of a simulated disk to `folder`, in place of those that it contains. No read of it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    faults, storage.faults = storage.faults, Faults()
    for name in storage.names():
        (folder / name).write_bytes(storage.read(name, 0, storage.size(name)))
    storage.faults = faults
    return folder


def audited(journal: Path, parts: int = 2, head: chain.Head | None = None, *, ids: bool = False) -> Audited:
    """Audit a whole journal.

    Args:
        journal: the folder of the journal.
        parts: the number of parts into which the work is divided.
        head: the end of the log that an earlier audit has seen.
        ids: whether to read the identities of messages.
    """
    found = plan(journal)
    broken, seen, _ = head_of(journal, head, found)
    broken += removed(journal, found)[0]
    wrong: list[Violation] = [("damaged log", each.file, each.lsn) for each in found.damage]
    wrong += [(each.rule.name, each.text[2:], each.lsn) for each in (*broken, *compared(journal, found)[0])]
    facts, names, damage = _scanned(journal, found)
    wrong += _links(journal, found, facts)
    wrong += _half(journal, found)
    wrong += _groups(journal, found)
    messages = _messages(journal, found, parts, facts, names, ids=ids)
    branches, numbers = _branches(journal, found, facts)
    wrong += [*damage, *_of_messages(messages, found.start), *numbers]
    wrong += [
        (
            WRONG.get(row["wrong"], BranchRule.DIFFERENT).name,
            f"branch {row['branch']}",
            max(row["records"], default=0),
        )
        for row in branches
        if row["wrong"]
    ]
    return Audited(found, messages, branches, wrong, seen)


def head_of(
    journal: Path, head: chain.Head | None = None, found: Plan | None = None
) -> tuple[list[Wrong], chain.Head | None, bool]:
    """Check the chain of segments from `head` on. Returns the violations, the new head, and whether all was proved."""
    found = found or plan(journal, head.lsn if head else 0)
    holes = found.missing.holes if found.missing.noted else ()
    return chain.judge(_segments(journal, found, head.lsn if head else -1), head, holes)


def removed(journal: Path, found: Plan | None = None) -> tuple[list[Wrong], bool | None]:
    """Compare what is missing of a journal with what it has noted. Returns what `removals.judge` does."""
    found = found or plan(journal)
    rows = [row for row in _rows(tasks.Scan(str(journal))(_pieces(found))) if row["kind"] == Kind.REMOVED]
    newest = max(((row["lsn"], row["payload"]) for row in rows if row["snapshot"] < 0), default=(0, b""))
    return removals.judge(found.missing, removals.noted_holes(newest[1]))


def compared(
    journal: Path, found: Plan | None = None, names: Mapping[int, str] | None = None
) -> tuple[list[Wrong], digests.Compared]:
    """Compare the frames of a journal with their digests. `names` are those of queues, by ID."""
    return digests.judge(_segments(journal, found or plan(journal), -1), names or {})


def _segments(journal: Path, found: Plan, past: int) -> list[dict[str, Any]]:
    pieces = (pa.RecordBatch.from_pylist([piece._asdict()]) for piece in found.chained)
    return _rows(tasks.Chained(str(journal), past)(pieces))


def routed(journal: Path, sample: float = 1.0) -> Routed:
    """Route the messages of a whole journal again."""
    found = plan(journal)
    named = [
        (row["snapshot"], row["lsn"], row["kind"], row["payload"])
        for row in _rows(tasks.Scan(str(journal))(_pieces(found)))
        if row["kind"] in TOLD
    ]
    history = continued(None, named, found.start, 0, found.snapshots)
    rows = _rows(tasks.Routes(str(journal), history, sample, found.noted)(_pieces(found)))
    checked, untold = (
        sum(row["number"] for row in rows if row["wrong"] == what) for what in (routing.CHECKED, routing.UNTOLD)
    )
    wrong = [row for row in rows if row["wrong"] in routing.WRONG]
    return Routed([(row["wrong"], f"{row['queue']} {row['position']}", row["lsn"]) for row in wrong], checked, untold)


def _scanned(journal: Path, found: Plan) -> tuple[MessageFacts, Names, list[Violation]]:
    """Return the facts that apply to all messages, the names of queues, and damage, from a scan of the journal."""
    names: dict[int, tuple[str, str]] = {}
    queues: dict[int, Queue] = {}
    set_back: list[int] = []
    times: list[tuple[int, int, int]] = []
    named: list[tuple[int, int, int, bytes]] = []
    arguments: dict[int, dict[str, Any]] = {}
    deleted: dict[int, tuple[int, int, int]] = {}
    handed: dict[int, list[tuple[int, int, int]]] = {}
    damage: list[Violation] = []
    for row in _rows(tasks.Scan(str(journal))(_pieces(found))):
        if row["kind"] in TOLD:
            named.append((row["snapshot"], row["lsn"], row["kind"], row["payload"]))
        elif row["kind"] == tasks.SET_BACK:
            set_back.append(row["lsn"])
        elif row["kind"] == tasks.BEGINS or (row["kind"] == 0 and row["snapshot"] < 0):
            times.append((row["lsn"], int(row["kind"] == 0), row["time"]))
        if row["kind"] not in (0, Kind.DELIVERED, Kind.QUEUE_DECLARED, Kind.QUEUE_DELETED):
            continue
        if row["kind"] == Kind.DELIVERED:
            handed.setdefault(row["number"], []).append((row["time"], row["lsn"], row["frame"]))
            continue
        fields = decode_change(row["payload"]) if row["kind"] else {}
        if row["kind"] == Kind.QUEUE_DECLARED:
            names[fields["id"]], arguments[fields["id"]] = (
                (plain(fields["vhost"]), plain(fields["name"])),
                fields["arguments"],
            )
            where = (row["lsn"], row["snapshot"] < 0)
            queues.setdefault(
                fields["id"], Queue(*names[fields["id"]], fields["arguments"], since=where[0], logged=where[1])
            )
        elif row["kind"] == Kind.QUEUE_DELETED:
            unknown = Queue(plain(fields["vhost"]), plain(fields["name"]), declared=False)
            queues.setdefault(fields["id"], unknown).deleted = (row["lsn"], row["frame"], row["time"])
            deleted[fields["id"]] = (row["lsn"], row["frame"], row["time"])
        elif row["kind"] == 0 and row["payload"]:
            damage.append(("damaged log", row["file"], row["lsn"]))
    set_back += [now[0] for past, now in pairwise(sorted(times)) if not now[1] and now[2] + tasks.SET_BACK_US < past[2]]
    facts = MessageFacts(
        start=found.start,
        deleted=deleted,
        handed=handed,
        snapshots=found.snapshots,
        holes=found.holes,
        priorities=frozenset(i for i, each in arguments.items() if each.get("x-max-priority")),
        streams=frozenset(i for i, each in arguments.items() if each.get("x-queue-type") == "stream"),
        declared=frozenset(arguments) if found.start else None,
        terms=terms(queues, _policies(named, found)),
        set_back=set_back,
        segments=found.segments,
    )
    follow = names_.ExistingNames({}, certain=found.start == 0)
    steps = _rows(tasks.Branches(str(journal))(_pieces(found)))
    mentioned = [mentions.mention(step) for step in steps if step["step"] == mentions.STEP]
    wrong = follow.check(named, found.snapshots, mentioned)
    damage += [(each.rule.name, each.text[2:], each.lsn) for each in wrong]
    return facts, Names(names), damage


def _policies(named: list[tuple[int, int, int, bytes]], found: Plan) -> PolicyHistory:
    history = PolicyHistory({})
    history.follow(named, 0, found.snapshots, certain=found.start == 0)
    return history


def _messages(
    journal: Path, found: Plan, parts: int, facts: MessageFacts, names: Names, *, ids: bool
) -> list[dict[str, Any]]:
    packed = [batch for batch in tasks.Happenings(str(journal), parts, ids)(_pieces(found)) if len(batch)]
    if not packed:
        return []
    table = pa.Table.from_batches(packed, SCHEMA).sort_by([("part", "ascending"), ("lsn", "ascending")])
    return _rows(tasks.Lives(facts, names)(table.to_batches()))


def _of_messages(messages: list[dict[str, Any]], start: int) -> Iterator[Violation]:
    """Yield the findings of messages, without those that a deleted part of the log may explain."""
    first: dict[int, int] = {}
    for row in messages:
        if row["publish_lsn"] is not None and row["publish_lsn"] >= start:
            first[row["queue_id"]] = min(first.get(row["queue_id"], row["position"]), row["position"])
    for row in messages:
        for finding in Finding:
            if row["findings"] & finding:
                horizon = first.get(row["queue_id"])
                history = start > 0 and (horizon is None or row["position"] < horizon)
                if finding is not Finding.UNKNOWN or not history:
                    yield RULES[finding].name, f"{row['queue']} {row['position']}", row["finding_lsn"]


def _branches(journal: Path, found: Plan, facts: MessageFacts) -> tuple[list[dict[str, Any]], list[Violation]]:
    """Return rows of the table `branches`, and violations in the numbers of groups and applications."""
    said = _rows(tasks.Branches(str(journal))(_pieces(found)))
    numbered = [step for step in said if step["step"] in STEPS]
    follow = Sequences({}, {}, found.start, facts.deleted)
    wrong = [(each.rule.name, each.text[2:], each.lsn) for each in follow.check(numbered, found.snapshots)]
    steps: dict[int, list[dict[str, Any]]] = {}
    others = (step for step in said if step["step"] not in (*STEPS, mentions.STEP))
    for step in sorted(others, key=lambda step: step["lsn"]):
        steps.setdefault(step["branch"], []).append(step)
    decided = decisions.BranchFacts(frozenset(facts.deleted), tuple(found.snapshots), found.start)
    return [together(branch, each, decided) for branch, each in steps.items()], wrong


def _links(journal: Path, found: Plan, facts: MessageFacts) -> Iterator[Violation]:
    """Yield violations in the deliveries of link termini. Their subject is the tag, or the number of the queue and the
    position.
    """
    queues, gone, vhosts = set(), {}, {}
    durable: dict[str, list[Any]] = {}
    for row in _rows(tasks.Scan(str(journal))(_pieces(found))):
        if row["kind"] == Kind.ACQUIRED:
            queues.add(row["number"])
        elif row["kind"] == Kind.TERMINUS_DELETED:
            gone[decode_change(row["payload"])["number"]] = row["lsn"]
        elif row["kind"] == Kind.TERMINUS_SET:
            unsettled.note_durable(durable, decode_change(row["payload"]), row["lsn"])
        elif row["kind"] == Kind.QUEUE_DECLARED:
            fields = decode_change(row["payload"])
            vhosts[fields["id"]] = fields["vhost"]
    deleted = {ident: where[0] for ident, where in facts.deleted.items()}
    known = [
        links.DurableLink(int(number), vhost, label, since, gone.get(int(number), 1 << 62))
        for number, (vhost, label, since) in durable.items()
    ]
    steps = tasks.Links(str(journal), links.Watched(queues, vhosts, known))(_pieces(found))
    judged = links.LinkFacts(found.start, gone, deleted, links.told(found.start, -1, found.snapshots))
    for row in _rows(tasks.JudgedLinks(judged)(steps)):
        if row["wrong"]:
            place, key = row["place"], row["key"]
            subject = f"tag {key.decode()}" if place < 0 else f"queue {place} {int.from_bytes(key, 'big')}"
            yield links.WRONG[row["wrong"]].name, subject, row["lsn"]


def _half(journal: Path, found: Plan) -> Iterator[Violation]:
    """Yield violations in the lives of half messages."""
    steps = tasks.HalfSteps(str(journal))(_pieces(found))
    for row in _rows(tasks.JudgedHalf(found.start)(steps)):
        if row["wrong"]:
            yield half.WRONG[row["wrong"]].name, f"half message {row['number']}", row["lsn"]


def _groups(journal: Path, found: Plan) -> Iterator[Violation]:
    """Yield violations in the progress of consumer groups. Their subject is the position in the stream."""
    state = State()
    for row in _rows(tasks.Scan(str(journal))(_pieces(found))):
        lsn = row["snapshot"] if row["snapshot"] >= 0 else row["lsn"]
        fields = decode_change(row["payload"]) if row["kind"] in tasks.NAMED else {}
        if row["kind"] == Kind.QUEUE_DECLARED:
            names = plain(fields["vhost"]), plain(fields["name"])
            state.queues.setdefault(fields["id"], Queue(*names, fields["arguments"], since=lsn))
        elif row["kind"] == Kind.QUEUE_DELETED and fields["id"] in state.queues:
            state.queues[fields["id"]].deleted = (row["lsn"], row["frame"], row["time"])
        elif row["kind"] in (Kind.GROUP_SET, Kind.GROUP_DELETED):
            group_facts.note(state.consumer_groups, fields, lsn)
    steps = tasks.GroupSteps(str(journal), group_facts.streams(state))(_pieces(found))
    for row in _rows(tasks.JudgedGroups(group_facts.facts(state, found.start))(steps)):
        if row["wrong"]:
            where = f"group {row['group']} {state.queues[row['stream']].name} {row['position']}"
            yield groups.WRONG[row["wrong"]].name, where, row["lsn"]


def _pieces(found: Plan) -> Iterator[pa.RecordBatch]:
    for piece in found.pieces:
        yield pa.RecordBatch.from_pylist([piece._asdict()])


def _rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]

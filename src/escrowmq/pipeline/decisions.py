"""Build the silver table `branches`: combine steps into one row for each transaction branch, and find broken rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError
from escrowmq.pipeline.effects import changed, difference, falls_short

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DDL: Final = (
    "branch long, kind string, xid string, owner string, application string, epoch long, started_at timestamp_ltz, "
    "prepared_at timestamp_ltz, decided_at timestamp_ltz, forgotten_at timestamp_ltz, outcome string, operations long, "
    "published long, settled long, prepare_lsn long, decide_lsn long, records array<long>, wrong string"
)
STATE: Final = (
    "if((outcome = 'prepared' or outcome like 'heuristically%') and forgotten_at is null, 'open', 'settled') state"
)
"""The column `state`: `open` if further steps of the branch are expected, otherwise `settled`."""
COMMITS: Final = ("committed", "decided", "heuristically committed")
ROLLBACKS: Final = ("rolled back", "heuristically rolled back")
ALONE: Final = (
    "branch",
    "'transaction' kind",
    "cast(null as string) xid",
    "cast(null as string) owner",
    "cast(null as string) application",
    "cast(null as long) epoch",
    "cast(null as timestamp_ltz) started_at",
    "cast(null as timestamp_ltz) prepared_at",
    "timestamp_micros(at_us) decided_at",
    "cast(null as timestamp_ltz) forgotten_at",
    "'committed' outcome",
    "operations",
    "published",
    "settled",
    "cast(null as long) prepare_lsn",
    "lsn decide_lsn",
    "array(lsn) records",
    "if(whole, null, 'torn') wrong",
)
HISTORY_GONE: Final = "history gone"
"""The outcome of a branch that is no longer in doubt, but whose decision was in a deleted part of the log."""
FEW: Final = 200_000
TWO_PHASE: Final = ("prepared", "decided", "rolled back", "forgotten", *COMMITS[2:], *ROLLBACKS[1:])


@dataclass(frozen=True, slots=True)
class BranchFacts:
    """Facts that apply to all branches.

    Args:
        deleted: the numbers of deleted queues; a commit omits effects on them (TX-11).
        snapshots: the LSNs of the snapshots that are compared with the log.
        start: the LSN below which some of the log's history may be gone.
    """

    deleted: frozenset[int] = frozenset()
    snapshots: tuple[int, ...] = ()
    start: int = 0

    def tells(self, lsn: int, *, snapshot: bool = False) -> bool:
        """Return whether the available log, or an earlier snapshot, must name every branch that is in doubt at `lsn`.

        `snapshot` says that the step at `lsn` is itself from a snapshot, which cannot confirm its own content.
        """
        return self.start == 0 or any(taken < lsn or (taken == lsn and not snapshot) for taken in self.snapshots)


def branches(steps: DataFrame, before: DataFrame | None, facts: BranchFacts) -> DataFrame:
    """Return one row for each branch with a step in `steps`, or in `before`: steps of branches that earlier runs left
    open.
    """
    mine = steps if before is None else steps.unionAll(before.select(steps.columns))
    alone = None
    if steps.count() > FEW:  # most branches have a single step, which needs no grouping
        several = mine.where(
            f"step in ({', '.join(repr(step) for step in TWO_PHASE)}) or (effects is not null and published > 0)"
        ).select("branch")
        repeated = steps.groupBy("branch").count().where("count > 1").select("branch")
        several = several.unionAll(repeated).distinct()
        alone = steps.join(several, "branch", "left_anti").selectExpr(*ALONE)
        mine = mine.join(several, "branch", "left_semi")
    together = mine.groupBy("branch").agg(_gathered(steps.columns)).mapInArrow(Together(facts), DDL)
    return together if alone is None else alone.unionAll(together)


def open_steps(steps: DataFrame, before: DataFrame | None, rows: DataFrame) -> DataFrame:
    """Return the steps of branches that are in doubt, or were completed by an operator and not yet forgotten."""
    left = rows.where("state = 'open'")
    whole = steps if before is None else steps.unionAll(before.select(steps.columns))
    return whole.join(left.select("branch"), "branch", "left_semi").select(steps.columns)


def _gathered(columns: list[str]) -> Column:
    from pyspark.sql import functions as f

    return f.sort_array(f.collect_list(f.struct("lsn", *(name for name in columns if name != "lsn")))).alias("steps")


@dataclass(frozen=True, slots=True)
class Together:
    """A Spark task that builds rows of `branches` from steps grouped by branch."""

    facts: BranchFacts

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = _schema()
        for batch in batches:
            rows = [together(found["branch"], found["steps"], self.facts) for found in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _schema() -> pa.Schema:
    moment = pa.timestamp("us", tz="UTC")
    kinds = {"long": pa.int64(), "string": pa.string(), "timestamp_ltz": moment, "array<long>": pa.list_(pa.int64())}
    return pa.schema([(name, kinds[kind]) for name, kind in (part.split() for part in DDL.split(", "))])


NO_FACTS: Final = BranchFacts()


def together(branch: int, steps: list[dict[str, Any]], facts: BranchFacts = NO_FACTS) -> dict[str, Any]:
    """Return the row of a branch.

    Args:
        branch: the branch's number.
        steps: its steps in the order of the log.
        facts: facts that apply to all branches.
    """
    row: dict[str, Any] = {"branch": branch, "kind": "transaction", "outcome": "prepared"}
    row |= {"operations": 0, "published": 0, "settled": 0}
    prepared: list[str] | None = None
    outcomes: list[str] = []
    wrong: str | None = None
    forgotten: int | None = None
    unprepared: bool | None = None
    seen: set[int] = set()
    lsn = 0
    for step in steps:
        name, last, lsn = str(step["step"]), lsn, step["lsn"]
        known = "prepare_lsn" in row
        if name == "prepared" and step["snapshot"] and known:
            if not outcomes and changed(prepared or [], step["effects"] or [], facts.deleted):
                wrong = wrong or "changed"
            continue
        if unprepared is None and not known and _needs_preparation(step):
            # Only the first such step tells whether the PREPARE is missing. If it may be in a deleted part of the log,
            # no later step brings it back: later snapshots have an operator's decision, without the prepared work.
            unprepared = facts.tells(lsn, snapshot=step["snapshot"])
        if not step["snapshot"]:
            seen.add(lsn)
        if step["xid"]:
            row |= {"kind": "distributed", "xid": _xid(step["xid"]), "owner": step["owner"]}
            row["started_at"] = step["started_ms"] * 1000
        if name == "prepared":
            if known or outcomes or forgotten is not None:
                wrong = wrong or "again"
            row |= {"prepare_lsn": lsn, "prepared_at": step["at_us"], **_sizes(step)}
            prepared = list(step["effects"] or ())
        elif name == "forgotten":
            again, forgotten = forgotten is not None, lsn
            row["forgotten_at"] = step["at_us"]
            completed = bool(outcomes) and outcomes[0].startswith("heuristically")
            if known and not outcomes and last < facts.start <= lsn:  # its decision was in a deleted part of the log
                completed, row["outcome"] = True, HISTORY_GONE
            if again or ((known or outcomes) and not completed):
                wrong = wrong or "forgotten"
        else:
            ended = forgotten is not None
            if step["snapshot"] and (outcomes or ended or (known and row["prepare_lsn"] >= facts.start)):
                wrong = wrong or (None if name in outcomes[:1] and not ended else "changed")
                continue
            if ended and not outcomes:  # its decision was in a deleted part of the log
                wrong = wrong or "twice"
            wrong = wrong or _judged(step, outcomes, prepared, facts.deleted, row.get("prepare_lsn", 0))
            outcomes.append(name)
            if len(outcomes) == 1:
                row |= {"outcome": "committed" if name == "decided" else name, "decide_lsn": lsn}
                row["decided_at"] = step["at_us"]
                # A commit can do more than was prepared: it also dead-letters, and settles reservations.
                if prepared is None or (name in COMMITS and not step["snapshot"]):
                    row |= _sizes(step)
            if step["application"] is not None:
                row |= {"application": step["application"], "epoch": step["epoch"]}
    row["records"] = sorted(seen)
    row["wrong"] = wrong or ("unprepared" if unprepared else _compared(row, steps, facts, forgotten))
    return row


def _needs_preparation(step: dict[str, Any]) -> bool:
    """Return whether this step requires an earlier PREPARE. Every step does, except a one-phase commit."""
    if step["step"] == "prepared":
        return bool(step["snapshot"])
    placed = any(effect.startswith(("place ", "fetch ")) for effect in step["effects"] or ())
    return step["step"] != "committed" or placed


def _compared(
    row: dict[str, Any], steps: list[dict[str, Any]], facts: BranchFacts, forgotten: int | None = None
) -> str | None:
    """Check that every snapshot contains a branch exactly while the log says that it is in doubt or not forgotten.

    Returns `lost`, `back`, or None.
    """
    held = {step["lsn"]: step["step"] for step in steps if step["snapshot"]}
    prepared, decided = row.get("prepare_lsn"), row.get("decide_lsn")
    since = decided if prepared is None else prepared
    for lsn in facts.snapshots:
        if since is None or since >= lsn:
            continue
        doubtful = decided is None or decided >= lsn
        kept = doubtful or (row["outcome"].startswith("heuristically") and (forgotten is None or forgotten >= lsn))
        if kept and lsn not in held and since >= facts.start:
            return "lost"
        if doubtful and lsn not in held and decided is None:
            row["outcome"] = HISTORY_GONE
        if not doubtful and held.get(lsn) == "prepared":
            return "back"
    return None


def _judged(
    step: dict[str, Any], before: list[str], prepared: list[str] | None, deleted: Collection[int], prepare_lsn: int
) -> str | None:
    """Describe the fault of an outcome, given the outcomes `before` it; None if there is none."""
    name = str(step["step"])
    if not step["whole"]:
        return "torn"
    if before:
        same = (before[0] in COMMITS) == (name in COMMITS)
        return "twice" if same else "contradicted"
    if name == "heuristically rolled back" and step["operations"]:
        return f"the record that rolls it back contains {step['operations']} operations"
    if name not in COMMITS or prepared is None or step["snapshot"]:
        return None
    if step["effects"] is None:
        return falls_short(prepared, step, deleted)
    return difference(prepared, list(step["effects"]), deleted, prepare_lsn)


def _sizes(step: dict[str, Any]) -> dict[str, Any]:
    return {name: step[name] for name in ("operations", "published", "settled")}


def _xid(data: Any) -> str:
    try:
        return str(Xid.decode(bytes(data)))
    except BrokerError:  # an invalid xid in the log is still shown, in hexadecimal
        return bytes(data).hex()

"""Find violations at the end of a run: in messages, branches, numbers, and the log as a whole."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from escrowmq.pipeline import gold, group_facts, half, silver, sums, unsettled
from escrowmq.pipeline.decisions import COMMITS, ROLLBACKS
from escrowmq.pipeline.events import BUCKET_BITS
from escrowmq.pipeline.findings import RULES, BranchRule, Finding, Rule
from escrowmq.pipeline.names import ExistingNames
from escrowmq.pipeline.routing import WRONG as WRONG_ROUTES
from escrowmq.pipeline.sequences import Sequences

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from escrowmq.pipeline.audit import Audit
    from escrowmq.pipeline.store import Queue

BRANCH: Final = ("branch", "xid", "records", "decided_at", "prepared_at")
WRONG: Final = {
    "torn": BranchRule.TORN,
    "twice": BranchRule.TWICE,
    "contradicted": BranchRule.CONTRADICTED,
    "lost": BranchRule.LOST,
    "back": BranchRule.BACK,
    "unprepared": BranchRule.UNPREPARED,
    "again": BranchRule.AGAIN,
    "changed": BranchRule.CHANGED,
    "forgotten": BranchRule.FORGOTTEN,
}


def violations(audit: Audit, messages: DataFrame, branches: DataFrame) -> DataFrame:
    """Return the table `violations`: those of earlier runs and of this one."""
    spark = audit.spark
    found = _refined(audit, gold.of_messages(messages))
    few = [
        *_of_log(audit),
        *_of_order(audit),
        *_of_deliveries(audit, messages),
        *_of_numbers(audit),
        *_of_names(audit),
        *(
            _row(wrong.rule, lsns=[wrong.lsn, *wrong.others], text=f"{wrong.text}.")
            for wrong in (*audit.continuity.unchained, *audit.continuity.changed)
        ),
        *unsettled.violations(audit),
        *half.violations(audit),
        *_of_routes(audit),
        *group_facts.violations(audit),
    ]
    wrong = branches.select(*BRANCH, "wrong").where("wrong is not null")
    past = audit.history("silver.branches", "branch long, outcome string, decide_lsn long")
    if past is not None:
        unknown = wrong.where("wrong = 'unprepared'").join(past.select("branch"), "branch", "left_anti")
        wrong = wrong.where("wrong != 'unprepared'").unionAll(unknown.select(wrong.columns))
        wrong = wrong.unionAll(_again(branches, past))
    others = _of_branches(wrong)
    if few:
        settled = audit.history("silver.messages", gold.IDENTIFIED_DDL)
        known = [messages] if settled is None else [messages, settled]
        others = others.unionAll(gold.identified(spark.createDataFrame(few, gold.FOUND_DDL), *known))
    before = audit.before("state.violations")
    if before is None:
        return found.unionAll(others)
    # Every run finds the violations of an open branch, and of the log as a whole, again.
    anew = others.join(before.select("explanation"), "explanation", "left_anti").select(others.columns)
    return before.select(found.columns).unionAll(found).unionAll(anew)


def _again(branches: DataFrame, past: DataFrame) -> DataFrame:
    """Branches that are decided or prepared in this run although an earlier run has seen them decided."""
    from pyspark.sql import functions as f

    decided, commits = f.col("outcome").isin(*COMMITS, *ROLLBACKS), f.col("outcome").isin(*COMMITS)
    before = past.where(decided).select("branch", f.col("decide_lsn").alias("past"), commits.alias("won"))
    now = branches.where(decided | (f.col("outcome") == "prepared")).withColumn("wins", commits)
    now = now.withColumn("said", f.coalesce("decide_lsn", "prepare_lsn")).join(before, "branch").where("said != past")
    wrong = f.when(~decided, "again").when(f.col("won") != f.col("wins"), "contradicted").when(f.col("won"), "twice")
    return now.withColumn("records", f.array("past", "said")).select(*BRANCH, wrong.alias("wrong"))


def undecided(branches: DataFrame) -> DataFrame:
    """Return the table `undecided`: branches that are in doubt."""
    columns = ("branch", "kind", "xid", "owner", "started_at", "prepared_at", "operations", "published", "settled")
    return branches.where("outcome = 'prepared' and forgotten_at is null").select(*columns, "prepare_lsn")


def overdue(audit: Audit, rows: DataFrame) -> list[tuple[Any, ...]]:
    """Branches that are in doubt for too long at this moment, as rows of `violations`.

    Later runs do not keep these rows, because a decision ends the violation.
    """
    limit = datetime.fromtimestamp(present(audit) - audit.options.prepared_seconds, UTC)
    late = rows.where(f"prepared_at < timestamp_ltz '{limit.isoformat()}'").collect()
    return [
        _row(BranchRule.UNDECIDED, branch=row.branch, lsns=[row.prepare_lsn], at=row.prepared_at, xid=row.xid)
        for row in late
    ]


def present(audit: Audit) -> float:
    """Return the present in seconds: the time of the last record if no broker is running."""
    return time.time() if audit.plan.running else audit.scan.last_time / 1e6


def _row(
    rule: Rule,
    *,
    branch: int | None = None,
    lsns: list[int] | None = None,
    at: datetime | None = None,
    xid: str | None = None,
    text: str = "",
) -> tuple[Any, ...]:
    subject = f"Branch {branch}{f' ({xid})' if xid else ''}: " if branch is not None else ""
    explanation = f"{subject}{rule.text}{text}"
    name = None if branch is None else str(branch)
    return rule.rule, rule.name, None, None, None, name, lsns or [], at, explanation


def _of_log(audit: Audit) -> list[tuple[Any, ...]]:
    plan = audit.plan
    rows = []
    if plan.end < audit.begin:
        text = f": it ends at LSN {plan.end:#x}, but was read up to {audit.begin:#x}."
        rows.append(_row(BranchRule.CUT, lsns=[plan.end, audit.begin], text=text))
    for damage in plan.damage:
        text = f": {damage.file} at offset {damage.offset}: {damage.why}."
        rows.append(_row(BranchRule.DAMAGED, lsns=[damage.lsn], text=text))
    rows += [
        _row(BranchRule.DAMAGED, lsns=[lsn], text=f": {file} at LSN {lsn:#x}: {why}.")
        for file, lsn, why in audit.scan.broken
    ]
    known = set(audit.store.state.holes)
    for begin, end in plan.holes:
        if end > plan.newest_snapshot and (begin, end) not in known:
            rows.append(_row(BranchRule.MISSING, lsns=[begin, end], text=f": LSN {begin:#x} to {end:#x}."))
    return rows


def _of_numbers(audit: Audit) -> list[tuple[Any, ...]]:
    deleted = {ident: queue.deleted for ident, queue in audit.state.queues.items() if queue.deleted}
    follow = Sequences(audit.state.groups, audit.state.epochs, audit.plan.start, deleted)
    return [
        _row(wrong.rule, lsns=[wrong.lsn], text=f"{wrong.text}.")
        for wrong in follow.check(audit.numbered, audit.plan.snapshots)
    ]


def _of_names(audit: Audit) -> list[tuple[Any, ...]]:
    state, start = audit.state, audit.plan.start
    certain = start <= audit.begin and state.names_whole if state.run else start == 0
    follow = ExistingNames(state.names, certain=certain)
    found = follow.check(audit.scan.named, audit.plan.snapshots, audit.mentioned)
    state.names_whole = follow.certain
    return [_row(wrong.rule, lsns=[wrong.lsn], text=f"{wrong.text}.") for wrong in found]


def _of_routes(audit: Audit) -> list[tuple[Any, ...]]:
    rows = []
    for row in audit.misrouted:
        rule = WRONG_ROUTES[row.wrong]
        subject = f"Message {row.position} of queue {row.queue}" if row.position is not None else f"Queue {row.queue}"
        text = f"{subject}: {rule.text}, by the record at LSN {row.lsn:#x}: {row.text}."
        rows.append((rule.rule, rule.name, row.vhost, row.queue, row.position, None, [row.lsn], None, text))
    return rows


def _of_branches(branches: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    wrong = branches.where("wrong is not null")
    names = {**WRONG}
    rule, name, text = (
        f.coalesce(
            *(f.when(f.col("wrong") == key, f.lit(getattr(value, field))) for key, value in names.items()),
            f.lit(getattr(BranchRule.DIFFERENT, field))
            if field != "text"
            else f.concat(f.lit(BranchRule.DIFFERENT.text + ": "), f.col("wrong"), f.lit(".")),
        )
        for field in ("rule", "name", "text")
    )
    subject = f.concat(
        f.lit("Branch "),
        f.col("branch"),
        f.coalesce(f.concat(f.lit(" ("), f.col("xid"), f.lit(")")), f.lit("")),
        f.lit(": "),
    )
    return wrong.select(
        rule.alias("rule"),
        name.alias("name"),
        f.lit(None).cast("string").alias("vhost"),
        f.lit(None).cast("string").alias("queue"),
        f.lit(None).cast("long").alias("position"),
        f.col("branch").cast("string").alias("branch"),
        f.col("records").alias("lsns"),
        f.coalesce("decided_at", "prepared_at").alias("at"),
        f.concat(subject, text).alias("explanation"),
        *(f.lit(None).cast("string").alias(name) for name in gold.IDS),
    )


def _of_order(audit: Audit) -> list[tuple[Any, ...]]:
    """Check the order of publication across buckets of a queue, and note the positions published on each queue."""
    summary = audit.spark.sql(
        """
        select queue_id, bucket, max(top) top, min(low) low, max(high) high, min(known) known
        from {order} group by queue_id, bucket""",
        order=audit.sums(sums.ORDER),
    )
    rows: list[tuple[Any, ...]] = []
    before: tuple[int, int] = (-1, -1)
    for row in sorted(summary.collect(), key=lambda row: (row.queue_id, row.bucket)):
        queue = audit.state.queues.get(row.queue_id)
        if before[0] == row.queue_id and row.low < before[1]:
            rule = RULES[Finding.REORDERED]
            where = (queue.vhost, queue.name) if queue else ("", f"queue {row.queue_id}")
            position = row.bucket << BUCKET_BITS
            text = f"A message of queue {where[1]} at position {position} or above: {rule.text}"
            rows.append((rule.rule, rule.name, *where, position, None, [row.low, before[1]], None, text))
        before = (row.queue_id, row.high)
        if queue is not None:
            queue.published = max(queue.published, row.top)
            if row.known is not None and (queue.first == 0 or row.known < queue.first):
                queue.first = row.known
    return rows


def _of_deliveries(audit: Audit, messages: DataFrame) -> list[tuple[Any, ...]]:
    """Check the order of first deliveries across buckets of a queue, and against earlier runs."""
    facts = silver.facts(audit)
    ranked = ", ".join(map(str, sorted(facts.priorities))) or "null"
    summary = messages.sparkSession.sql(
        f"""
        select queue_id, level, bucket, min(lsn) low, max(lsn) high, max_by(position, lsn) latest, max(position) top,
            max_by(lsn, position) top_lsn, min(position) filter (where lsn >= {audit.begin}) early,
            min_by(lsn, position) filter (where lsn >= {audit.begin}) early_lsn
        from (
            select queue_id, if(queue_id in ({ranked}), priority, 0) level, position,
                shiftright(position, {BUCKET_BITS}) bucket, first_delivered_lsn lsn
            from {{messages}} where first_delivered_lsn is not null and deliveries > redeliveries
                and held_for_group = 0 and findings & {Finding.OUT_OF_ORDER.value} = 0
        ) where level is not null group by queue_id, level, bucket""",
        messages=messages,
    )
    rows: list[tuple[Any, ...]] = []
    group, lowest, top, top_lsn = (-1, -1), 0, 0, 0
    for row in sorted(summary.collect(), key=lambda row: (row.queue_id, row.level, -row.bucket)):
        queue = audit.state.queues.get(row.queue_id)
        if queue is None or not facts.once(np.array([row.queue_id]))[0]:
            continue
        if group != (row.queue_id, row.level):
            group, lowest = (row.queue_id, row.level), row.high
            top, top_lsn = queue.delivered.get(str(row.level), (0, 0))  # as of earlier runs
        if row.high > lowest:
            rows.append(_late(queue, row.latest, [lowest, row.high]))
        if row.early is not None and row.early < top:
            rows.append(_late(queue, row.early, [top_lsn, row.early_lsn]))
        lowest = min(lowest, row.low)
        if row.top > queue.delivered.get(str(row.level), (0, 0))[0]:
            queue.delivered[str(row.level)] = [row.top, row.top_lsn]
    return rows


def _late(queue: Queue, position: int, lsns: list[int]) -> tuple[Any, ...]:
    rule = RULES[Finding.OUT_OF_ORDER]
    text = f"Message {position} of queue {queue.name}: {rule.text}"
    return rule.rule, rule.name, queue.vhost, queue.name, position, None, lsns, None, text


def _refined(audit: Audit, found: DataFrame) -> DataFrame:
    """Drop findings that a deleted part of the log may explain, and rename those that earlier runs explain better.

    A message settled in an earlier run is unknown to this one. A later event on it looks like "never published", but is
    really a second settlement, delivery or publication.
    """
    from pyspark.sql import functions as f

    spark, plan = audit.spark, audit.plan
    unknown = f.col("finding") == int(Finding.UNKNOWN)
    columns = f"queue_id long, position long, settle_lsn long, {gold.IDS_DDL}"
    history = audit.history("silver.messages", columns)
    if history is not None:
        doubtful = f.col("finding").isin(int(Finding.UNKNOWN), int(Finding.REORDERED))
        subjects = found.where(doubtful).select("queue_id", "position").distinct()
        past = history.join(f.broadcast(subjects), ["queue_id", "position"], "left_semi").select(
            "queue_id",
            "position",
            f.col("settle_lsn").alias("past"),
            *(f.col(name).alias(f"past_{name}") for name in gold.IDS),
        )
        found = found.join(f.broadcast(past), ["queue_id", "position"], "left")
        known_before = f.col("past").isNotNull() & doubtful
        in_snapshot = f.col("snapshot_lsn").isNotNull() & (f.col("deliveries") == 0)
        for column in ("rule", "name", "text"):
            twice, back, again, anew = (
                f.lit(getattr(RULES[finding], column))
                for finding in (
                    Finding.SETTLED_TWICE,
                    Finding.RESURRECTED,
                    Finding.AFTER_SETTLEMENT,
                    Finding.DUPLICATED,
                )
            )
            better = f.when(unknown & f.col("settled_at").isNotNull(), twice).when(unknown & in_snapshot, back)
            better = better.when(unknown, again).otherwise(anew)
            found = found.withColumn(column, f.when(known_before, better).otherwise(f.col(column)))
        for name in gold.IDS:
            found = found.withColumn(name, f.coalesce(name, f"past_{name}"))
        found = found.withColumn(
            "lsns", f.when(known_before, f.array_union("lsns", f.array("past"))).otherwise(f.col("lsns"))
        )
    if plan.start > 0:
        known = [(ident, queue.first) for ident, queue in audit.state.queues.items() if queue.first]
        firsts = spark.createDataFrame(known, "queue_id long, first long")
        told = f.col("first").isNotNull() & (f.col("position") >= f.col("first"))
        if history is not None:
            happened = f.col("settled_at").isNotNull() | (f.col("deliveries") > 0) | f.col("snapshot_lsn").isNotNull()
            told |= f.col("past").isNotNull() & happened
        found = found.join(f.broadcast(firsts), "queue_id", "left").where(~unknown | told)
    where = f.concat(f.lit("Message "), f.col("position"), f.lit(" of queue "), f.col("queue"), f.lit(": "))
    return found.select(
        "rule",
        "name",
        "vhost",
        "queue",
        "position",
        "branch",
        "lsns",
        "at",
        f.concat(where, f.col("text")).alias("explanation"),
        *gold.IDS,
    )

"""Write the tables bronze and silver of a run: records, messages and branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.pipeline import decisions, mentions, packing, sequences, sums, tasks
from escrowmq.pipeline.branches import DDL as STEPS
from escrowmq.pipeline.ddl import ddl
from escrowmq.pipeline.frames import SCHEMA as RECORDS
from escrowmq.pipeline.lifecycle import MessageFacts
from escrowmq.pipeline.messages import SCHEMA as MESSAGES
from escrowmq.pipeline.messages import Names
from escrowmq.pipeline.planning import PART_BYTES, PART_RECORDS
from escrowmq.pipeline.policies import PolicyHistory
from escrowmq.pipeline.queue_terms import terms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from escrowmq.pipeline.audit import Audit


def write_records(audit: Audit) -> None:
    """Write the table `bronze.records`."""
    task = tasks.Bronze(audit.files, audit.options.payloads)
    audit.store.fill(audit.spark, "bronze.records", audit.pieces(), task, ddl(RECORDS))


def write_messages(audit: Audit) -> tuple[DataFrame, int]:
    """Write the table `silver.messages`. Return this run's part of it, and the number of its rows."""
    before = audit.before("silver.messages", ddl(MESSAGES))
    left = None if before is None else before.where("state = 'open'").drop("state", "day")
    waiting = 0 if left is None else left.count()
    parts = max(2, (audit.scan.records + waiting) // PART_RECORDS, audit.plan.bytes // PART_BYTES)
    packed = audit.mapped(tasks.Happenings(audit.files, parts, audit.options.ids), packing.DDL)
    if left is not None:
        packed = packed.unionAll(left.mapInArrow(tasks.Reopen(parts), packing.DDL))
    names = Names({ident: (queue.vhost, queue.name) for ident, queue in audit.state.queues.items()})
    packed = packed.repartition(audit.task_count(parts), "part").sortWithinPartitions("part", "lsn")
    task = tasks.Lives(facts(audit), names)
    added = sums.of_messages(audit.begin, audit.plan.start)
    return audit.store.fill(audit.spark, "silver.messages", packed, task, ddl(MESSAGES), "state", "day", sums=added)


def facts(audit: Audit) -> MessageFacts:
    """Return the facts that apply to all messages, gathered from the scan and from earlier runs."""
    queues = audit.state.queues
    known = set(audit.store.state.holes)
    return MessageFacts(
        start=audit.plan.start,
        begin=audit.begin,
        published={ident: queue.published for ident, queue in queues.items() if queue.published},
        deleted={ident: queue.deleted for ident, queue in queues.items() if queue.deleted},
        handed=audit.scan.handed,
        snapshots=audit.plan.snapshots,
        holes=[hole for hole in audit.plan.holes if not audit.plan.held_back or hole in known],
        priorities=frozenset(i for i, queue in queues.items() if queue.arguments.get("x-max-priority")),
        streams=frozenset(i for i, queue in queues.items() if queue.arguments.get("x-queue-type") == "stream"),
        declared=frozenset(i for i, queue in queues.items() if queue.declared) if audit.plan.start else None,
        terms=terms(queues, _policies(audit)),
        set_back=audit.state.set_back,
        segments=audit.plan.segments,
    )


def _policies(audit: Audit) -> PolicyHistory:
    """Return the policies that queues followed in the new part of the log."""
    state = audit.state
    history = PolicyHistory(state.policies)
    certain = audit.plan.start == 0 if audit.begin == 0 else audit.plan.start <= audit.begin
    history.follow(audit.scan.named, audit.begin, audit.plan.snapshots, certain=certain)
    audit.followed = history.known()
    return history


def write_branches(audit: Audit) -> DataFrame:
    """Write the table `silver.branches`, and return it. Note the steps about numbers and names in the run."""
    from pyspark.sql import functions as f

    steps = audit.mapped(tasks.Branches(audit.files), STEPS)
    steps = audit.store.write(audit.spark, "staging.steps", steps)
    numbered = f.col("step").isin(*sequences.STEPS, mentions.STEP)
    found = [row.asDict() for row in steps.where(numbered).collect()]
    audit.numbered = [row for row in found if row["step"] != mentions.STEP]
    audit.mentioned = [mentions.mention(row) for row in found if row["step"] == mentions.STEP]
    steps = steps.where(~numbered)
    before = audit.before("state.branches")
    deleted = frozenset(ident for ident, queue in audit.state.queues.items() if queue.deleted)
    known = decisions.BranchFacts(deleted, tuple(audit.plan.snapshots), audit.plan.start)
    rows = decisions.branches(steps, before, known)
    rows = rows.selectExpr("*", decisions.STATE)
    rows = audit.store.write(audit.spark, "silver.branches", rows, "state")
    audit.store.write(audit.spark, "state.branches", decisions.open_steps(steps, before, rows))
    return rows

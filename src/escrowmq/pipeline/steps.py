"""The part of a run that judges the steps of link termini, half messages and consumer groups.

The steps that do not end in a run, such as a delivery that is unsettled, are judged again with those of the next run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from escrowmq.pipeline import group_facts, groups, half, links, tasks, unsettled
from escrowmq.pipeline.planning import PART_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from escrowmq.pipeline.audit import Audit


def check_links(audit: Audit) -> None:
    """Judge the deliveries of link termini, if there are any."""
    state, plan = audit.state, audit.plan
    if not state.termini:
        return
    found = audit.mapped(tasks.Links(audit.files, unsettled.watched(state)), links.DDL)
    gone = {int(number): lsn for number, (_, lsn) in state.termini.items() if lsn}
    deleted = {ident: queue.deleted[0] for ident, queue in state.queues.items() if queue.deleted}
    told = links.told(plan.start, audit.store.state.compared, plan.snapshots)
    task = tasks.JudgedLinks(links.LinkFacts(plan.start, gone, deleted, told))
    audit.links = _judged(audit, "links", found, "part", task, links.DDL)


def check_half(audit: Audit) -> None:
    """Judge half messages, if there are any."""
    if all(queue.name != half.HIDDEN for queue in audit.state.queues.values()):
        return
    found = audit.mapped(tasks.HalfSteps(audit.files), half.DDL)
    audit.half = _judged(audit, "half", found, "part", tasks.JudgedHalf(audit.plan.start), half.DDL)


def check_groups(audit: Audit) -> None:
    """Judge the progress of consumer groups, if there are any."""
    state = audit.state
    if not state.consumer_groups:
        return
    found = audit.mapped(tasks.GroupSteps(audit.files, group_facts.streams(state)), groups.DDL)
    task = tasks.JudgedGroups(group_facts.facts(state, audit.plan.start))
    audit.groups = _judged(audit, "groups", found, "stream", task, groups.DDL)


def _judged(audit: Audit, name: str, found: DataFrame, column: str, task: Callable[..., Any], schema: str) -> DataFrame:
    """Return what `task` says about the steps of this run and those that earlier runs have left, divided by `column`.
    Keep those without a violation for the next run.
    """
    before = audit.before(f"state.{name}", schema)
    if before is not None:
        found = found.unionAll(before.select(found.columns))
    found = found.repartition(max(2, audit.scan.records // PART_RECORDS), column)
    judged = audit.store.write(audit.spark, f"staging.{name}", found.mapInArrow(task, schema))
    audit.store.write(audit.spark, f"state.{name}", judged.where("wrong = ''"))
    return judged

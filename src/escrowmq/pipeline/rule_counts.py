"""How many messages, branches or other subjects each rule was checked on, and how often it was broken."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.pipeline import half
from escrowmq.pipeline.coverage import RecordedMoves, checked, counted
from escrowmq.pipeline.findings import of_subjects

if TYPE_CHECKING:
    from escrowmq.pipeline.audit import Audit
    from escrowmq.pipeline.verdict import Verdict

_BROKEN: Final = """
    select rule, name, subject, count(*) count
    from (
        select *, case when position is not null then 'messages' when branch is not null then 'branches' end subject
        from {table}
    ) group by rule, name, subject"""


class RuleCount(NamedTuple):
    """A rule of an audit.

    Args:
        rule: its rule ID.
        name: the name of the violation.
        subject: what the rule is about, such as "messages".
        checked: on how many of these it was checked.
        told: the same in words.
        broken: how often it was broken, in all runs.
    """

    rule: str
    name: str
    subject: str
    checked: int
    told: str
    broken: int


def rule_counts(audit: Audit, verdict: Verdict, moves: RecordedMoves) -> list[RuleCount]:
    """Return all rules with the numbers of a run."""
    broken = audit.spark.sql(_BROKEN, table=audit.store.written["gold.violations"]).collect()
    state = audit.state
    numbers = {
        "messages": verdict.messages,
        "branches": audit.store.written["silver.branches"].count(),
        "groups of bulk readers": len(state.groups),
        "applications with epochs": len(state.epochs),
        "names": len(state.names),
        "records": verdict.records,
        "link termini": len(state.termini),
        "queues of half messages": sum(queue.name == half.HIDDEN for queue in state.queues.values()),
        "consumer groups": len(state.consumer_groups),
        "routes": audit.routed,
    }
    subjects = of_subjects()
    of_several = Counter(each for names in subjects.values() for each in names)
    counts = []
    for subject, names in subjects.items():
        for rule, name in names:
            found = [row for row in broken if (row["rule"], row["name"]) == (rule, name)]
            if of_several[rule, name] > 1:  # such as "lost", of a message, of a branch, and of the end of the log
                wanted = subject if subject in ("messages", "branches") else None
                found = [row for row in found if row["subject"] == wanted]
            number = counted(subject, (rule, name), numbers[subject], moves)
            told = checked(subject, (rule, name), numbers[subject], moves)
            counts.append(RuleCount(rule, name, subject, number, told, sum(row["count"] for row in found)))
    return counts

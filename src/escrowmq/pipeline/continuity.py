"""The part of a run that proves that the log continues, that no record was changed, and what was deleted of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from escrowmq.pipeline import chain, digests, removals, tasks
from escrowmq.pipeline.sequences import Wrong

if TYPE_CHECKING:
    from escrowmq.pipeline.audit import Audit


@dataclass(slots=True)
class Continuity:
    """What was proved, and violations.

    Args:
        unchained: violations about segments and their chain.
        changed: violations about frames that differ from their digests.
        compared: the frames that were compared with their digests.
        head: the end of the log and its digest.
        deleted: whether the journal has noted all deletions of segments; None if no segment is missing.
        proved: whether every segment was proved to continue the one before, and the log the one that the last run saw,
            if there was a last run.
    """

    unchained: list[Wrong] = field(default_factory=list)
    changed: list[Wrong] = field(default_factory=list)
    compared: digests.Compared = field(default_factory=digests.Compared)
    head: chain.Head | None = None
    deleted: bool | None = None
    proved: bool = False


def check(audit: Audit) -> None:
    """Compare the digests of the segments that the run reads with each other and with those of the last run."""
    state, plan = audit.state, audit.plan
    before = chain.Head(*state.head) if state.head else None
    pieces = audit.divided(plan.chained, len(plan.chained))
    task = tasks.Chained(audit.files, before.lsn if before else -1)
    found = [row.asDict() for row in pieces.mapInArrow(task, chain.DDL).collect()]
    found = [{name: bytes(v) if isinstance(v, bytearray) else v for name, v in row.items()} for row in found]
    missing = plan.missing
    unchained, head, proved = chain.judge(found, before, missing.holes if missing.noted else ())
    seen = audit.store.state.holes if plan.running else None
    removed, deleted = removals.judge(missing, removals.noted_holes(audit.scan.noted[1]), seen)
    queues = {ident: queue.name for ident, queue in state.queues.items()}
    changed, compared = digests.judge(found, queues)
    audit.continuity = Continuity(
        unchained=unchained + removed,
        changed=changed,
        compared=compared,
        head=head,
        deleted=deleted,
        proved=proved and deleted is not False,
    )
    state.head = list(head) if head else []

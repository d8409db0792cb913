"""The part of a run that routes messages again, and the topology with which the next run continues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.pipeline import routing, tasks
from escrowmq.pipeline.topology import TopologyHistory, continued

if TYPE_CHECKING:
    from escrowmq.pipeline.audit import Audit

TOPOLOGY_DDL: Final = "number long, lsn long, kind int, payload binary"
"""Records in order. The LSN is -1 for those that rebuild the first topology (`pipeline.topology`)."""


def check(audit: Audit) -> None:
    """Follow the topology through the run's part of the log, and route the messages again if that is wanted."""
    rows = audit.before("state.topology", TOPOLOGY_DDL)
    before = None
    if rows is not None:
        said = [(row.lsn, row.kind, bytes(row.payload)) for row in rows.orderBy("number").collect()]
        base = [change[1:] for change in said if change[0] < 0]
        before = TopologyHistory(base, [change for change in said if change[0] >= 0], audit.state.topology)
    history = continued(before, audit.scan.named, audit.plan.start, audit.begin, audit.plan.snapshots)
    if audit.options.routing > 0:
        task = tasks.Routes(audit.files, history, audit.options.routing, audit.plan.noted)
        for row in audit.mapped(task, routing.DDL).collect():
            if row.wrong == routing.CHECKED:
                audit.routed += row.number
            elif row.wrong == routing.UNTOLD:
                audit.untold += row.number
            else:
                audit.misrouted.append(row)
    kept = history.shortened()
    audit.state.topology = kept.known
    every = [(-1, *each) for each in kept.base] + list(kept.changes)
    numbered = [(i, *each) for i, each in enumerate(every)]
    audit.store.write(audit.spark, "state.topology", audit.spark.createDataFrame(numbered, TOPOLOGY_DDL))

"""The part of a run that tells the lives of the messages of violations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from escrowmq.pipeline import gold, tasks, traces
from escrowmq.pipeline.planning import plan
from escrowmq.pipeline.report import SHOWN

if TYPE_CHECKING:
    from escrowmq.pipeline.audit import Audit


LIVES_DDL: Final = f"{traces.DDL}, vhost string, queue string"


def write(audit: Audit) -> None:
    """Write the table of all records about messages of violations, as many as the report shows."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for ident, queue in audit.state.queues.items():
        numbers.setdefault((queue.vhost, queue.name), []).append(ident)
    wrong = audit.store.written["gold.violations"].orderBy("rule").limit(SHOWN).where("position is not null")
    places: dict[int, list[int]] = {}
    for row in wrong.select("vhost", "queue", "position").distinct().collect():
        for ident in numbers.get((row.vhost, row.queue), ()):
            places.setdefault(ident, []).append(row.position)
    if not places:
        audit.store.write(audit.spark, "gold.lives", audit.spark.createDataFrame([], LIVES_DDL))
        return
    pieces = [tuple(piece) for piece in plan(Path(audit.files)).pieces]
    source = audit.spark.createDataFrame(audit.spark.sparkContext.parallelize(pieces, len(pieces)), tasks.PIECES_DDL)
    found = source.mapInArrow(tasks.Traces(audit.files, places), traces.DDL)
    names = gold.names(audit.spark, audit.state.queues)
    audit.store.write(audit.spark, "gold.lives", found.join(names, "queue_id"))

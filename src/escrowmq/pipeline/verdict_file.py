"""Write the verdict of each run as a file for programs: `verdicts/RUN.json` in the folder of the tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from escrowmq.pipeline.gold import IDS

if TYPE_CHECKING:
    from escrowmq.pipeline.audit import Audit
    from escrowmq.pipeline.rule_counts import RuleCount
    from escrowmq.pipeline.verdict import Verdict

FOLDER: Final = "verdicts"
SHOWN: Final = 100
"""Violations in a file; the table `gold.violations` has all."""
KEPT: Final = 1000
"""The files of so many runs are kept."""
_COLUMNS: Final = ("rule", "name", "vhost", "queue", "position", "branch", "lsns", "explanation", *IDS)


def violations_of(audit: Audit) -> list[dict[str, Any]]:
    """Return the first violations of all runs, by rule."""
    query = f"select {', '.join(_COLUMNS)} from {{table}} order by rule, lsns limit {SHOWN}"
    return [row.asDict() for row in audit.spark.sql(query, table=audit.store.written["gold.violations"]).collect()]


def write_verdict(
    folder: Path, verdict: Verdict, journal_id: str, counts: Sequence[RuleCount], found: Sequence[dict[str, Any]]
) -> Path:
    """Write the file of a run that has been committed, and return its path. Raises OSError."""
    path = folder / FOLDER / _name(verdict.run)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    content = {
        **verdict._asdict(),
        "clean": verdict.clean,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "journal_id": journal_id,
        "rules": [
            {"rule": each.rule, "name": each.name, "checked": each.checked, "of": each.told, "broken": each.broken}
            for each in counts
        ],
        "found": list(found),
    }
    fresh = path.with_name("fresh")
    fresh.write_text(json.dumps(content) + "\n", encoding="utf-8")
    fresh.replace(path)
    (path.parent / _name(verdict.run - KEPT)).unlink(missing_ok=True)
    return path


def _name(run: int) -> str:
    return f"{run:06}.json"

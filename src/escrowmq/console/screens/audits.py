"""The verdicts of audits: the rules of one run, the trend of all, and the run that was started here."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.management import NothingThere
from escrowmq.console.visit import Visit


async def audits(visit: Visit) -> dict[str, Any]:
    """Show the last run, or the one that the query names. Raises NothingThere, BadQuery."""
    folder, wanted = visit.files.audits, visit.query.get("run", "")
    runs = [] if folder is None else await asyncio.to_thread(folder.runs)
    shown = runs[0] if runs else None
    if wanted:
        if not (wanted.isascii() and wanted.isdigit() and len(wanted) < 19):
            raise BadQuery("the run is not a number")
        shown = None if folder is None else await asyncio.to_thread(folder.run, int(wanted))
        if shown is None:
            raise NothingThere(f"There is no verdict of run {wanted}.")
    job = visit.files.audit
    return {"shown": shown, "runs": runs, "now": time.time(), "job": job, "lack": job.lack()}


async def trend(visit: Visit) -> dict[str, list[float]]:
    """Return columns for a plot, by the times of the runs."""
    folder = visit.files.audits
    runs = [] if folder is None else (await asyncio.to_thread(folder.runs))[::-1]
    return {"time": [run.time for run in runs], "violations": [run.violations for run in runs]}

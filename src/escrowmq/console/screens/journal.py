"""The journal: its records, one record, and the timeline of what happened to it."""

from __future__ import annotations

import asyncio
from typing import Any

from escrowmq.admin.http.management import NothingThere
from escrowmq.console.visit import Visit
from escrowmq.evidence import log
from escrowmq.evidence import timeline as moments


async def journal(visit: Visit) -> dict[str, Any]:
    """Show the newest records, or those from an address on, of all kinds or of one group of kinds."""
    group = visit.query.get("kinds", "")
    kinds = log.GROUPS.get(group)
    start = visit.query.get("from", "")
    if start:
        page = await asyncio.to_thread(log.after, visit.files.data_dir, log.lsn_of(start), kinds)
    else:
        page = await asyncio.to_thread(log.newest, visit.files.data_dir, kinds)
    status = await visit.ask("status")
    return {"page": page, "groups": list(log.GROUPS), "group": group, "start": start, "journal": status["journal"]}


async def timeline(visit: Visit) -> dict[str, Any]:
    """Show what was written and synced together, and starts, snapshots, compactions and decisions among that."""
    wanted = visit.query.get("what", "")
    start = visit.query.get("from", "")
    if start:
        page = await asyncio.to_thread(moments.after, visit.files.data_dir, log.lsn_of(start), wanted)
    else:
        page = await asyncio.to_thread(moments.newest, visit.files.data_dir, wanted)
    status = await visit.ask("status")
    return {
        "page": page,
        "filters": list(moments.FILTERS),
        "wanted": wanted,
        "start": start,
        "journal": status["journal"],
    }


async def record(visit: Visit) -> dict[str, Any]:
    """Show one record. Raises NothingThere."""
    found = await asyncio.to_thread(log.record_at, visit.files.data_dir, log.lsn_of(visit.names["lsn"]))
    if isinstance(found, log.DamagedPart):
        raise NothingThere(f"the log is damaged there: {found.size} bytes from LSN {found.lsn:#x} on; {found.why}")
    if found is None:
        raise NothingThere(f"no record begins at LSN {visit.names['lsn']}; the log may have been compacted there")
    return {"record": found}

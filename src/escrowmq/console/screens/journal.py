"""The journal: a timeline of its records, and one record."""

from __future__ import annotations

import asyncio
from typing import Any

from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.management import NothingThere
from escrowmq.console import log
from escrowmq.console.visit import Visit


async def journal(visit: Visit) -> dict[str, Any]:
    """Show the newest records, or those from an address on, of all kinds or of one group of kinds."""
    group = visit.query.get("kinds", "")
    kinds = log.GROUPS.get(group)
    start = visit.query.get("from", "")
    if start:
        page = await asyncio.to_thread(log.after, visit.data_dir, lsn_of(start), kinds)
    else:
        page = await asyncio.to_thread(log.newest, visit.data_dir, kinds)
    status = await visit.ask("status")
    return {"page": page, "groups": list(log.GROUPS), "group": group, "start": start, "journal": status["journal"]}


async def record(visit: Visit) -> dict[str, Any]:
    """Show one record. Raises NothingThere."""
    found = await asyncio.to_thread(log.record_at, visit.data_dir, lsn_of(visit.names["lsn"]))
    if found is None:
        raise NothingThere(f"no record begins at LSN {visit.names['lsn']}; the log may have been compacted there")
    return {"record": found}


def lsn_of(text: str) -> int:
    """Return the address that a text gives, decimal or with 0x. Raises BadQuery."""
    try:
        lsn = int(text.strip(), 0)
    except ValueError:
        lsn = -1
    if not 0 <= lsn < 1 << 63:
        raise BadQuery(f"{text!r} is not an LSN; give a number like 4096 or 0x1000")
    return lsn

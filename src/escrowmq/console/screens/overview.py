"""The overview: what an operator sees first."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from escrowmq.console.visit import Visit


async def overview(visit: Visit) -> dict[str, Any]:
    """Show rates, alarms, the oldest doubt, and the state of journal, memory and disk."""
    visit.rates.looked()
    status, totals = await visit.ask("status"), await visit.ask("counter.totals")
    vhosts = totals["vhosts"].values()
    audits = visit.files.audits
    runs = [] if audits is None else await asyncio.to_thread(audits.runs, 1)
    return {
        "audits": audits is not None,
        "last_audit": runs[0] if runs else None,
        "now": time.time(),
        "backup": visit.files.backup,
        "status": status,
        "publishers": totals["process"]["publishers"],
        "blocked": totals["process"]["blocked_publishers"],
        "links_unsettled": sum(each["unsettled"] for each in totals["links"].values()),
        "published": sum(each["arrived"] for each in vhosts),
        "delivered": sum(each["delivered"] for each in vhosts),
        "acknowledged": sum(each["acknowledged"] for each in vhosts),
        "confirmed": sum(each["confirmed"] for each in totals["traffic"]),
    }


async def rates(visit: Visit) -> dict[str, Any]:
    """Return the columns of the plots."""
    visit.rates.looked()
    return visit.rates.series()

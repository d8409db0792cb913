"""What is delivered and not settled: by connection, by link, and by bulk reader."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.console.visit import Visit

LISTS: Final = {"links": "link.list", "holds": "hold.list"}


async def unsettled(visit: Visit) -> dict[str, Any]:
    """List AMQP 1.0 links with their unsettled deliveries, or what bulk readers hold."""
    which = visit.query.get("list", "links")
    which = which if which in LISTS else "links"
    rows = await visit.ask(LISTS[which])
    name = "link" if which == "links" else "group"
    rows = [row | {"name": row[name]} for row in rows]
    rows.sort(key=lambda row: -row["unsettled" if which == "links" else "held"])
    return {"which": which, "page": visit.page(rows)}

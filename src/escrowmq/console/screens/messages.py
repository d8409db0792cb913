"""One message: where it is or was, and its life as the journal tells it."""

from __future__ import annotations

from typing import Any

from escrowmq.admin.http.listing import BadQuery
from escrowmq.console.visit import Visit
from escrowmq.evidence.lives import LIVES, by_either_id, by_place, indexed, lives


async def messages(visit: Visit) -> dict[str, Any]:
    """Search for a message by an id, or by its queue and position, and tell its life."""
    evidence = visit.evidence
    await evidence.indexer.looked()
    ident, queue = visit.query.get("id", "").strip(), visit.query.get("queue", "")
    vhost, position = visit.query.get("vhost", "/"), visit.query.get("position", "").strip()
    found = None
    if ident or queue:
        if not ident and not (position.isascii() and position.isdigit() and len(position) < 19):
            raise BadQuery("the position is not a number")
        search = by_either_id(ident) if ident else by_place(vhost, queue, int(position))
        found, end = await lives(evidence.data_dir, search, visit.ask, visit.operator)
    else:
        end = await indexed(evidence.data_dir)
    status = await visit.ask("status")
    return {
        "found": found,
        "ident": ident,
        "queue": queue,
        "vhost": vhost,
        "position": position,
        "indexed": end,
        "end": status["journal"]["end_lsn"],
        "most": LIVES,
    }

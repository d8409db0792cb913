"""One message: where it is or was, and its life as the journal tells it."""

from __future__ import annotations

import re
from typing import Any, Final

from escrowmq.admin.http.listing import BadQuery
from escrowmq.console.visit import Visit
from escrowmq.evidence.lives import LIVES, by_either_id, by_place, indexed, lives

_NUMBER: Final = re.compile("[0-9]{1,18}")


async def messages(visit: Visit) -> dict[str, Any]:
    """Search for a message by an id, or by its queue and position, and tell its life.

    The page refreshes its results until the index has reached `upto`, the end of the journal when the page was opened.
    """
    files = visit.files
    await files.indexer.looked()
    ident, queue = visit.query.get("id", "").strip(), visit.query.get("queue", "")
    vhost, position = visit.query.get("vhost", "/"), visit.query.get("position", "").strip()
    found = None
    if ident or queue:
        if not ident and not _NUMBER.fullmatch(position):
            raise BadQuery("the position is not a number")
        search = by_either_id(ident) if ident else by_place(vhost, queue, int(position))
        found, end = await lives(files.data_dir, search, visit.ask, visit.operator)
    else:
        end = await indexed(files.data_dir)
    status = await visit.ask("status")
    target = _number(visit.query.get("upto", "")) or status["journal"]["end_lsn"]
    return {
        "found": found,
        "ident": ident,
        "queue": queue,
        "vhost": vhost,
        "position": position,
        "indexed": end,
        "target": target,
        "most": LIVES,
    }


def _number(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0

"""One message: where it is or was, and its life as the journal tells it."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final, NamedTuple

from escrowmq.admin.http.broker import BrokerRefused
from escrowmq.admin.http.listing import BadQuery
from escrowmq.console.visit import Visit
from escrowmq.evidence.lives import LIVES, MessageLife, by_either_id, by_place, indexed, lives, shaped

_NUMBER: Final = re.compile("[0-9]{1,18}")


class FoundMessage(NamedTuple):
    """The life of a message, its content if it is still ready in its queue, and both for JSON."""

    life: MessageLife
    content: dict[str, Any] | None
    document: dict[str, Any]


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
        told, end = await lives(files.data_dir, search, visit.ask, visit.operator)
        found = [await _found(visit, life) for life in told]
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
        "stopped": files.indexer.stopped if end < target else "",
        "target": target,
        "most": LIVES,
    }


async def _found(visit: Visit, life: MessageLife) -> FoundMessage:
    """Return a life with the message itself, if it is ready in its queue and the user may see it."""
    place, document = life.place, shaped(life)
    rows: list[dict[str, Any]] = []
    if visit.administrator and place.name is not None and place.position is not None:
        with suppress(BrokerRefused):  # the queue is deleted or unavailable
            rows = await visit.ask(
                "queue.peek", vhost=place.vhost, queue=place.name, count=1, start=place.position, number=place.queue
            )
    content = rows[0] if rows and rows[0]["position"] == place.position else None
    return FoundMessage(life, content, document if content is None else document | {"message": content})


def _number(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0

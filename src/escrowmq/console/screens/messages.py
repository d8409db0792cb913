"""One message: where it is or was, and its life as the journal tells it."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from escrowmq.admin.http.listing import BadQuery
from escrowmq.console.visit import Visit
from escrowmq.history.index import IndexedPlace, LifeMoment, MessageIndex

LIVES: Final = 20
"""Places whose lives are shown together."""
_BRANCH: Final = re.compile(r"by (?:an operator, )?branch ([0-9]{1,18})\b")


class MessageLife(NamedTuple):
    """A place, what happened there, and the xids of the branches that are named in it."""

    place: IndexedPlace
    moments: list[LifeMoment]
    xids: dict[str, str]


async def messages(visit: Visit) -> dict[str, Any]:
    """Search for a message by an id, or by its queue and position, and tell its life."""
    await visit.indexer.looked()
    ident, queue = visit.query.get("id", "").strip(), visit.query.get("queue", "")
    vhost, position = visit.query.get("vhost", "/"), visit.query.get("position", "").strip()
    found: list[MessageLife] | None = None
    end = 0
    try:
        if ident:
            end, found = await asyncio.to_thread(_by_id, visit.data_dir, ident)
        elif queue:
            if not (position.isascii() and position.isdigit() and len(position) < 19):
                raise BadQuery("the position is not a number")
            end, found = await asyncio.to_thread(_by_place, visit.data_dir, vhost, queue, int(position))
        else:
            end = await asyncio.to_thread(_end, visit.data_dir)
    except sqlite3.Error:  # the index is only now being made
        pass
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


def _by_id(folder: Path, ident: str) -> tuple[int, list[MessageLife]]:
    with closing(MessageIndex(folder, read_only=True)) as index:
        places = index.search(ident)
        arrived = [place for place in places if place.queue is not None]
        return index.end_lsn, [_life(index, place) for place in (arrived or places)[:LIVES]]


def _by_place(folder: Path, vhost: str, queue: str, position: int) -> tuple[int, list[MessageLife]]:
    with closing(MessageIndex(folder, read_only=True)) as index:
        places = index.at(vhost, queue, position) or [
            IndexedPlace(None, None, number, vhost, queue, position, 0) for number in index.numbers(vhost, queue)
        ]
        lives = [_life(index, place) for place in places[:LIVES]]
        return index.end_lsn, [life for life in lives if life.moments]


def _end(folder: Path) -> int:
    with closing(MessageIndex(folder, read_only=True)) as index:
        return index.end_lsn


def _life(index: MessageIndex, place: IndexedPlace) -> MessageLife:
    if place.queue is None or place.position is None:
        return MessageLife(place, [], {})
    moments = index.life(place.queue, place.position)
    xids = {}
    for moment in moments:
        named = _BRANCH.match(moment.detail)  # elsewhere, it would be the name of a queue
        xid = None if named is None else index.xid_of(int(named[1]))
        if named is not None and xid is not None:
            xids[named[1]] = xid
    return MessageLife(place, moments, xids)

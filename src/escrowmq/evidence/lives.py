"""The lives of messages, from the index that the process `escrowmq.history` keeps: found by id or place, and shown to
those who may read their queues.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from escrowmq.admin.http.logins import ADMINISTRATOR, Operator
from escrowmq.history.index import IndexedPlace, LifeMoment, MessageIndex, discard_unreadable

LIVES: Final = 20
"""Places whose lives are shown together."""
_BRANCH: Final = re.compile(r"by (?:an operator, )?branch ([0-9]{1,18})\b")
_log = logging.getLogger("escrowmq.http")
Search = Callable[[MessageIndex], list[IndexedPlace]]
Ask = Callable[..., Awaitable[Any]]


class MessageLife(NamedTuple):
    """A place, what happened there, and the xids of the branches that are named in it."""

    place: IndexedPlace
    moments: list[LifeMoment]
    xids: dict[str, str]


class LivesFound(NamedTuple):
    """The lives that were found, at most `LIVES`; `end_lsn` is the address up to which the index has the journal."""

    lives: list[MessageLife]
    end_lsn: int


def by_either_id(ident: str) -> Search:
    """Search for a message id or correlation id."""
    return lambda index: _arrived(index.search(ident))


def by_message_id(ident: str) -> Search:
    """Search for a message id."""
    return lambda index: _arrived(index.with_id(ident))


def by_correlation_id(ident: str) -> Search:
    """Search for a correlation id."""
    return lambda index: _arrived(index.with_correlation(ident))


def by_place(vhost: str, queue: str, position: int) -> Search:
    """Search for the messages at a position of the queues that had a name. They may have no ids."""

    def places(index: MessageIndex) -> list[IndexedPlace]:
        return index.at(vhost, queue, position) or [
            IndexedPlace(None, None, number, vhost, queue, position, 0) for number in index.numbers(vhost, queue)
        ]

    return places


async def lives(folder: Path, search: Search, ask: Ask, operator: Operator) -> LivesFound:
    """Return the lives of the messages that a search finds and `operator` may see: an administrator sees all, others
    those in queues that they may read. Nothing is found while the index is only being made.
    """
    try:
        places, end_lsn = await asyncio.to_thread(_searched, folder, search)
        shown = (await _visible(places, ask, operator))[:LIVES]
        return LivesFound(await asyncio.to_thread(_told, folder, shown), end_lsn)
    except sqlite3.Error as fault:
        await asyncio.to_thread(_discard, folder, fault)
        return LivesFound([], 0)


async def may_read(ask: Ask, operator: Operator, queues: Sequence[tuple[str, str]]) -> list[bool]:
    """Return of each queue, a pair of virtual host and name, whether `operator` may read it: by the scopes of its
    token, or by its permissions if it has shown a password.
    """
    user, grant = operator.user, operator.grant
    if grant is not None:
        return [grant.allowed(user, vhost, name, "read") for vhost, name in queues]
    found: list[bool] = await ask("permission.readable", user=user, queues=queues)
    return found


async def indexed(folder: Path) -> int:
    """Return the address up to which the index has the journal; 0 while it is only being made."""
    try:
        return (await asyncio.to_thread(_searched, folder, lambda _: []))[1]
    except sqlite3.Error as fault:
        await asyncio.to_thread(_discard, folder, fault)
        return 0


def shaped(life: MessageLife) -> dict[str, Any]:
    """Return a life for JSON. Times are in microseconds since the epoch."""
    place = life.place
    return {
        "message_id": place.message_id,
        "correlation_id": place.correlation_id,
        "vhost": place.vhost,
        "queue": place.name,
        "position": place.position,
        "life": [moment._asdict() for moment in life.moments],
        "branches": life.xids,
    }


def _arrived(places: list[IndexedPlace]) -> list[IndexedPlace]:
    """Return the places in queues; without any, the branches that have brought the messages."""
    return [place for place in places if place.queue is not None] or places


async def _visible(places: Sequence[IndexedPlace], ask: Ask, operator: Operator) -> list[IndexedPlace]:
    if ADMINISTRATOR in operator.tags:
        return list(places)
    named = [
        (place, (place.vhost, place.name)) for place in places if place.vhost is not None and place.name is not None
    ]
    queues = list(dict.fromkeys(queue for _, queue in named))
    if not queues:
        return []
    readable = await may_read(ask, operator, queues)
    allowed = {queue for queue, may in zip(queues, readable, strict=True) if may}
    return [place for place, queue in named if queue in allowed]


def _discard(folder: Path, fault: sqlite3.Error) -> None:
    """Have an index made again that cannot be read, unless it is only being made."""
    try:
        if discard_unreadable(folder, fault):
            _log.warning("the index of messages cannot be read, and is made again: %s", fault)
    except OSError as error:
        _log.warning("the index of messages cannot be read (%s), and cannot be deleted: %s", fault, error)


def _searched(folder: Path, search: Search) -> tuple[list[IndexedPlace], int]:
    with closing(MessageIndex(folder, read_only=True)) as index:
        return search(index), index.end_lsn


def _told(folder: Path, places: Sequence[IndexedPlace]) -> list[MessageLife]:
    with closing(MessageIndex(folder, read_only=True)) as index:
        told = [_life(index, place) for place in places]
    # The place of a message in a prepared branch is not known yet; at other places, something has happened.
    return [life for life in told if life.moments or life.place.position is None]


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

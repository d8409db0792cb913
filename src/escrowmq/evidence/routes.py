"""What programs read below `/api/escrow/` that comes from files: lives of messages, records, events, and audits."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from starlette.responses import Response

from escrowmq.admin.http.app import MoreRoutes
from escrowmq.admin.http.listing import BadQuery
from escrowmq.admin.http.logins import ADMINISTRATOR, NotAuthorised, Operator
from escrowmq.admin.http.management import ADMINISTRATORS, MANAGEMENT, MONITORS, NothingThere, Reading, ReadRoute
from escrowmq.admin.http.writing import ChangeAnswer, WriteRoute, Writing
from escrowmq.evidence import events, feed, log
from escrowmq.evidence.commands import CommandRefused
from escrowmq.evidence.feed import Feed
from escrowmq.evidence.files import BrokerFiles
from escrowmq.evidence.listeners import EventStream, Listeners
from escrowmq.evidence.lives import (
    LIVES,
    LivesFound,
    Search,
    by_correlation_id,
    by_message_id,
    by_place,
    lives,
    may_read,
    shaped,
)

MOST_RECORDS: Final = 1000
"""Records in one answer."""
MESSAGES: Final = "escrow/messages"
MESSAGE: Final = "escrow/messages/{vhost}/{queue}/{position}"
JOURNAL: Final = "escrow/journal"
EVENTS: Final = "escrow/events"
AUDITS: Final = "escrow/audits"
AUDIT: Final = "escrow/audits/{run}"


class FileRoutes:
    """The answers that come from `files`."""

    def __init__(self, files: BrokerFiles) -> None:
        self._files = files
        self._listeners = Listeners()
        self._reading = asyncio.Semaphore()

    def routes(self) -> MoreRoutes:
        """Return the routes."""
        return MoreRoutes(
            {
                MESSAGES: ReadRoute(self.messages, MANAGEMENT),
                MESSAGE: ReadRoute(self.message, MANAGEMENT),
                JOURNAL: ReadRoute(self.journal, MONITORS),
                EVENTS: ReadRoute(self.events, MONITORS),
                AUDITS: ReadRoute(self.audits, MONITORS),
                AUDIT: ReadRoute(self.audit, MONITORS),
            },
            {AUDITS: {"POST": WriteRoute(self.start_audit, ADMINISTRATORS)}},
        )

    async def messages(self, reading: Reading) -> Any:
        """Answer with the lives of the messages that have the id or correlation id of the query."""
        message_id, correlation_id = reading.query.get("id", ""), reading.query.get("correlation_id", "")
        if bool(message_id) == bool(correlation_id):
            raise BadQuery("the query needs either id or correlation_id")
        search = by_message_id(message_id) if message_id else by_correlation_id(correlation_id)
        found, end_lsn = await self._lives(reading, search)
        return self._shaped(found, end_lsn)

    async def message(self, reading: Reading) -> Any:
        """Answer with the life of the message at a position of a queue, or those of queues that had the same name."""
        vhost, queue, position = (reading.names[name] for name in ("vhost", "queue", "position"))
        if not (position.isascii() and position.isdigit() and len(position) < 19):
            raise BadQuery("the position is not a number")
        if ADMINISTRATOR not in reading.operator.tags:
            (allowed,) = await may_read(reading.ask, reading.operator, [(vhost, queue)])
            if not allowed:
                raise NotAuthorised("User not authorised to read the queue")
        found, end_lsn = await self._lives(reading, by_place(vhost, queue, int(position)))
        if not found.lives:
            raise NothingThere(
                f"no such message is in the index, which has reached LSN {found.end_lsn:#x} of {end_lsn:#x}"
            )
        return self._shaped(found, end_lsn)

    async def _lives(self, reading: Reading, search: Search) -> tuple[LivesFound, int]:
        await self._files.indexer.looked()
        found = await lives(self._files.data_dir, search, reading.ask, reading.operator)
        status = await reading.ask("status")
        return found, status["journal"]["end_lsn"]

    def _shaped(self, found: LivesFound, end_lsn: int) -> dict[str, Any]:
        return {
            "indexed_lsn": found.end_lsn,
            "end_lsn": end_lsn,
            "complete": found.end_lsn >= end_lsn,
            "stopped": self._files.indexer.stopped,
            "messages": [shaped(life) for life in found.lives],
            "most": LIVES,
        }

    async def journal(self, reading: Reading) -> Any:
        """Answer with records by address: those between `from` and `to`, or the newest ones."""
        query = reading.query
        kinds = log.kinds_of(query.get("kind", ""))
        most = _count(query.get("count", "") or str(log.SHOWN))
        end = log.lsn_of(query["to"]) if query.get("to") else None
        folder = self._files.data_dir
        if query.get("from") or end is not None:
            page = await asyncio.to_thread(log.after, folder, log.lsn_of(query.get("from") or "0"), kinds, most, end)
        else:
            page = await asyncio.to_thread(log.newest, folder, kinds, most)
        return {
            "records": [line._asdict() for line in page.lines],
            "damage": [damage._asdict() for damage in page.damage],
            "next_lsn": page.next_lsn,
            "complete": page.complete,
        }

    async def events(self, reading: Reading) -> Response:
        """Answer with what happens, as server-sent events. Raises HTTPException for too many streams."""

        async def may_listen() -> bool:
            assert reading.log_in_again is not None
            try:
                return bool(MONITORS & set((await reading.log_in_again()).tags))
            except NotAuthorised:
                return False

        seen = reading.headers.get("last-event-id", "") or reading.query.get("from", "")
        place = feed.place_of(seen) if seen else None
        kinds = feed.kinds_of(reading.query.get("kind", ""))
        listening = Feed(self._files.data_dir, reading.ask, place, kinds, self._reading)
        told = events.stream(listening, may_listen, stream_seconds(reading.operator))
        return EventStream(told, self._listeners, reading.operator.user)

    async def audits(self, reading: Reading) -> Any:
        """Answer with the latest runs of the audit, and with the state of the one that was started here."""
        del reading
        audits = self._files.audits
        runs = [] if audits is None else await asyncio.to_thread(audits.runs)
        return {
            "configured": audits is not None,
            "runs": [run.summary for run in runs],
            "job": self._files.audit.shown(),
        }

    async def audit(self, reading: Reading) -> Any:
        """Answer with the whole verdict of one run."""
        number, audits = reading.names["run"], self._files.audits
        if not (number.isascii() and number.isdigit() and len(number) < 19):
            raise BadQuery("the run is not a number")
        run = None if audits is None else await asyncio.to_thread(audits.run, int(number))
        if run is None:
            raise NothingThere(f"no verdict of a run {number}")
        return run.content

    async def start_audit(self, writing: Writing) -> ChangeAnswer:
        """Start an audit."""
        try:
            await self._files.audit.start(writing.operator.user)
        except CommandRefused as refusal:
            raise BadQuery(str(refusal)) from refusal
        return ChangeAnswer(202, self._files.audit.shown())


def file_routes(files: BrokerFiles) -> MoreRoutes:
    """Return the routes that come from `files`."""
    return FileRoutes(files).routes()


def stream_seconds(operator: Operator) -> float:
    """Return for how long a stream may last: a token must not have expired before its end."""
    if operator.grant is None or not operator.grant.expires_ms:
        return events.LONGEST
    return min(events.LONGEST, max(operator.grant.expires_ms / 1000 - time.time(), 0.0))


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= MOST_RECORDS):
        raise BadQuery(f"count is a number from 1 to {MOST_RECORDS}")
    return int(text)

"""What happens in a broker, as one sequence: records of the journal, and live events that leave no record.

Each event has an identity, after which a listener can be told what follows. It names two places, one in the journal and
one among the live events, so both go on from where they were:

    LSN:START:NUMBER

`LSN` is the address of the last record that was told. `NUMBER` is the number of the last live event, and `START` the
run of the broker to which the number belongs (`admin.events`). Records survive a restart, and live events do not: if
the broker was started again meanwhile, an event says so, and those from the start on follow. A bare LSN is an identity,
too; live events then begin with the present ones. The journal is read as files; the broker is only asked how far it is
on disk.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from heapq import merge
from pathlib import Path
from typing import Any, Final, NamedTuple

from escrowmq.admin.http.listing import BadQuery
from escrowmq.core.records.kinds import Kind
from escrowmq.evidence.log import GROUPS, Line, line_of, lsn_of
from escrowmq.journal.reader import JournalReader, RecordFound

PERIOD: Final = 1.0
"""Seconds between two looks at the end of the journal."""
PIECE: Final = 100
"""Records that are read and told together."""
LOOKED: Final = 2000
"""Records that are looked at together, of which those of the wanted kinds are read."""
CONNECTIONS: Final = frozenset(("CONNECTION_OPENED", "CONNECTION_CLOSED"))
ALARMS: Final = frozenset(("ALARM_RAISED", "ALARM_CLEARED", "QUEUE_UNAVAILABLE", "QUEUE_AVAILABLE"))
LIVE_GROUPS: Final = {"connections": CONNECTIONS, "alarms": ALARMS}
CHANGES: Final = GROUPS["names"] | GROUPS["decisions"] | {Kind.PREPARE, Kind.ROLLBACK, Kind.OPERATED}
"""The kinds of records that are told unless others are asked for: what exists, branches in doubt, and what operators
do.
"""
RESTARTED: Final = "restarted"
"""The broker was started again, so the connections of before are closed."""
MISSED: Final = "missed"
"""So many live events are no longer kept."""
GONE: Final = "gone"
"""A part of the journal was deleted by compaction before it was told."""
_IDENTITY: Final = re.compile(r"(?P<lsn>[^:]+):(?P<start>[0-9a-f]{1,16}):(?P<number>[0-9]{1,18})")

Ask = Callable[..., Awaitable[Any]]


class FeedKinds(NamedTuple):
    """The events that are wanted: kinds of records, and names of live events."""

    records: Collection[int]
    live: Collection[str]


EVERYTHING: Final = FeedKinds(CHANGES, CONNECTIONS | ALARMS)
"""What is told unless other kinds are asked for."""


class FeedPlace(NamedTuple):
    """How far a listener has heard. Without `start`, it has heard no live event."""

    lsn: int
    start: str = ""
    number: int | None = None

    def __str__(self) -> str:
        return f"{self.lsn}:{self.start}:{self.number}" if self.start else str(self.lsn)


class FeedEvent(NamedTuple):
    """An event. `place` is the identity after which a listener goes on that has heard it."""

    place: FeedPlace
    name: str
    time_us: int
    fields: dict[str, Any]


class RecordsRead(NamedTuple):
    """Some records, and the address from which reading goes on. `gone` is where the log begins if it no longer has what
    was asked for.
    """

    lines: list[Line]
    position: int
    gone: int | None = None


def place_of(text: str) -> FeedPlace:
    """Return the place that an identity names. Raises BadQuery."""
    found = _IDENTITY.fullmatch(text.strip())
    if found is None:
        return FeedPlace(lsn_of(text))
    return FeedPlace(lsn_of(found["lsn"]), found["start"], int(found["number"]))


def kinds_of(text: str) -> FeedKinds:
    """Return the kinds that a text names: kinds of records, names of live events, and groups of either, separated by
    commas. An empty text stands for `EVERYTHING`. Raises BadQuery.
    """
    if not text:
        return EVERYTHING
    records: frozenset[int] = frozenset()
    live: frozenset[str] = frozenset()
    for word in text.split(","):
        name = word.strip()
        kind = Kind.__members__.get(name.upper())
        if kind is not None:
            records |= {kind}
        elif name.lower() in GROUPS:
            records |= GROUPS[name.lower()]
        elif name.lower() in LIVE_GROUPS:
            live |= LIVE_GROUPS[name.lower()]
        elif name.upper() in CONNECTIONS | ALARMS:
            live |= {name.upper()}
        else:
            groups = ", ".join((*LIVE_GROUPS, *GROUPS))
            raise BadQuery(f"{name!r} is no kind of record or live event, and none of the groups {groups}")
    return FeedKinds(records, live)


def read(folder: Path, after: int, position: int, end: int, kinds: Collection[int]) -> RecordsRead:
    """Return some records behind the address `after` and before `end`, from the frame on in which `position` is.

    Raises:
        JournalDamaged: a part of the log cannot be read.
    """
    reader = JournalReader.open(folder)
    try:
        starts = reader.segment_starts()
        oldest = starts[0][0] if starts else position
        gone = oldest if 0 < position < oldest else None
        lines: list[Line] = []
        looked = 0
        for frame in reader.frames(max(position, oldest)):
            if frame.end_lsn > end or len(lines) >= PIECE or looked >= LOOKED:
                break
            looked += len(frame.kinds)
            for lsn, kind, payload in frame.records():
                if lsn > after and kind in kinds:
                    lines.append(line_of(RecordFound("", 0, lsn, kind, payload, frame.time_us)))
            position = frame.end_lsn
        return RecordsRead(lines, position, gone)
    finally:
        reader.close()


class Feed:
    """What happens at the broker of `folder` after `place`, or from now on. `ask` asks the broker. Feeds take turns by
    `reading`: while many of them read together, nothing else in the process would get on.
    """

    def __init__(
        self,
        folder: Path,
        ask: Ask,
        place: FeedPlace | None,
        kinds: FeedKinds,
        reading: asyncio.Semaphore | None = None,
    ) -> None:
        self.place = place
        self._reading = reading or asyncio.Semaphore()
        self._folder = folder
        self._ask = ask
        self._kinds = kinds
        self._position: int | None = None if place is None else place.lsn

    async def events(self) -> AsyncGenerator[FeedEvent | None]:
        """Yield the events as they happen, without end, and None after each look. After an
        error, the next call goes on where this one was.

        Raises:
            BrokerUnavailable: the broker does not answer.
            JournalDamaged: a part of the log cannot be read.
        """
        while True:
            place = self.place or FeedPlace(0)
            answer = await self._ask("event.list", start=place.start, after=place.number)
            end = answer["synced_lsn"]
            if self._position is None:
                self._position = end
                place = FeedPlace(end - 1)
            part = RecordsRead([], self._position)
            if end > self._position and self._kinds.records:
                wanted = place.lsn, self._position, end, self._kinds.records
                async with self._reading:
                    part = await asyncio.to_thread(read, self._folder, *wanted)
            heard = FeedPlace(place.lsn, answer["start"], answer["last"] if place.number is None else place.number)
            for event in _merged(heard, part, answer, self._kinds, self._position):
                self.place = event.place
                yield event
            lsn = part.lines[-1].lsn if part.lines else place.lsn
            self.place = FeedPlace(lsn, answer["start"], answer["last"])
            moved, self._position = part.position > self._position, part.position
            yield None
            if not moved:
                await asyncio.sleep(PERIOD)


def _merged(
    place: FeedPlace, part: RecordsRead, answer: dict[str, Any], kinds: FeedKinds, position: int
) -> list[FeedEvent]:
    """Return records and live events in the order of their times, each with the place after it."""
    found: list[FeedEvent] = []
    now_us = time.time_ns() // 1000
    if answer["restarted"]:
        place = FeedPlace(place.lsn, answer["start"], 0)
        found += [FeedEvent(place, RESTARTED, now_us, {})] if kinds.live else []
    if kinds.live and answer["missed"]:
        found.append(FeedEvent(place, MISSED, now_us, {"count": answer["missed"]}))
    if part.gone is not None:
        found.append(FeedEvent(place, GONE, now_us, {"from": position, "to": part.gone}))
    live = [event for event in answer["events"] if event["name"] in kinds.live]
    each: Line | dict[str, Any]
    for each in merge(part.lines, live, key=_time_us):  # which keeps the order of either, whatever the clock did
        if isinstance(each, Line):
            place = place._replace(lsn=each.lsn)
            found.append(FeedEvent(place, each.kind, each.time_us, {"lsn": each.lsn, **each.fields}))
        else:
            place = place._replace(number=each["number"])
            found.append(FeedEvent(place, each["name"], each["time_ms"] * 1000, each["fields"]))
    return found


def _time_us(each: Line | dict[str, Any]) -> int:
    time_us: int = each.time_us if isinstance(each, Line) else each["time_ms"] * 1000
    return time_us

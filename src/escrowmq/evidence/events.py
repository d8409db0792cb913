"""The journal as server-sent events: each record of the chosen kinds is one event, whose id is its address.

A listener that was interrupted sends the last id that it has seen, and gets everything after it, also if the broker was
restarted meanwhile. The journal is read as files; the broker is only asked how far it is on disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final, NamedTuple

from escrowmq.admin.http.answers import JsonAnswer
from escrowmq.admin.http.broker import BrokerUnavailable
from escrowmq.core.records.kinds import Kind
from escrowmq.evidence.log import GROUPS, Line, line_of
from escrowmq.journal.errors import JournalDamaged
from escrowmq.journal.reader import JournalReader, RecordFound

PERIOD: Final = 1.0
"""Seconds between two looks at the end of the journal."""
HEARTBEAT: Final = 15.0
"""Seconds of silence after which a comment is sent, so that both sides notice a lost connection."""
LONGEST: Final = 300.0
"""Seconds after which a stream ends. Listeners come again by themselves, and their login is checked again."""
PIECE: Final = 500
"""Events that are read together."""
CHANGES: Final = GROUPS["names"] | GROUPS["decisions"] | {Kind.PREPARE, Kind.ROLLBACK, Kind.OPERATED}
"""The kinds that are told unless others are asked for: what exists, branches in doubt, and what operators do."""

Ask = Callable[..., Awaitable[Any]]


class EventsRead(NamedTuple):
    """Some events, and the address from which reading goes on. `gone` is where the log begins if it no longer has what
    was asked for.
    """

    lines: list[Line]
    position: int
    gone: int | None = None


def read(folder: Path, after: int, position: int, end: int, kinds: Collection[int]) -> EventsRead:
    """Return events behind the address `after` and before `end`, from the frame on in which `position` is.

    Raises:
        JournalDamaged: a part of the log cannot be read.
    """
    reader = JournalReader.open(folder)
    try:
        starts = reader.segment_starts()
        oldest = starts[0][0] if starts else position
        gone = oldest if 0 < position < oldest else None
        lines: list[Line] = []
        for frame in reader.frames(max(position, oldest)):
            if frame.end_lsn > end or len(lines) >= PIECE:
                break
            for lsn, kind, payload in frame.records():
                if lsn > after and kind in kinds:
                    lines.append(line_of(RecordFound("", 0, lsn, kind, payload, frame.time_us)))
            position = frame.end_lsn
        return EventsRead(lines, position, gone)
    finally:
        reader.close()


async def stream(folder: Path, ask: Ask, after: int | None, kinds: Collection[int]) -> AsyncIterator[bytes]:
    """Yield the events behind the address `after`, or from now on, as they are written; at most for `LONGEST` seconds.

    The stream ends early if the broker does not answer, or if the log is damaged, which is an event of its own.
    """
    began = told = time.monotonic()
    position = await ask("journal.synced") if after is None else after
    after = position - 1 if after is None else after
    yield b"retry: 2000\n\n"
    while (now := time.monotonic()) - began < LONGEST:
        try:
            end = await ask("journal.synced")
            part = EventsRead([], position)
            if end > position:
                part = await asyncio.to_thread(read, folder, after, position, end, kinds)
        except BrokerUnavailable:
            return
        except JournalDamaged as error:
            yield _event("damage", {"why": str(error)})
            return
        if part.gone is not None:
            yield _event("gone", {"from": position, "to": part.gone})
        for line in part.lines:
            yield _event(line.kind, {"time_us": line.time_us, "lsn": line.lsn, **line.fields}, line.lsn)
        if part.lines or part.gone is not None:
            told = now
        elif now - told >= HEARTBEAT:
            told = now
            yield b": nothing new\n\n"
        moved, position = part.position > position, part.position
        if not moved:
            await asyncio.sleep(PERIOD)


def _event(name: str, fields: dict[str, Any], ident: int | None = None) -> bytes:
    head = b"" if ident is None else f"id: {ident}\n".encode()
    return head + f"event: {name}\ndata: ".encode() + bytes(JsonAnswer(fields).body) + b"\n\n"

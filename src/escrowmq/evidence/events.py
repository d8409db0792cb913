"""What happens in the broker as server-sent events, whose ids are the identities of the feed.

A listener that was interrupted sends the last id that it has seen, and goes on after it (`evidence.feed`).
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

from escrowmq.admin.http.answers import JsonAnswer
from escrowmq.admin.http.broker import BrokerUnavailable
from escrowmq.evidence.feed import Feed
from escrowmq.journal.errors import JournalDamaged

HEARTBEAT: Final = 15.0
"""Seconds of silence after which a comment is sent, so that both sides notice a lost connection."""
LONGEST: Final = 300.0
"""Seconds after which a stream ends. Listeners come again by themselves."""
CHECK: Final = 1.0
"""Seconds for which a listener's rights count as unchanged."""


async def stream(
    feed: Feed, may_listen: Callable[[], Awaitable[bool]], seconds: float = LONGEST
) -> AsyncIterator[bytes]:
    """Yield the events of a feed as they happen, for `seconds`.

    The stream ends early if `may_listen` denies that the listener still may, if the broker does not answer, or if the
    log is damaged, which is an event of its own.
    """
    began = told = checked = time.monotonic()
    opening = b"retry: 2000\n\n"
    async with aclosing(feed.events()) as events:
        try:
            async for event in events:
                now = time.monotonic()
                if opening:  # after the first look, so that everything is told from here on
                    yield opening
                    opening = b""
                if now - began >= seconds:
                    return
                if now - checked >= CHECK:
                    checked = now
                    if not await may_listen():
                        return
                if event is not None:
                    told = now
                    yield _event(event.name, {"time_us": event.time_us, **event.fields}, str(event.place))
                elif now - told >= HEARTBEAT:
                    told = now
                    yield b": nothing new\n\n"
        except BrokerUnavailable:
            return
        except JournalDamaged as error:
            yield _event("damage", {"why": str(error)})


def _event(name: str, fields: dict[str, Any], ident: str = "") -> bytes:
    head = f"id: {ident}\n".encode() if ident else b""
    return head + f"event: {name}\ndata: ".encode() + bytes(JsonAnswer(fields).body) + b"\n\n"

"""The listeners of streams of events, whose number is limited: each stream asks the broker once a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

MOST_LISTENERS: Final = 20
MOST_OF_USER: Final = 5
"""Streams at the same time, of all users and of one."""
_UNSTORED: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_LATER: Final = {"Retry-After": "60"}


class Listeners:
    """Counts the streams that are open, by user."""

    def __init__(self) -> None:
        self._of_user: Counter[str] = Counter()

    def add(self, user: str) -> None:
        """Count one more stream. Raises HTTPException if there are too many."""
        if self._of_user[user] >= MOST_OF_USER:
            raise HTTPException(429, f"user '{user}' has {MOST_OF_USER} streams of events, which is the limit", _LATER)
        if self._of_user.total() >= MOST_LISTENERS:
            raise HTTPException(503, f"there are {MOST_LISTENERS} streams of events, which is the limit", _LATER)
        self._of_user[user] += 1

    def remove(self, user: str) -> None:
        """Count a stream no longer."""
        self._of_user[user] -= 1
        if not self._of_user[user]:
            del self._of_user[user]


class EventStream(StreamingResponse):
    """An answer with events, one of the `listeners` for as long as it is sent."""

    def __init__(self, told: AsyncIterator[bytes], listeners: Listeners, user: str) -> None:
        super().__init__(told, media_type="text/event-stream", headers=_UNSTORED)
        self._listeners = listeners
        self._user = user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events. Raises HTTPException if there are too many listeners."""
        self._listeners.add(self._user)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._listeners.remove(self._user)

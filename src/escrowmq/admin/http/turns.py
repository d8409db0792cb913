"""The turns of requests: few are answered at the same time, and the users whose requests wait take turns.

An answer such as the list of ten thousand queues takes tens of megabytes and tenths of a second while it is made.
Without a limit, a user that asks for a hundred of them would take the memory of the machine, and delay everybody else.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

MOST: Final = 6
MOST_OF_USER: Final = 2
"""Requests that are answered at the same time, of all users and of one."""


class RequestTurns:
    """Gives requests their turns."""

    def __init__(self, most: int = MOST, most_of_user: int = MOST_OF_USER) -> None:
        self._most = most
        self._most_of_user = most_of_user
        self._running: Counter[str] = Counter()
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}  # the user whose turn is next comes first

    @asynccontextmanager
    async def turn(self, user: str) -> AsyncIterator[None]:
        """Wait for the turn of a request of this user, and keep it until the end of the block."""
        if user not in self._lines and self._is_free(user):
            self._running[user] += 1
        else:
            await self._wait(user)
        try:
            yield
        finally:
            self._end(user)

    def _is_free(self, user: str) -> bool:
        return self._running[user] < self._most_of_user and self._running.total() < self._most

    async def _wait(self, user: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(user, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(user)
            raise

    def _end(self, user: str) -> None:
        self._running[user] -= 1
        if not self._running[user]:
            del self._running[user]
        for other in list(self._lines):
            while other in self._lines and self._is_free(other):
                self._give_turn(other)

    def _give_turn(self, user: str) -> None:
        line = self._lines.pop(user)
        turn = line.popleft()
        if line:
            self._lines[user] = line  # behind the other users
        if not turn.cancelled():
            self._running[user] += 1
            turn.set_result(None)

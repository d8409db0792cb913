"""A bounded number of the connections' events in each iteration of the event loop.

The event loop reports everything that is ready in one iteration: thousands of closed sockets when a host goes down, or
a request from each of thousands of clients. Handling them all at once would delay every other client. Up to `EVENTS`
are handled immediately; later ones wait in a queue, in order, and up to `EVENTS` of these follow in each iteration.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from typing import Final

EVENTS: Final = 64
"""The maximum number of events in one iteration. The loss of a connection takes 15 to 40 µs, the bytes of a small
request about the same.
"""
ACCEPTED: Final = 16
"""Connections that are accepted in one iteration. One takes 50 to 150 µs."""
LOGIN: Final = 4
"""Events as which the bytes of a client count that has not logged in: the steps of a login take 50 to 200 µs."""


class Intake:
    """Asks for events to be deferred when the event loop has reported too many of them in one iteration."""

    def __init__(self, loop: AbstractEventLoop, events: int = EVENTS) -> None:
        self._loop = loop
        self._events = events
        self._room = events
        self._scheduled = False
        self._deferred: deque[tuple[Callable[[], None], int]] = deque()

    def admit(self, cost: int = 1) -> bool:
        """Return whether the caller may handle an event now, which counts as `cost` of them. If not, it passes a
        function that does so to `defer`.
        """
        if self._room <= 0:
            return False
        self._room -= cost
        if not self._scheduled:
            self._schedule()
        return True

    def defer(self, action: Callable[[], None], cost: int = 1) -> None:
        """Call `action` in a later iteration, after those that were deferred before. It counts as `cost` events."""
        self._deferred.append((action, cost))
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        self._room = self._events
        try:
            for _ in range(len(self._deferred)):  # not those that are deferred by these
                if self._room <= 0:
                    break
                action, cost = self._deferred.popleft()
                self._room -= cost
                action()
        finally:
            self._scheduled = False
            if self._room < self._events:
                self._schedule()

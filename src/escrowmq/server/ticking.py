"""The clock of the connections: each is visited about once a second, with a bounded number of visits per turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from escrowmq.server.connection import ClientConnection
from escrowmq.server.hangup import hung_up
from escrowmq.server.turn import Turns

ROUND_MS: Final = 1000
"""Time in which each connection is visited once."""
VISITS: Final = 250
"""Connections that are visited in one turn. A visit takes about 3 µs, or 10 µs if a heartbeat is due."""
HELD_UP_MS: Final = 500
"""A visit that is later than this shows that the process was suspended or had no processor time."""


class Ticker:
    """Visits the members of `connections` in groups, which are spread evenly over a second."""

    def __init__(
        self,
        turns: Turns,
        connections: Collection[ClientConnection],
        login_ms: int,
        end_of_round: Callable[[], None],
    ) -> None:
        """`login_ms` is the time in which a client must have logged in. `end_of_round` is called once a second."""
        self._turns = turns
        self._connections = connections
        self._login_ms = login_ms
        self._end_of_round = end_of_round
        self._left: list[ClientConnection] = []
        self._interval_ms: float = ROUND_MS
        self._due_ms = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.held_up_ms = 0
        """The total time in which nothing was read because the process was suspended or had no processor time."""

    def start(self) -> None:
        """Begin to visit connections. Called in a turn."""
        self._due_ms = self._turns.broker.engine.now
        self._wait()

    def stop(self) -> None:
        """Visit no more connections."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._due_ms += self._interval_ms
        delay_ms = max(0.0, self._due_ms - self._turns.broker.engine.now)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._visit_group)

    def _visit_group(self) -> None:
        self._turns.begin()
        now = self._turns.broker.engine.now
        late_ms = now - self._due_ms
        if late_ms > HELD_UP_MS:
            self.held_up_ms += int(late_ms)
            self._due_ms = now
        group = self._next_group()
        for connection in hung_up(group):
            connection.abort()
        for connection in group:
            connection.tick(now, self._login_ms)
        if not self._left:
            self._end_of_round()
        self._wait()

    def _next_group(self) -> list[ClientConnection]:
        if not self._left:
            self._left = list(self._connections)
            self._interval_ms = ROUND_MS / max(1, -(-len(self._left) // VISITS))
        group = self._left[-VISITS:]
        del self._left[-VISITS:]
        return [connection for connection in group if connection in self._connections]

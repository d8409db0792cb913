"""A steady rate: when each message is due."""

from __future__ import annotations

SECOND = 1_000_000_000


class Pace:
    """Message number i (from 0) is due at `start + i / rate`."""

    __slots__ = ("_interval", "start")

    def __init__(self, rate: float, start: int) -> None:
        """`rate` in messages/s, `start` in ns."""
        self.start = start
        self._interval = SECOND / rate

    def due(self, now: int) -> int:
        """Return the number of messages that are due at `now`, counted from the start."""
        return 0 if now < self.start else int((now - self.start) / self._interval) + 1

    def time_of(self, number: int) -> int:
        """When message `number` is due."""
        return self.start + round(number * self._interval)

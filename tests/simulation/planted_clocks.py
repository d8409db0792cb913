"""Planted bugs in the broker's time that every simulated world must find."""

from __future__ import annotations

from typing import Final

from escrowmq.core.engine import Engine
from escrowmq.server.clock import Clock, ClockRecorder
from tests.simulation import clock


def anchored_once(self: Clock) -> int:
    """Ignore all changes of the machine's time after the start."""
    steady = self._steady()
    self._now += steady - self._steady_seen
    self._steady_seen = steady
    self.behind_ns = self._wall() - self._now
    return self._now


def machines_time(self: Clock) -> int:
    """Follow each change of the machine's time at once."""
    self._now = self._wall()
    return self._now


def not_recorded(self: ClockRecorder) -> None:
    """Keep the difference to the machine's time in memory only."""


def started_at_machines_time(engine: Engine, last_ms: int, wall: object) -> None:
    """Forget at the start that the broker's time differs from the machine's."""
    engine.behind_ms = 0


PLANTED: Final[dict[str, tuple[object, str, object]]] = {
    "a clock that is anchored once": (Clock, "__call__", anchored_once),
    "a clock that follows every jump": (Clock, "__call__", machines_time),
    "the difference of the clocks not recorded": (ClockRecorder, "__call__", not_recorded),
    "a start at the machine's time": (clock, "resume", started_at_machines_time),
}

"""The broker's time: it runs steadily, and follows the machine's time slowly.

Heartbeats, times to live and ages must not depend on changes of the machine's time: a step back would delay them, and a
step forward would let all of them end at once. The broker's time therefore never goes back, and it approaches the
machine's time by at most a tenth of the time that passes. The difference is stored in the journal, so that a restart
does not change the broker's time either.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from escrowmq.core.engine import Engine
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind

SLOWNESS: Final = 10
"""The broker's time is faster or slower than real time by at most this part of it: times to live are off by a tenth."""
STEP_MS: Final = 24 * 3600 * 1000
"""The maximum delay of the broker's time. A larger one would take more than ten days to catch up, so it is caught up at
once. The time of a running broker never goes back.
"""
JUMP_MS: Final = 1000
"""The smallest change of the machine's time that is logged, and the smallest difference that is recorded."""
ROUNDING_MS: Final = 2
"""The difference that rounding makes."""

_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # also counts while the machine is suspended
_steady: Final = partial(time.clock_gettime_ns, _STEADY)
_wall: Final = time.time_ns
_log = logging.getLogger("escrowmq.server")


class Clock:
    """Returns nanoseconds since the epoch when it is called."""

    __slots__ = ("_now", "_seen", "_steady", "_steady_seen", "_wall", "behind_ns")

    def __init__(
        self, behind_ms: int = 0, *, wall: Callable[[], int] = _wall, steady: Callable[[], int] = _steady
    ) -> None:
        """Begin `behind_ms` behind the machine's time `wall`. `steady` counts nanoseconds from any point."""
        self._wall = wall
        self._steady = steady
        self._seen = wall()
        self._steady_seen = steady()
        self.behind_ns = behind_ms * 1_000_000
        """The difference to the machine's time, negative if that is behind."""
        self._now = self._seen - self.behind_ns

    def __call__(self) -> int:
        steady, wall = self._steady(), self._wall()
        elapsed = steady - self._steady_seen
        jump = wall - self._seen - elapsed
        self._steady_seen, self._seen = steady, wall
        behind = wall - self._now - elapsed
        if abs(jump) >= JUMP_MS * 1_000_000:
            _tell(jump, behind)
        most = elapsed // SLOWNESS
        if -most <= behind <= most or behind >= STEP_MS * 1_000_000:
            self._now = wall
        else:
            self._now += elapsed + (most if behind > 0 else -most)
        self.behind_ns = wall - self._now
        return self._now


def _tell(jump: int, behind: int) -> None:
    direction = "forward" if jump > 0 else "back"
    seconds = abs(behind) / 1e9
    if behind >= STEP_MS * 1_000_000:
        follows = "the broker's time is set at once, which may end times to live and other periods"
    else:
        duration = f"in about {SLOWNESS * seconds:.0f} s"
        follows = f"the broker's time differs from it by {seconds:.1f} s now, and makes up for that {duration}"
    _log.warning("the machine's time was set %s by %.1f s: %s", direction, abs(jump) / 1e9, follows)


def resume(engine: Engine, last_ms: int, wall: Callable[[], int] | None = None) -> None:
    """Set the time of a broker whose journal was replayed and ends with a record of the time `last_ms`.

    The broker's time keeps its difference to the machine's time (`Engine.behind_ms`). It does not precede the last
    record, unless that is more than `STEP_MS` ahead. Earlier records may be newer: the machine's time was set back by
    more than `STEP_MS` behind them. `wall` is as for `Clock`.
    """
    wall_ms = (wall or _wall)() // 1_000_000
    recorded_ms = engine.behind_ms
    engine.now = max(wall_ms - engine.behind_ms, last_ms)
    if abs(wall_ms - engine.now) >= STEP_MS:
        engine.now = last_ms if abs(wall_ms - last_ms) < STEP_MS else wall_ms
    engine.behind_ms = wall_ms - engine.now
    # The clock has approached the machine's without a record, or the record was lost with the end of the log. The next
    # record is made when this difference has changed, so it must be in the log, which could lag by seconds otherwise.
    differs = abs(engine.behind_ms - recorded_ms) > ROUNDING_MS
    if differs or engine.now < last_ms:  # a later start, with `last_ms` less than a day ahead, must not return to that
        _record(engine)
    if abs(engine.behind_ms) >= JUMP_MS:
        where = "behind" if engine.behind_ms > 0 else "ahead of"
        _log.warning(
            "the broker's time is %.1f s %s the machine's, and follows slowly", abs(engine.behind_ms) / 1000, where
        )


class ClockRecorder:
    """Records the difference between the broker's time and the machine's while it changes, at the end of turns."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def __call__(self) -> None:
        behind_ms = self._clock.behind_ns // 1_000_000
        if abs(behind_ms - self._engine.behind_ms) >= JUMP_MS:
            self._engine.behind_ms = behind_ms
            _record(self._engine)


def _record(engine: Engine) -> None:
    engine.log.append(Kind.COUNTERS, encode_change(behind_ms=engine.behind_ms))

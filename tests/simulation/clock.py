"""The time of a simulated machine, which is set forward and back, and the broker's time, which must stay steady."""

from __future__ import annotations

import math
from typing import Final, Protocol

from escrowmq.core.broker import Broker
from escrowmq.core.engine import Engine
from escrowmq.journal.journal import Journal
from escrowmq.server.clock import Clock, ClockRecorder, resume
from tests.simulation.ledger import Violation

DAY_MS: Final = 24 * 3600 * 1000
SHIFTS: Final = (3000, -3000, 60_000, -60_000, 8 * 3600 * 1000, -8 * 3600 * 1000, DAY_MS + 5000, -DAY_MS - 5000)
"""By how many milliseconds the machine's time is set."""
ROUNDING_MS: Final = 2
UNRECORDED_MS: Final = 1000
"""A smaller difference between the broker's time and the machine's need not be on disk."""
LOST_MS: Final = 3600 * 1000
"""How far the difference may have changed since the last record of it that is on disk."""


class Process(Protocol):
    """A server process. Times are in milliseconds: `now` is the broker's, `last_ms` that of the last record found."""

    now: int
    last_ms: int
    journal: Journal
    broker: Broker


class MachineTime:
    """The machine's time and the broker's. Checks that times to live, timeouts and ages are right whatever is set.

    - The broker's time is as fast as real time, but for a tenth, and approaches the machine's time by a tenth of the
      time that passes. If it is a day behind, it is set at once.
    - It never goes back. A restart does not change it, if the difference to the machine's time was on disk. In any
      case, it does not precede the last record.
    - A restart sets it to the machine's time if they differ by a day.
    """

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self._steady_ms = 0
        self._now = 0
        self._recorded: float = 0  # the end of the log behind the newest record of the difference
        self._found_end: float = math.inf  # of the log, when the first process started after the last one that ran
        self._server: Process
        self._clock: Clock
        self._recorder: ClockRecorder

    def resume(self, engine: Engine, last_ms: int) -> None:
        """Set the time of a broker that is starting. It may die at once, and leave a record of its own."""
        assert isinstance(engine.log, Journal)
        self._found_end = min(self._found_end, engine.log.recovery.end_lsn)
        resume(engine, last_ms, lambda: self.wall_ms * 1_000_000)

    def attach(self, server: Process) -> None:
        """Serve a process that has just started."""
        before, self._now = self._now, server.now
        known, self._recorded = self._recorded <= self._found_end, server.journal.end_lsn
        self._found_end = math.inf
        self._server = server
        engine = server.broker.engine
        self._clock = Clock(
            engine.behind_ms,
            wall=lambda: self.wall_ms * 1_000_000,
            steady=lambda: self._steady_ms * 1_000_000,
        )
        self._recorder = ClockRecorder(engine, self._clock)
        if not before or abs(self.wall_ms - before) >= DAY_MS - LOST_MS:
            return
        if server.now < server.last_ms < self.wall_ms + DAY_MS - LOST_MS:
            raise Violation(f"the time after the restart is {server.now}, before that of a record: {server.last_ms}")
        if known and abs(server.now - before) > UNRECORDED_MS + ROUNDING_MS:
            raise Violation(f"a restart changed the broker's time by {server.now - before} ms")

    def pass_time(self, ms: int) -> None:
        """Let `ms` milliseconds pass."""
        before, behind = self._now, self.wall_ms - self._now
        self.wall_ms += ms
        self._steady_ms += ms
        now = self._tell()
        if behind >= DAY_MS - ROUNDING_MS and now == self.wall_ms:
            return
        if abs(now - before - ms) > ms // 10 + ROUNDING_MS:
            raise Violation(f"the broker's time advanced by {now - before} ms in {ms} ms")
        if abs(self.wall_ms - now) > max(0, abs(behind) - ms // 10) + ROUNDING_MS:
            raise Violation(f"the broker's time was {behind} ms behind and is {self.wall_ms - now} ms after {ms} ms")

    def set(self, shift_ms: int) -> None:
        """Set the machine's time forward or back."""
        before = self._now
        self.wall_ms += shift_ms
        now = self._tell()
        far = self.wall_ms - before >= DAY_MS - ROUNDING_MS
        if abs(now - (self.wall_ms if far else before)) > ROUNDING_MS:
            raise Violation(f"the machine's time was set by {shift_ms} ms, and the broker's changed by {now - before}")

    def record(self) -> None:
        """Record the difference between the two, as the broker does at the end of a turn."""
        end, recorded = self._server.journal.end_lsn, self._recorded
        self._recorded = math.inf  # in case the journal refuses the record
        self._recorder()
        written = self._server.journal.end_lsn
        self._recorded = recorded if written == end else written

    def _tell(self) -> int:
        self._now = self._server.now = self._clock() // 1_000_000
        return self._now

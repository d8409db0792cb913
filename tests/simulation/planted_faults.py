"""Planted bugs in the handling of faults of the disk and of the clock, which every simulated world must find."""

from __future__ import annotations

from contextlib import suppress
from itertools import repeat
from typing import Any, Final

from escrowmq.core.engine import Engine
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.queues.fifo import Fifo
from escrowmq.journal import recovery
from escrowmq.journal.frames import Frame, JournalFile
from escrowmq.journal.memory import MemoryStorage
from escrowmq.journal.storage import Storage
from escrowmq.server.clock import Clock, ClockRecorder
from tests.simulation import clock

_write_through = MemoryStorage.write_through


def retry_sync(self: MemoryStorage, name: str, offset: int, *parts: bytes) -> None:
    try:
        _write_through(self, name, offset, *parts)
    except OSError:
        self.sync(name)


def repaired_by_one_sync(storage: Storage, file: JournalFile, frame: Frame) -> None:
    """Write the last frame once more, and leave its sync to that of the footer."""
    offset = file.offset_of(frame.lsn)
    data = storage.read(file.name, offset, frame.end_lsn - frame.lsn)
    storage.write(file.name, offset, data)
    storage.truncate(file.name, offset + len(data))


def taken_before_loaded(self: Fifo, share: int = 0) -> None:
    """Take a reference out of the queue, then load its block."""
    reference = self.tail.take(self.tail.peek().length)
    block = self._pager.load(reference)
    run = Run(block.envelope, reference.first, block.time, reference.lsn, reference.start)
    self.head.extend(map(Entry, range(run.first, run.first + reference.length), block.contents, repeat(run)))


def full_disk_ignored(self: MemoryStorage, name: str, offset: int, *parts: bytes) -> None:
    with suppress(OSError):
        _write_through(self, name, offset, *parts)


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


OF_CLOCKS: Final[dict[str, dict[tuple[Any, str], Any]]] = {
    "a clock that is anchored once": {(Clock, "__call__"): anchored_once},
    "a clock that follows every jump": {(Clock, "__call__"): machines_time},
    "the difference of the clocks not recorded": {(ClockRecorder, "__call__"): not_recorded},
    "a start at the machine's time": {(clock, "resume"): started_at_machines_time},
}
OF_ANY_DISK: Final[dict[str, dict[tuple[Any, str], Any]]] = {
    "retry after a failed sync": {(MemoryStorage, "write_through"): retry_sync},
    "a full disk ignored": {(MemoryStorage, "write_through"): full_disk_ignored},
}
OF_DISKS: Final[dict[str, dict[tuple[Any, str], Any]]] = {
    **OF_ANY_DISK,
    "taken before it is loaded": {(Fifo, "_fill"): taken_before_loaded},
}
"""Those of ordinary queues, too."""
FOOTER: Final[dict[tuple[Any, str], Any]] = {(recovery, "_rewrite"): repaired_by_one_sync}
"""Found only with frames of several sectors."""

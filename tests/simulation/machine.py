"""The machine of a simulated world: its disk, its clock, and successive server processes."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable
from typing import NamedTuple

from escrowmq.core.broker import Broker
from escrowmq.journal.errors import JournalFailed, JournalUnreadable, SnapshotFailed
from escrowmq.journal.memory import Faults, MemoryStorage
from tests.harness.server import Options, SimServer
from tests.simulation.clock import SHIFTS, MachineTime
from tests.simulation.ledger import Violation


class Death(NamedTuple):
    """The cause of a process's end."""

    event: str
    power_fails: bool
    error: BaseException


class Machine:
    """Runs the server for any protocol. A seed determines the behaviour of the disk."""

    def __init__(self, seed: int, options: Options, make_broker: Callable[..., Broker] = Broker) -> None:
        self.storage = MemoryStorage(random.Random(f"disk {seed}"))
        self._refuses = False
        self._trouble = random.Random(f"trouble {seed}")
        self._time = MachineTime()
        self._options = options
        self._make_broker = make_broker
        self.before_restart: Callable[[], None] = lambda: None
        """Called between the end of a process and the start of the next one."""
        self._lives = 0
        self.server = self._boot()
        self._time.attach(self.server)

    def _boot(self) -> SimServer:
        self._lives += 1
        return SimServer(
            self.storage,
            self._options,
            now=self._time.wall_ms,
            seed=self._lives,
            make_broker=self._make_broker,
            resume=self._time.resume,
        )

    def restart(self, *, power_fails: bool) -> SimServer:
        """Start a process on the data that is on disk. Planned faults are forgotten."""
        if power_fails:
            self.storage.crash()
        self.storage.faults = Faults()
        self._refuses = False
        self.before_restart()
        while self._trouble.random() < 0.25:
            self._boot_in_vain()
        self.server = self._boot()
        self._time.attach(self.server)
        return self.server

    def _boot_in_vain(self) -> None:
        """Start a process that dies at once, most often because a sync fails in its recovery."""
        self.storage.faults = Faults(fail_sync_in=self._trouble.randrange(1, 4))
        with contextlib.suppress(JournalFailed):
            self._boot()
        self.storage.faults = Faults()

    def refuse_append(self, number: int) -> None:
        """Let the journal fail at the append with this number, counted from 1, in the middle of an operation."""
        journal, append = self.server.journal, self.server.journal.append
        self._refuses = True
        left = number

        def refusing(kind: int, *parts: bytes) -> int:
            nonlocal left
            left -= 1
            if not left:
                raise journal._health.fail(OSError(errno.EIO, "simulated refusal"))
            return append(kind, *parts)

        journal.append = refusing  # type: ignore[method-assign]

    def end_trouble(self) -> None:
        """Cancel all planned faults."""
        self.storage.faults = Faults()
        if self._refuses:
            del self.server.journal.append
            self._refuses = False

    def fill_disk(self, room: int) -> None:
        """Leave `room` bytes on the disk."""
        storage = self.storage
        storage.faults.capacity = sum(map(storage.size, storage.names())) + room

    def pass_time(self, ms: int) -> None:
        """Let `ms` milliseconds pass. Raises Violation if the broker's time does not follow."""
        self._time.pass_time(ms)

    def set_clock(self, number: int) -> str:
        """Set the machine's time by one of `SHIFTS`, and return the event. Raises Violation if the broker's time does
        not stay steady.
        """
        shift = SHIFTS[number % len(SHIFTS)]
        self._time.set(shift)
        return f"clock set {'forward' if shift > 0 else 'back'}"

    def record_time(self) -> None:
        """Let the broker record how far its time is behind. This may write a record."""
        self._time.record()

    def run(self, action: Callable[[], None]) -> Death | None:
        """Run `action`. Returns the cause of death if a planned fault of the disk ended the process as it must
        (DUR-2).
        """
        faults = self.storage.faults
        dying = faults.dies_in is not None
        try:
            action()
        except JournalUnreadable as error:
            if not faults.read_fails:
                raise
            return Death("failed reads", power_fails=False, error=error)
        except (JournalFailed, SnapshotFailed, OSError) as error:
            full = faults.capacity is not None
            if not (dying or full or self._refuses or faults.fail_sync_in is not None):
                raise
            if isinstance(error, JournalFailed):
                self._must_refuse()
            elif not dying:
                return None  # maintenance of files may fail without harm to the log
            event = "full disks" if full else "refused appends" if self._refuses else "failed syncs"
            return Death("power failures" if dying else event, dying, error)
        return None

    def _must_refuse(self) -> None:
        """Check that the journal refuses all further work after a failed write (DUR-2)."""
        try:
            self.server.journal.take_batch(0)
        except JournalFailed:
            return
        raise Violation("the journal continues after a failed write")

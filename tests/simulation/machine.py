"""The machine of a simulated world: its disk, its clock, and successive server processes."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Generic, NamedTuple, TypeVar

from escrowmq.core.broker import Broker
from escrowmq.core.engine import Engine
from escrowmq.core.messages.pager import LogPager
from escrowmq.journal.errors import JournalFailed, JournalUnreadable, SnapshotFailed
from escrowmq.journal.memory import Faults, MemoryStorage
from escrowmq.journal.writer import JournalSink
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.frames import method_frame
from tests.harness.client import connect, login_frames
from tests.harness.frames import FrameReader
from tests.harness.server import Options, SimServer
from tests.simulation import disks
from tests.simulation.clock import SHIFTS, MachineTime, Process
from tests.simulation.ledger import Violation
from tests.simulation.steps import Step

P = TypeVar("P", bound=Process)

TROUBLE: Final[dict[str, int]] = {
    "power fails in": 1,
    "sync fails in": 1,
    "append refused in": 1,
    "disk fills": 1,
}
"""The steps of `Machine.plan`, with their frequencies."""


class Death(NamedTuple):
    """The cause of a process's end."""

    event: str
    power_fails: bool
    error: BaseException


class Start(NamedTuple):
    """What a process finds when it starts: the disk, the machine's time, and how many processes ran before it, plus
    one. `resume` sets its broker's time, and gets the time of the last record in milliseconds.
    """

    storage: MemoryStorage
    now: int
    life: int
    resume: Callable[[Engine, int], None]
    sink: JournalSink | None = None


class Machine(Generic[P]):
    """Runs processes that `boot` starts, for any protocol. A seed determines the behaviour of the disk."""

    def __init__(self, seed: int, boot: Callable[[Start], P]) -> None:
        self._disks = disks.make_disks(seed)
        self._refuses = False
        self._trouble = random.Random(f"trouble {seed}")
        self._time = MachineTime()
        self._make = boot
        self.before_restart: Callable[[], None] = lambda: None
        """Called between the end of a process and the start of the next one."""
        self.answers: Callable[[P], bool] = lambda _: False
        """Asks a process a question, and returns whether it answers before it has synced anything more."""
        self._lives = 0
        self.server = self._boot()
        self._time.attach(self.server)

    @property
    def storage(self) -> MemoryStorage:
        """The disk that the process uses."""
        return self._disks.storage

    def _boot(self, *, fail_sync_in: int | None = None) -> P:
        self._lives += 1
        while True:
            self._disks.begin()
            self.storage.faults = Faults(fail_sync_in=fail_sync_in)
            start = Start(self.storage, self._time.wall_ms, self._lives, self._time.resume, self._disks.sink)
            try:
                return self._make(start)
            except JournalFailed:
                if not self._disks.failure:
                    raise

    def restart(self, *, power_fails: bool) -> P:
        """Start a process on the data that is on disk. Planned faults are forgotten."""
        ended = self.server
        self._disks.end(ended.journal, power_fails=power_fails)
        self._refuses = False
        self.before_restart()
        while self._trouble.random() < 0.25:
            self._boot_in_vain()
        self.server = self._boot()
        self._time.attach(self.server)
        self._disks.resume(lambda: self.answers(ended))
        return self.server

    def _boot_in_vain(self) -> None:
        """Start a process that dies at once, most often because a sync fails in its recovery."""
        with contextlib.suppress(JournalFailed):
            self._boot(fail_sync_in=self._trouble.randrange(1, 4))
        self.storage.faults = Faults()

    # -- faults

    def calm(self) -> AbstractContextManager[None]:
        """Return a context in which nothing but planned faults ends the process."""
        return self._disks.calm()

    def plan(self, step: Step) -> bool:
        """Plan the fault of a step of `TROUBLE`. Return False if it is another step."""
        match step.kind:
            case "power fails in":
                self.storage.faults.dies_in = 1 + step.what % 12
            case "sync fails in":
                self.storage.faults.fail_sync_in = 1 + step.what % 4
            case "append refused in":
                self._refuse_append(1 + step.what % 16)
            case "disk fills":
                self._fill_disk(step.what * 40)
            case _:
                return False
        return True

    def _refuse_append(self, number: int) -> None:
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

    def _fill_disk(self, room: int) -> None:
        """Leave `room` bytes on the disk."""
        storage = self.storage
        storage.faults.capacity = sum(map(storage.size, storage.names())) + room

    def fail_reads(self, how: int) -> None:
        """Let reads fail, some or all of them. Nothing is read from the pager's memory, which would hold all of a small
        log.
        """
        self.storage.faults.read_fails = 1.0 if how % 2 else 0.3
        pager = self.server.broker.engine.pager
        assert isinstance(pager, LogPager)
        pager._chunks.clear()
        pager._chunk = b""

    @property
    def unreadable(self) -> bool:
        """Whether reads fail, or queues wait for the next attempt to read their messages."""
        return self.storage.faults.read_fails > 0 or bool(self.server.broker.engine.unavailable.reasons)

    @property
    def troubled(self) -> bool:
        """Whether a fault is planned, so that any step may be the last one of the process."""
        faults = self.storage.faults
        planned = (faults.dies_in, faults.fail_sync_in, faults.capacity)
        return self._refuses or self.unreadable or any(each is not None for each in planned)

    def end_trouble(self) -> None:
        """Cancel all planned faults."""
        self.storage.faults = Faults()
        if self._refuses:
            del self.server.journal.append
            self._refuses = False

    # -- time

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

    # -- deaths

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
            if self._disks.failure:
                self._must_refuse()
                return Death(self._disks.failure, power_fails=False, error=error)
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


def server_machine(seed: int, options: Options, make_broker: Callable[..., Broker] = Broker) -> Machine[SimServer]:
    """Return a machine whose processes are whole servers."""

    def boot(start: Start) -> SimServer:
        return SimServer(
            start.storage,
            options,
            now=start.now,
            seed=start.life,
            make_broker=make_broker,
            resume=start.resume,
            sink=start.sink,
        )

    machine = Machine(seed, boot)
    machine.answers = answers_from_memory
    return machine


def answers_from_memory(server: SimServer) -> bool:
    """Let a new client ask whether a queue exists, and return whether it is told."""
    port = connect(server, "asking")
    question = spec.QueueDeclare("any queue", passive=True)
    data = login_frames(server.options.users[0]) + method_frame(1, spec.ChannelOpen()) + method_frame(1, question)
    server.receive(port, data)
    told = FrameReader().feed(b"".join(port.endpoint.output()))
    return any(isinstance(message.method, spec.ChannelClose | spec.QueueDeclareOk) for message in told)

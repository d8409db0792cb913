"""What the worlds on a `Site` share: a machine whose disk and clock fail, so that any step may end the process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from escrowmq.core.broker import Broker
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.availability import RETRY_MS
from tests.simulation.ledger import Ledger, Violation
from tests.simulation.machine import TROUBLE as OF_THE_DISK
from tests.simulation.machine import Machine, Start
from tests.simulation.steps import Step
from tests.unit.core.site import Site

TROUBLE: Final[dict[str, int]] = {
    **OF_THE_DISK,
    "append refused in": 3,
    "reads fail": 8,
    "reads succeed": 6,
    "set clock": 3,
}
"""The steps that `FaultyWorld` carries out, with their frequencies. They follow those of a world."""
TROUBLES: Final = frozenset(
    ("failed syncs", "power failures", "refused appends", "full disks", "clock set back", "clock set forward")
)
"""Events that some of a world's histories must have."""


class FaultyWorld(ABC):
    """A history of steps on one machine. Each other step is a method, `_step_name`."""

    def __init__(self, seed: int, prepare: Callable[[Broker, int], None], *, resident_limit: int = 1 << 20) -> None:
        """`prepare` gets each new broker before recovery, and the number of the process."""
        self.ledger = Ledger()
        self.trace: list[str] = []

        def boot(start: Start) -> Site:
            return Site(
                start.storage,
                now=start.now,
                resident_limit=resident_limit,
                segment_bytes=1500,
                prepare=partial(_prepared, prepare, start.life),
                resume=start.resume,
                sink=start.sink,
            )

        self.machine = Machine(seed, boot)
        self.latest = self.site.now
        """The latest time that the broker has ever had. A restart may set its time back."""

    @property
    def site(self) -> Site:
        """The process that runs now."""
        return self.machine.server

    def read_along(self) -> None:  # noqa: B027 - nothing to do in any of these worlds
        """Do nothing: the trace has every step anyway."""

    def run(self, steps: Iterable[Step]) -> None:
        """Execute the steps, then let everybody finish without trouble. Raises Violation."""
        for step in steps:
            self.do(step)
        self.machine.end_trouble()
        with self.machine.calm():
            self.heal()
            # A restart follows a machine whose time was set back by a day. Then all deadlines are a day away.
            self._pass_time(max(0, self.latest - self.site.now))
            self.finish()

    def do(self, step: Step) -> None:
        """Execute a step. If it ends the process, another one starts."""
        self.trace.append(str(step))
        death = self.machine.run(partial(self._step, step))
        if death is not None:
            self.count(death.event)
            self._die(power_fails=death.power_fails or step.how % 2 == 0)
        self.look()

    def _step(self, step: Step) -> None:
        match step.kind:
            case kind if self.machine.plan(step):
                self.trace.append(f"planned: {kind}")
            case "reads fail":
                self.machine.fail_reads(step.how)
            case "reads succeed":
                self.heal()
            case "set clock":
                self.count(self.machine.set_clock(step.what))
                self._advance(0)
            case kind:
                getattr(self, "_" + kind.replace(" ", "_"))(step)

    def count(self, event: str) -> None:
        """Count an event."""
        self.ledger.count(event)

    # -- the broker's turns and its disk

    def _time(self, step: Step) -> None:
        self._advance(25 * (1 + step.what % 8))

    def _pass_time(self, ms: int) -> None:
        """Let at least `ms` milliseconds pass for the broker, whose time may be slower by a tenth."""
        self._advance(ms * 10 // 9 + 2)

    def _advance(self, ms: int) -> None:
        self.machine.pass_time(ms)
        self.latest = max(self.latest, self.site.now)
        self.machine.record_time()

    def _turn(self, step: Step) -> None:
        self.site.turn(sync=False)

    def _sync(self, step: Step) -> None:
        self.site.sync()
        self.synced()

    def _snapshot(self, step: Step) -> None:
        self._turn(step)
        self._sync(step)
        self.site.snapshot()

    def _compact(self, step: Step) -> None:
        self._sync(step)
        self.site.compact()

    def _crash_in_sync(self, step: Step) -> None:
        """Crash after the disk has everything, before anybody learns of it."""
        self.site.write()
        self._crash(step)

    def _crash(self, step: Step) -> None:
        self._die(power_fails=True)

    def _die(self, *, power_fails: bool) -> None:
        self.count("crashes")
        self.machine.end_trouble()
        self.dying()
        self.machine.restart(power_fails=power_fails)
        self.latest = max(self.latest, self.site.now)
        self.restarted()

    # -- a disk that cannot be read

    def heal(self) -> None:
        """Let reads succeed again, and wait until all queues are available."""
        self.machine.storage.faults.read_fails = 0.0
        unavailable = self.site.broker.engine.unavailable.reasons
        if unavailable:
            self.ledger.count("queues unavailable", len(unavailable))
            self._pass_time(RETRY_MS)
            self._turn(Step("turn", 0, 0, 0))
            if unavailable:
                raise Violation(f"queues stay unavailable: {unavailable}")

    def refused(self, error: BrokerError) -> bool:
        """Whether the broker has refused a request because the disk cannot be read. It has changed nothing then."""
        if error.condition is not Condition.UNAVAILABLE or not self.machine.unreadable:
            return False
        self.count("refused: the disk cannot be read")
        return True

    # -- what a world does

    def look(self) -> None:  # noqa: B027 - not every world has such a rule
        """Check what must hold after every step."""

    @abstractmethod
    def synced(self) -> None:
        """Let everybody learn that the log is synced."""

    @abstractmethod
    def dying(self) -> None:
        """Note what must survive. The process is not running any more, and the disk is whole."""

    @abstractmethod
    def restarted(self) -> None:
        """Attach to a process that has just started, and check what it has found. Clients have lost everything that was
        on its way.
        """

    @abstractmethod
    def finish(self) -> None:
        """Let everybody finish without trouble, and judge the history. Raises Violation."""


def _prepared(prepare: Callable[[Broker, int], None], life: int, broker: Broker) -> None:
    prepare(broker, life)

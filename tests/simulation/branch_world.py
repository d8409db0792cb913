"""Distributed transactions in a simulated world: channels, a coordinator, an operator, and a failing disk.

The world calls the broker as endpoints do. The model determines every answer and everything that clients can see. Each
call writes at most one record, so a restart must find exactly the model's state as of the last record on disk.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from functools import partial
from typing import Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.availability import RETRY_MS
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.topology.declaration import Declaration
from escrowmq.journal.memory import MemoryStorage
from tests.harness.server import Options, SimServer
from tests.simulation.branch_calls import WORKERS, BranchCalls, Clients, Worker
from tests.simulation.branch_comparison import compare
from tests.simulation.branch_model import DEAD, LATER, QUEUES, TRANSIENT, Model
from tests.simulation.ledger import Ledger, Violation
from tests.simulation.machine import TROUBLE, server_machine
from tests.simulation.steps import Step

WEIGHTS: Final[dict[str, int]] = {
    "publish": 30,
    "get": 30,
    "settle": 20,
    "begin": 30,
    "end": 24,
    "work": 60,
    "prepare": 24,
    "commit": 24,
    "rollback": 6,
    "leave": 3,
    "force": 4,
    "forget": 4,
    "decide": 5,
    "advance": 90,
    "recover": 4,
    "bind": 20,
    "pass time": 2,
    "turn": 20,
    "take": 16,
    "write": 16,
    "report": 16,
    "maintain": 30,
    "tidy": 2,
    "compare": 4,
    "crash": 1,
    "kill": 1,
    **TROUBLE,
    "reads fail": 8,
    "reads succeed": 6,
    "set clock": 3,
}
LETTERS: Final = "amq.fanout"
OPTIONS: Final = Options(segment_bytes=3000, batch_bytes=2000, resident_limit=400, return_piece=2)


class BranchWorld:
    """Executes a history of steps, like `World`."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"branches {seed}")
        self.machine = server_machine(seed, OPTIONS)
        self.ledger = Ledger()
        self.trace: list[str] = []
        self.model = Model()
        self.states: list[tuple[int, Model]] = []
        self._calls = self._make_calls()
        self.began()

    @property
    def storage(self) -> MemoryStorage:
        """The disk that the process uses."""
        return self.machine.storage

    def _make_calls(self) -> BranchCalls:
        """Return what executes the steps of clients."""
        return BranchCalls(self)

    def read_along(self) -> None:
        """Do nothing: there are no messages on a wire, and the trace contains every call anyway."""

    def note(self, text: str) -> None:
        self.trace.append(text)

    # -- the server's life

    @property
    def server(self) -> SimServer:
        """The process that runs now."""
        return self.machine.server

    def began(self) -> None:
        """A process has just started: attach to it."""
        self.broker = self.server.broker
        self.coordinator = self.broker.coordinator
        self.found_end = self.server.journal.synced_lsn
        self.workers: list[Worker] = [Worker() for _ in range(WORKERS)]
        self.clients = Clients()
        self.broker.engine.holders[self.clients] = None

    def _declare(self) -> None:
        vhost = self.broker.directory.vhost("/")
        arguments = {"rejects": {"x-dead-letter-exchange": LETTERS}}
        for name in QUEUES:
            declaration = Declaration(durable=name != TRANSIENT, arguments=arguments.get(name, {}))
            self.broker.directory.declare_queue(vhost, name, declaration, Session("simulation"))
        self.broker.directory.bind_queue(vhost, LETTERS, DEAD, "")
        self._declare_more()
        self.server.end_turn()
        self.server.run_disk()
        self.record()

    def _declare_more(self) -> None:
        """Declare what the clients of a subclass need."""

    def _bind(self) -> None:
        """Bind another queue to the exchange for dead letters, or unbind it. It does not concern prepared branches."""
        directory, vhost = self.broker.directory, self.broker.directory.vhost("/")
        if LATER in self.model.letters:
            directory.unbind_queue(vhost, LETTERS, LATER, "")
            self.model.letters = (DEAD,)
        else:
            directory.bind_queue(vhost, LETTERS, LATER, "")
            self.model.letters = (DEAD, LATER)
        self.ledger.count("bound")

    def queue(self, name: str) -> Queue:
        return self.broker.directory.vhost("/").queue(name)

    def record(self) -> None:
        """Save a copy of the model for the current end of the log."""
        end = self.server.journal.end_lsn
        while self.states and self.states[-1][0] >= end:
            self.states.pop()
        self.states.append((end, copy.deepcopy(self.model)))

    def restart(self, *, power_fails: bool) -> None:
        """Restart the process, and check that it finds the state that the log contains."""
        promised = self.server.journal.synced_lsn
        self.machine.restart(power_fails=power_fails)
        self.began()
        if self.found_end < promised:
            raise Violation(f"the log was on disk up to {promised}, but ends at {self.found_end}")
        before = [model for lsn, model in self.states if lsn <= self.found_end]
        self.model = (before[-1] if before else Model()).survive()
        for branch in self.model.branches.values():
            self.ledger.count(f"survived: {branch.state}")
        self.note(f"restart, the log ends at {self.found_end}")
        self.states.clear()
        if "a" in self.broker.directory.vhost("/").queues:
            self.compare()
        self._declare()
        self.ledger.count("restarts")

    # -- looking

    def compare(self) -> None:
        """Compare queues, branches, progress and the log with the model."""
        compare(self.broker, self.model, self.server.journal)

    # -- a disk that cannot be read

    def heal(self) -> None:
        """Let reads succeed again, and wait until all queues are available."""
        self.machine.storage.faults.read_fails = 0.0
        unavailable = self.broker.engine.unavailable.reasons
        if unavailable:
            self.ledger.count("queues unavailable", len(unavailable))
            self._pass_time(RETRY_MS * 10 // 9 + 2)  # the broker's time may be slower by a tenth
            if unavailable:
                raise Violation(f"queues stay unavailable: {unavailable}")

    def refused(self, error: BrokerError) -> bool:
        """Whether the broker has refused a request because the disk cannot be read. It has changed nothing then."""
        if error.condition is not Condition.UNAVAILABLE or not self.machine.unreadable:
            return False
        self.ledger.count("refused: the disk cannot be read")
        return True

    def _pass_time(self, ms: int) -> None:
        self.machine.pass_time(ms)
        self._reach_time()

    def _reach_time(self) -> None:
        """Let everything happen that is due. The record of the time is one of its own."""
        self.server.end_turn()
        self.model.pass_time(self.server.now)
        self.record()
        self.machine.record_time()

    def rest(self) -> None:
        """Write everything to disk, and let the broker know."""
        self.server.end_turn()
        self.server.run_disk()
        while self.broker.engine.turn.unfinished:  # the rest of branches that ended in pieces
            self.server.end_turn()
            self.server.run_disk()
        self.record()

    # -- steps

    def run(self, steps: Iterable[Step]) -> None:
        """Execute the steps, then compare everything.

        Raises:
            Violation: the broker differs from the model.
        """
        self._declare()
        for step in steps:
            self.note(str(step))
            self._guarded(step)
        self.machine.end_trouble()
        with self.machine.calm():
            self.heal()
            self.rest()
            self.compare()
            self.server.tidy()
            self.rest()
            self.restart(power_fails=True)

    def _guarded(self, step: Step) -> None:
        death = self.machine.run(partial(self._step, step))
        if death is not None:
            self.ledger.count(death.event)
            self.restart(power_fails=death.power_fails or step.how % 2 == 0)

    def _step(self, step: Step) -> None:
        server = self.server
        if self.machine.plan(step):
            self.record()
            return
        match step.kind:
            case "turn":
                server.end_turn()
            case "take":
                server.take_batch()
            case "write":
                server.write_batch()
            case "report":
                server.report_batch()
            case "maintain":
                for work in (server.run_files, server.write_snapshot, server.housekeep, server.relocate):
                    if work():
                        break
                else:
                    server.begin_snapshot()  # one piece of it
            case "tidy":
                server.tidy()
            case "compare":
                self.heal()
                self.rest()
                self.compare()
            case "crash" | "kill":
                self.restart(power_fails=step.kind == "crash")
                return
            case "reads fail":
                self.machine.fail_reads(step.how)
            case "reads succeed":
                self.heal()
            case "bind":
                self._bind()
            case "pass time":
                self._pass_time((1000, 20_000, 61_000, 40 * 60_000)[step.what % 4])
            case "set clock":
                self.ledger.count(self.machine.set_clock(step.what))
                self._reach_time()
            case kind:
                self._calls.execute(kind, step)
                server.end_turn()  # writes the record of settlements at once
        self.record()

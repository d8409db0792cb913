"""RocketMQ's endpoints in a simulated world: clients of both protocols that write many requests at once.

The broker reads such requests together, and carries out many of them in one record. Bytes arrive in pieces of any size,
so a request may be cut anywhere; the disk works step by step, connections are lost, and the broker is killed at any
step. What was answered must hold afterwards, and what a consumer has seen. In the end each half message has its
outcome, and each message must have been delivered as often as that says.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from escrowmq.core.broker import Broker
from escrowmq.core.half.options import CheckOptions
from escrowmq.journal.errors import JournalFailed
from escrowmq.perf.errors import PerfError
from escrowmq.wire.rocketmq.remoting.codes import Code, ResultCode
from tests.harness.rocketmq_calls import STORE, TOPIC, Asked
from tests.harness.rocketmq_ledger import Ledger as Known
from tests.harness.server import AnyPort, Options, SimServer
from tests.simulation.ledger import Ledger, Violation
from tests.simulation.machine import TROUBLE, server_machine
from tests.simulation.rocketmq.clients import QUEUES, Caller
from tests.simulation.steps import Step
from tests.unit.wire.rocketmq.remoting.clients import Client, messages, pull_fields

WEIGHTS: Final[dict[str, int]] = {
    "burst": 60,
    "contradict": 8,
    "arrive": 60,
    "hear": 50,
    "pull": 10,
    "turn": 20,
    "take": 24,
    "write": 24,
    "report": 24,
    "pump": 6,
    "break": 3,
    "pass time": 6,
    "set clock": 2,
    "tidy": 1,
    "crash": 2,
    "kill": 2,
    **TROUBLE,
}
CLIENTS: Final = 4
ROUNDS: Final = 1000
_OPTIONS: Final = Options(segment_bytes=12_000, batch_bytes=6000, resident_limit=3000)
_CHECKS: Final = CheckOptions(timeout_ms=1000, interval_ms=1000, checks=60_000)


def _make_broker(*arguments: Any, **options: Any) -> Broker:
    broker = Broker(*arguments, **options)
    broker.half.options.check = _CHECKS
    broker.half.options.outcome_kept_ms = 1 << 40
    return broker


class RocketmqWorld:
    """A history of requests over both protocols."""

    def __init__(self, seed: int) -> None:
        self.ledger = Ledger()
        self.known = Known()
        self.trace: list[str] = []
        self.machine = server_machine(seed, _OPTIONS, _make_broker)
        self.callers = [Caller(self, number) for number in range(CLIENTS)]
        self._seen: set[str] = set()
        self._idents = 0
        self.server.on_output = self._said
        broker = self.server.broker
        broker.topics.declare(broker.directory.vhost("/"), TOPIC, QUEUES, "mixed")
        self.server.end_turn()
        self.server.run_disk()

    @property
    def server(self) -> SimServer:
        """The process that runs now."""
        return self.machine.server

    def read_along(self) -> None:
        """Do nothing: the trace has every step anyway."""

    def count(self, event: str) -> None:
        """Count an event."""
        self.ledger.count(event)

    def new_ident(self) -> str:
        """Return the id of a new message."""
        self._idents += 1
        return f"M{self._idents:06d}"

    def number_of(self, ident: str) -> int:
        """Return the number of a half message, for answers that lack it."""
        number = self.server.broker.half.number("/", TOPIC, ident)
        if not number:
            raise Violation(f"half message {ident} was acknowledged, and is not there")
        return number

    # -- steps

    def run(self, steps: Iterable[Step]) -> None:
        """Execute the steps, then let everybody finish without trouble. Raises Violation."""
        for step in steps:
            self.trace.append(str(step))
            death = self.machine.run(partial(self._step, step))
            if death is not None:
                self.count(death.event)
                self._restart(power_fails=death.power_fails or step.how % 2 == 0)
        with self.machine.calm():
            self._finish()

    def _step(self, step: Step) -> None:
        caller, server = self.callers[step.who % CLIENTS], self.server
        caller.connect(server)
        match step.kind:
            case kind if self.machine.plan(step):
                self.trace.append(f"planned: {kind}")
            case "burst":
                caller.burst(random.Random(f"{step.what} {step.how} {self._idents}"))
            case "contradict":
                caller.contradict(step.what)
            case "arrive":
                self._arrive(caller, len(caller.up) if step.how % 2 else 1 + step.what * step.how // 8)
            case "hear":
                self._hear(caller, len(caller.down) if step.how % 2 else 1 + step.what)
            case "pull":
                self._pull(step.what)
            case "turn":
                server.end_turn()
            case "take":
                server.take_batch()
            case "write":
                server.write_batch()
            case "report":
                if server.report_batch():
                    server.end_turn()
            case "pump":
                self._pump()
            case "break":
                self._lose(caller)
            case "pass time":
                self.machine.pass_time(step.what * 10)
                self.machine.record_time()
            case "set clock":
                self.count(self.machine.set_clock(step.what))
                self.machine.record_time()
            case "tidy":
                server.tidy()
                server.end_turn()
            case _:
                self.count(step.kind)
                self._restart(power_fails=step.kind == "crash")

    # -- the network

    def _said(self, port: AnyPort, data: bytes) -> None:
        for caller in self.callers:
            if caller.port is port:
                caller.down += data

    def _arrive(self, caller: Caller, size: int) -> None:
        if caller.port is not None and caller.up:
            data = bytes(caller.up[:size])
            del caller.up[:size]
            self.server.receive(caller.port, data)
            self._check_open(caller)

    def _hear(self, caller: Caller, size: int) -> None:
        data = bytes(caller.down[:size])
        del caller.down[:size]
        try:
            if data:
                caller.hear(data)
        except PerfError:
            self.count("opened again")
            self._lose(caller)

    def _check_open(self, caller: Caller) -> None:
        if caller.port is not None and caller.port.closed:
            raise Violation("the broker has closed a connection")

    def _lose(self, caller: Caller) -> None:
        if caller.port is not None:
            self.server.lose(caller.port)
            caller.lost()

    def _pump(self) -> None:
        """Run until nothing is on its way, and everything is on disk and answered."""
        for _ in range(ROUNDS):
            for caller in self.callers:
                self._arrive(caller, len(caller.up))
            self.server.end_turn()
            self.server.run_disk()
            for caller in self.callers:
                self._hear(caller, len(caller.down))
            if self.server.idle and not any(caller.up or caller.down for caller in self.callers):
                break
        if any(caller.waits for caller in self.callers):
            raise Violation("answers are missing although everything is at rest")

    # -- consumers

    def _pull(self, what: int) -> None:
        """Pull the messages that are visible now. They must never be lost again."""
        reader = Client(self.server, "reader")
        number = reader.send(Code.LITE_PULL, pull_fields(TOPIC, what % QUEUES, 0, maxMsgNums="1000"))
        response = reader.response(number)
        reader.lose()
        if response is not None and response.code == ResultCode.SUCCESS:
            found = {each.content.body.decode() for each in messages(response.body)}
            self.count("pulled")
            self._seen |= found
            self._judge(found, whole=False)

    def _delivered(self) -> list[str]:
        """Return the messages of the topic, each as often as it is there."""
        reader, found = Client(self.server, "reader"), list[str]()
        for queue in range(QUEUES):
            offset = 0
            while (answer := reader.pull(TOPIC, queue, offset)).code == ResultCode.SUCCESS:
                found += [each.content.body.decode() for each in messages(answer.body)]
                offset = int(answer.fields["nextBeginOffset"])
        reader.lose()
        return found

    def _judge(self, found: Iterable[str], *, whole: bool = True) -> None:
        """Check what was delivered. `whole` if it is everything."""
        known = self.known
        try:
            if whole:
                known.check_promises(found)
            else:
                known.check_delivered(found)
        except AssertionError as error:
            raise Violation(str(error)) from None

    # -- crashes, and the end

    def _restart(self, *, power_fails: bool) -> None:
        self.count("restarts")
        for caller in self.callers:
            caller.lost()
        self.machine.end_trouble()
        self.machine.restart(power_fails=power_fails).on_output = self._said
        found = self._delivered()
        self._judge(found)
        lost = sorted(self._seen - set(found))
        if lost:
            raise Violation(f"{lost[0]} was delivered, and the crash lost it")

    def _finish(self) -> None:
        self.machine.end_trouble()
        try:
            self._pump()
        except JournalFailed:
            self._restart(power_fails=True)
        for caller in self.callers:
            caller.connect(self.server)
        self._end(self.callers[0], self.callers[1])
        for power_fails in (False, True):
            self._check_outcomes()
            self._restart(power_fails=power_fails)
        self._check_outcomes()
        self.ledger.events["messages"] = self._idents

    def _end(self, first: Caller, second: Caller) -> None:
        """Send again what was not answered, and decide every half message, over both protocols."""
        known = self.known
        first.write([Asked(STORE, ident) for ident in sorted(known.halves)])
        self._pump()
        halves = sorted(known.halves)
        for caller, some in ((first, halves[::2]), (second, halves[1::2])):
            caller.write([caller.decision(ident) for ident in some], all_answered=True)
        self._pump()
        for caller in (first, second):
            for at in range(0, len(halves), 7):
                caller.contradict(at)
        self._pump()

    def _check_outcomes(self) -> None:
        try:
            self.known.check_outcomes(self._delivered())
        except AssertionError as error:
            raise Violation(str(error)) from None

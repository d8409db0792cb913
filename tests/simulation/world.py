"""A simulated world of clients, network, server, disk and clock, executed step by step and watched by the oracle."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final

from escrowmq.core.broker import Broker
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.availability import RETRY_MS
from escrowmq.journal.errors import JournalFailed
from escrowmq.journal.memory import MemoryStorage
from escrowmq.wire.endpoint import EndpointLimits
from tests.harness.contents import parts
from tests.harness.holding import each_held
from tests.harness.server import AnyPort, Options, SimServer
from tests.simulation.aftermath import Aftermath
from tests.simulation.amqp091.dialect import AMQP091
from tests.simulation.dialect import Client, Conversation, Dialect
from tests.simulation.ledger import Found, Ledger, Violation
from tests.simulation.machine import server_machine
from tests.simulation.steps import Step
from tests.simulation.topology import ARGUMENTS

CLIENTS: Final = 3
SMALL_BRANCH: Final = 3
OPTIONS: Final = Options(
    return_piece=2,
    segment_bytes=12_000,
    batch_bytes=6000,
    resident_limit=3000,
    limits=EndpointLimits(frame_max=4096, outbox=16_000),
)


class World:
    """Executes a history. A history is a list of steps, and a seed for the disk and other random choices."""

    def __init__(
        self,
        seed: int,
        *,
        dialect: Dialect = AMQP091,
        make_broker: Callable[..., Broker] = Broker,
        options: Options = OPTIONS,
    ) -> None:
        self.rng = random.Random(f"world {seed}")
        self.ledger = Ledger()
        self._dialect = dialect
        self.oracle = dialect.make_observer(self.ledger)
        favourites = self.rng.sample(sorted(ARGUMENTS), 2)
        self.actors = [dialect.make_client(number, favourites) for number in range(CLIENTS)]
        self.trace: list[str] = []
        self.digest = hashlib.sha256()
        self._connections: dict[AnyPort, Conversation] = {}
        limit = self.rng.choice((1000, options.resident_limit, 1 << 20))
        large = SMALL_BRANCH if seed % 2 else options.large_branch  # some histories commit nearly all in pieces
        self._machine = server_machine(seed, replace(options, resident_limit=limit, large_branch=large), make_broker)
        self.server.on_output = self._said
        self._set_up()

    @property
    def server(self) -> SimServer:
        """The process that runs now."""
        return self._machine.server

    @property
    def storage(self) -> MemoryStorage:
        """The disk that the process uses."""
        return self._machine.storage

    def read_along(self) -> None:
        """Add every message to the trace."""
        self.oracle.tell = self.note

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"turn {self.ledger.turn}: {text}")

    # -- the server's life

    def _set_up(self) -> None:
        """Declare the exchange and the queues with a client that is not part of the history."""
        actor = self._dialect.make_client(CLIENTS, ())
        self._connect(actor, f"client {CLIENTS}")
        actor.set_up()
        self._arrive(actor, len(actor.up))
        self.pump()
        port = actor.port
        assert port is not None
        self._lose(port)
        actor.lost()
        self._end_turn()
        self.pump()

    def _said(self, port: AnyPort, data: bytes) -> None:
        self.digest.update(b"<" + data)
        self.oracle.outward(self._connections[port], data)
        for actor in self.actors:
            if actor.port is port:
                actor.down += data
                port.endpoint.congested(len(actor.down))

    def _connect(self, actor: Client, name: str) -> None:
        port = self.server.open(self._dialect.open, name)
        self._connections[port] = self.oracle.connect(name)
        actor.connect(port)

    def _lose(self, port: AnyPort) -> None:
        self.server.lose(port)
        self.oracle.lose(self._connections[port])

    def _arrive(self, actor: Client, size: int) -> None:
        """Deliver up to `size` bytes from the network to the server."""
        port = actor.port
        if port is None or not actor.up:
            return
        data = bytes(actor.up[:size])
        del actor.up[:size]
        self.digest.update(b">" + data)
        self.server.receive(port, data)
        self.oracle.inward(self._connections[port], data)

    def _end_turn(self) -> None:
        self.oracle.before_output()
        self.server.end_turn()
        self.oracle.after_output(unfinished=self.server.broker.engine.turn.unfinished)
        self._notice_closed()

    def _notice_closed(self) -> None:
        for actor in self.actors:
            if actor.port is not None and actor.left:  # the client closes the socket once its close is answered
                self.server.lose(actor.port)
            if actor.port is not None and actor.port.closed and not actor.down:
                self.oracle.lose(self._connections[actor.port])
                actor.lost()

    def _answer(self, actor: Client, size: int) -> None:
        """Deliver up to `size` bytes from the network to a client."""
        data = bytes(actor.down[:size])
        del actor.down[:size]
        actor.read(data)
        if data and actor.port is not None:
            actor.port.endpoint.congested(len(actor.down))
        self._notice_closed()

    def _report(self) -> None:
        if self.server.report_batch():
            self._end_turn()

    def pump(self) -> None:
        """Run until everything is at rest: networks are empty, and everything is on disk and answered."""
        for _ in range(1000):
            for actor in self.actors:
                self._arrive(actor, len(actor.up))
            self._end_turn()
            self.server.take_batch()
            self.server.write_batch()
            self._report()
            for actor in self.actors:
                self._answer(actor, len(actor.down))
            if self.server.idle and not any(actor.up or actor.down for actor in self.actors):
                return
        raise Violation("the server does not come to rest")

    # -- dying and coming back

    def restart(self, *, power_fails: bool, clean: bool = False, damaged: bool = False) -> None:
        """Restart the process from the state on disk, and check what it has recovered.

        Args:
            power_fails: whether unsynced writes are lost.
            clean: whether the process stops cleanly, or is killed.
            damaged: whether the medium has been damaged, so that promises may be broken.

        Raises:
            Violation: the process has recovered a wrong state.
        """
        if clean:
            self.heal()
            self.pump()
            self.compare()
            for port in list(self.server.ports.values()):
                self._lose(port)
            self._end_turn()
            self.server.run_disk()
            self.server.close()
            self.ledger.promise_all()
        deleting = self.server.journal.removal_lsn is not None or self.server.files is not None
        self.ledger.count("deletions cut off", deleting)
        self.oracle.die()
        for actor in self.actors:
            actor.lost()
        self.note(f"restart, power {'fails' if power_fails else 'stays'}, {'clean' if clean else 'not clean'}")
        self._machine.restart(power_fails=power_fails).on_output = self._said
        if not damaged and any("no record says" in note for note in self.server.journal.recovery.notes):
            raise Violation("the broker has deleted a segment without noting it")
        Aftermath(self.ledger, contents(self.server.broker), damaged=damaged).settle()
        self.ledger.count("restarts")
        self._set_up()

    def compare(self) -> None:
        """Compare the broker's content at rest with the oracle's."""
        if not self.oracle.settled:
            raise Violation("answers are missing although everything is at rest")
        self.ledger.compare(contents(self.server.broker))
        self._compare_log()

    def _compare_log(self) -> None:
        """Check that the log retains exactly the broker's messages: it neither leaks nor releases any too early."""
        kept = sum(segment.live for segment in self.server.journal._table)
        held = sum(logged(self.server.broker))
        if kept != held:
            raise Violation(f"the log retains {kept} messages; expected: {held}")

    # -- a disk that cannot be read

    def _fail_reads(self, how: int) -> None:
        """Let reads fail, some or all of them. Clients that ask for messages now would be refused, so the requests that
        are under way are answered first, and no further ones are made until the disk is healed.
        """
        self.pump()
        self._machine.fail_reads(how)

    def heal(self) -> None:
        """Let reads succeed again, and wait until all queues are available."""
        self.storage.faults.read_fails = 0.0
        unavailable = self.server.broker.engine.unavailable.reasons
        if unavailable:
            self.ledger.count("queues unavailable", len(unavailable))
            self._machine.pass_time(RETRY_MS * 10 // 9 + 2)  # the broker's time may be slower by a tenth
            self._machine.record_time()
            self._end_turn()
            if unavailable:
                raise Violation(f"queues stay unavailable: {unavailable}")

    # -- steps

    def run(self, steps: Iterable[Step]) -> None:
        """Execute the steps, then compare everything.

        Raises:
            Violation: the broker broke a rule.
        """
        for step in steps:
            self.note(str(step))
            self.step(step)
        with self._machine.calm():
            self.finish()

    def step(self, step: Step) -> None:
        """Execute one step. If the journal fails in it, the process must die (DUR-2)."""
        death = self._machine.run(partial(self._step, step))
        if death is not None:
            self.note(f"failure: {death.error}")
            self.ledger.count(death.event)
            self.restart(power_fails=death.power_fails or step.how % 2 == 0)

    def _step(self, step: Step) -> None:
        actor = self.actors[step.who % CLIENTS]
        server = self.server
        if self._machine.plan(step):
            return
        match step.kind:
            case "break":
                if actor.port is not None and not self._connections[actor.port].undecided:
                    self._lose(actor.port)
                    actor.lost()
            case "arrive":
                self._arrive(actor, 1 + step.what * step.how // 8)
            case "answer":
                self._answer(actor, 1 + step.what * step.how)
            case "turn":
                self._end_turn()
            case "pass time":
                self._machine.pass_time(step.what * 10)
                self._machine.record_time()
            case "set clock":
                self.ledger.count(self._machine.set_clock(step.what))
                self._machine.record_time()
            case "take":
                server.take_batch()
            case "write":
                server.write_batch()
            case "report":
                self._report()
            case "pump":
                self.pump()
            case "snapshot" | "write snapshot" | "housekeep" | "files" | "relocate":
                self._end_turn()
                self._maintain(step.kind)
            case "maintain":
                self._end_turn()
                for kind in ("files", "write snapshot", "housekeep", "relocate", "snapshot"):
                    if self._maintain(kind):
                        break
            case "tidy":
                self.pump()
                server.tidy()
                self._end_turn()
            case "crash" | "kill":
                self.ledger.count(step.kind)
                self.restart(power_fails=step.kind == "crash")
            case "restart":
                self.restart(power_fails=step.how % 2 == 0, clean=True)
            case "reads fail":
                self._fail_reads(step.how)
            case "reads succeed":
                self.heal()
            case "compare":
                self.heal()
                self.pump()
                self.compare()
            case "get" | "consume" if self._machine.unreadable:
                pass
            case _:
                self._client_step(actor, step)

    def _maintain(self, kind: str) -> bool:
        """Do one piece of maintenance on the log. Returns False if there is none of this kind."""
        server = self.server
        work = {
            "snapshot": server.begin_snapshot,
            "write snapshot": server.write_snapshot,
            "housekeep": server.housekeep,
            "files": server.run_files,
            "relocate": server.relocate,
        }[kind]
        done = work()
        self.ledger.count(f"maintenance: {kind}", done)
        return done

    def _client_step(self, actor: Client, step: Step) -> None:
        if actor.port is None:
            self._connect(actor, f"client {step.who % CLIENTS}")
            self._arrive(actor, len(actor.up))
        actor.act(step)
        if step.how % 3:
            self._arrive(actor, len(actor.up))
        if step.how % 3 == 2:
            self._end_turn()
            self._answer(actor, len(actor.down))

    def finish(self) -> None:
        """Bring everything to rest, compare, restart, and compare again."""
        self.note("finish")
        try:
            self._machine.end_trouble()
            self.heal()
            self.pump()
        except JournalFailed:
            self.restart(power_fails=True)
        self.compare()
        self.server.tidy()
        self._end_turn()
        self.restart(power_fails=True, clean=True)
        self.compare()
        for name in self.storage.names():
            self.digest.update(name.encode() + self.storage.read(name, 0, self.storage.size(name)))


def contents(broker: Broker) -> dict[str, list[Found]]:
    """Return the broker's messages by queue, in order of position, read with the broker's own code."""
    held: dict[str, list[Found]] = {}
    for holder in broker.engine.holders:
        for consumer, entry in each_held(holder):
            if not consumer.queue.deleted:
                held.setdefault(consumer.queue.name, []).append(_found(entry, held=True))
    found = {}
    for queue in broker.directory.vhosts["/"].queues.values():
        items = [*held.get(queue.name, ()), *(_found(entry, held=False) for entry in queue.order.in_memory())]
        for backlog in queue.order.backlogs():
            for reference in backlog:
                block = broker.engine.pager.load(reference)
                for i, body in enumerate(block.contents):
                    items.append(_seen(reference.first + i, block.envelope, body, held=False))
        if queue.unsynced:
            raise Violation(f"{queue.name} hides messages although everything is at rest")
        found[queue.name] = sorted(items, key=lambda item: item.position)
    return found


def _found(entry: Entry, *, held: bool) -> Found:
    return _seen(entry.position, entry.run.envelope, entry.content, held=held)


def _seen(position: int, envelope: Envelope, content: bytes, *, held: bool) -> Found:
    header, body = parts(envelope, content)
    via = envelope.deaths[0].queue if envelope.deaths else ""
    return Found(position, int(body.split(b".")[0]), via, body, header, held)


def logged(broker: Broker) -> Iterable[int]:
    """Yield the numbers of messages, per queue and client, whose content is in the log."""
    for holder in broker.engine.holders:
        yield sum(bool(entry.run.lsn) for _, entry in each_held(holder))
    for queue in broker.directory.vhosts["/"].queues.values():
        yield sum(bool(entry.run.lsn) for entry in queue.order.in_memory())
        yield sum(backlog.messages for backlog in queue.order.backlogs())

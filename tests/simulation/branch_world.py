"""Distributed transactions in a simulated world: channels, a coordinator, an operator, and a failing disk.

The world calls the broker as endpoints do. The model determines every answer and everything that clients can see. Each
call writes at most one record, so a restart must find exactly the model's state as of the last record on disk.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from escrowmq.core.branches.branch import Limits, Publication, Settlement
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.branches.xid import Xid
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.messages.pager import LogPager
from escrowmq.core.queues.availability import RETRY_MS
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.topology.directory import Declaration
from tests.harness.contents import body_of
from tests.harness.holding import each_held
from tests.harness.server import Options, SimServer
from tests.simulation import branch_marks
from tests.simulation.branch_model import DEAD, HEURISTIC, MARKED, QUEUES, TRANSIENT, Model
from tests.simulation.ledger import Ledger, Violation
from tests.simulation.machine import Machine
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
    "power fails in": 1,
    "sync fails in": 1,
    "append refused in": 1,
    "disk fills": 1,
    "reads fail": 8,
    "reads succeed": 6,
    "set clock": 3,
}
XIDS: Final = tuple(Xid(1, gtrid, bqual) for gtrid in (b"g", b"h") for bqual in (b"1", b"2", b"3"))
WORKERS: Final = 4
OPTIONS: Final = Options(segment_bytes=3000, batch_bytes=2000, resident_limit=400, return_piece=2)
_FIT: Final = {
    "prepare": ("active",),
    "commit": ("active", "prepared"),
    "rollback": ("active", "prepared"),
    "force": ("prepared",),
    "forget": tuple(HEURISTIC),
    "decide": ("prepared",),
}
"""The states of branches for which calls make sense."""
DISPOSITIONS: Final = {"accept": Disposition.ACCEPTED, "reject": Disposition.REJECTED, "requeue": Disposition.MODIFIED}


class Worker:
    """A channel that works for branches."""

    def __init__(self) -> None:
        self.branch: XaBranch | None = None

    def branch_expired(self, branch: XaBranch) -> None:
        """Ignore the expiry: the channel continues to work in vain."""


class Clients:
    """The unsettled deliveries of clients outside branches."""

    def __init__(self) -> None:
        self.entries: list[tuple[Consumer, Entry]] = []

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        return [(consumer, [entry]) for consumer, entry in self.entries]

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        return list(self.entries[start : start + most])


class BranchWorld:
    """Executes a history of steps, like `World`."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"branches {seed}")
        self.machine = Machine(seed, OPTIONS)
        self.storage = self.machine.storage
        self.ledger = Ledger()
        self.trace: list[str] = []
        self.model = Model()
        self.states: list[tuple[int, Model]] = []
        self._serial = 0
        self.began()

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
        self.workers = [Worker() for _ in range(WORKERS)]
        self.clients = Clients()
        self.broker.engine.holders[self.clients] = None

    def _declare(self) -> None:
        vhost = self.broker.directory.vhost("/")
        arguments = {"rejects": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}}
        for name in QUEUES:
            declaration = Declaration(durable=name != TRANSIENT, arguments=arguments.get(name, {}))
            self.broker.directory.declare_queue(vhost, name, declaration, Session("simulation"))
        self.server.end_turn()
        self.server.run_disk()
        self._record()

    def _queue(self, name: str) -> Queue:
        return self.broker.directory.vhost("/").queue(name)

    def _record(self) -> None:
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
        """Compare queues, branches and progress with the model."""
        for name in QUEUES:
            if name not in self.broker.directory.vhost("/").queues:
                continue
            queue = self._queue(name)
            found: list[tuple[int, int, Any]] = []
            for holder in self.broker.engine.holders:
                for consumer, entry in each_held(holder):
                    if consumer.queue is queue:
                        found.append((entry.position, int(body_of(entry)), getattr(holder, "xid", "")))
            found += [(entry.position, int(body_of(entry)), None) for entry in queue.order.in_memory()]
            for backlog in queue.order.backlogs():
                for reference in backlog:
                    bodies = self.broker.engine.pager.load(reference).contents
                    found += [(reference.first + i, int(body), None) for i, body in enumerate(bodies)]
            branch_marks.compare(queue, self.model, {position: serial for position, serial, _ in found})
            there = [(serial, holder) for _, serial, holder in sorted(found, key=lambda item: item[0])]
            if queue.unsynced:
                raise Violation(f"{name} hides messages although everything is on disk")
            expected = [(i.serial, None if isinstance(i.holder, int) else i.holder) for i in self.model.queues[name]]
            if there != expected:
                raise Violation(f"{name} contains {there}; expected: {expected}")
            counted = sum(holder is not None for _, holder in expected)
            if queue.unsettled != counted:
                raise Violation(f"{name} counts {queue.unsettled} unsettled messages; expected: {counted}")
        known = {view.xid: view.state for view in self.broker.branches.views()}
        names = {"forced commit": "heuristic_committed", "forced rollback": "heuristic_rolled_back"}
        states = {x: names.get(b.state, b.state.replace(" ", "_")) for x, b in self.model.branches.items()}
        if known != states:
            raise Violation(f"branches are {known}; expected: {states}")
        if (self.coordinator.progress.epoch("app") or -1) != (self.model.progress or -1):
            raise Violation(f"progress is {self.coordinator.progress.epoch('app')}; expected: {self.model.progress}")
        self._compare_log()

    def _compare_log(self) -> None:
        """Check that the log retains exactly the messages of queues, clients and branches."""
        kept = sum(segment.live for segment in self.server.journal._table)
        held = sum(bool(entry.run.lsn) for holder in self.broker.engine.holders for _, entry in each_held(holder))
        for queue in self.broker.directory.vhost("/").queues.values():
            held += sum(bool(entry.run.lsn) for entry in queue.order.in_memory())
            held += sum(backlog.messages for backlog in queue.order.backlogs())
        for holder in self.broker.engine.holders:
            if isinstance(holder, XaBranch):
                held += sum(run.retained for run in holder.runs)
        if kept != held:
            raise Violation(f"the log retains {kept} messages; expected: {held}")

    # -- a disk that cannot be read

    @property
    def _unreadable(self) -> bool:
        return self.storage.faults.read_fails > 0 or bool(self.broker.engine.unavailable.reasons)

    def _fail_reads(self, how: int) -> None:
        """Let reads fail, some or all of them. Nothing is read from the pager's memory, which would hold all of it."""
        self.storage.faults.read_fails = 1.0 if how % 2 else 0.3
        pager = self.broker.engine.pager
        assert isinstance(pager, LogPager)
        pager._chunks.clear()
        pager._chunk = b""

    def heal(self) -> None:
        """Let reads succeed again, and wait until all queues are available."""
        self.storage.faults.read_fails = 0.0
        unavailable = self.broker.engine.unavailable.reasons
        if unavailable:
            self.ledger.count("queues unavailable", len(unavailable))
            self._pass_time(RETRY_MS * 10 // 9 + 2)  # the broker's time may be slower by a tenth
            if unavailable:
                raise Violation(f"queues stay unavailable: {unavailable}")

    def _refused(self, error: BrokerError) -> bool:
        """Whether the broker has refused a request because the disk cannot be read. It has changed nothing then."""
        if error.condition is not Condition.UNAVAILABLE or not self._unreadable:
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
        self._record()
        self.machine.record_time()

    def rest(self) -> None:
        """Write everything to disk, and let the broker know."""
        self.server.end_turn()
        self.server.run_disk()
        self._record()

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
            case "power fails in":
                self.storage.faults.dies_in = 1 + step.what % 8
            case "sync fails in":
                self.storage.faults.fail_sync_in = 1 + step.what % 4
            case "append refused in":
                self.machine.refuse_append(1 + step.what % 8)
            case "disk fills":
                self.machine.fill_disk(step.what * 40)
            case "reads fail":
                self._fail_reads(step.how)
            case "reads succeed":
                self.heal()
            case "pass time":
                self._pass_time((1000, 20_000, 61_000, 40 * 60_000)[step.what % 4])
            case "set clock":
                self.ledger.count(self.machine.set_clock(step.what))
                self._reach_time()
            case kind:
                fit = _FIT.get(kind)
                if fit and step.how % 8 and not any(b.state in fit for b in self.model.branches.values()):
                    kind = "advance"  # the call would make no sense
                getattr(self, "_" + kind)(step, self._worker(step), XIDS[step.what % len(XIDS)])
                server.end_turn()  # writes the record of settlements at once
        self._record()

    def _worker(self, step: Step) -> Worker:
        """Choose a worker, mostly one that can execute the step."""
        busy = [i for i in range(WORKERS) if self.model.at_work(i) is not None]
        idle = [i for i in range(WORKERS) if i not in busy]
        fit = {"end": busy, "work": busy, "begin": idle}.get(step.kind)
        return self.workers[fit[step.who % len(fit)] if fit and step.how % 8 else step.who % WORKERS]

    def _entry(self, name: str) -> Entry | None:
        """Get the next message of a queue, and check that it is the right one."""
        visible = self.model.visible(name, self.server.journal.synced_lsn)
        try:
            entry = self.broker.engine.get(self._queue(name), auto_settle=False)
        except BrokerError as error:
            if self._refused(error):
                return None
            raise
        if entry is None or not visible:
            if entry is not None or visible:
                found = entry and body_of(entry)
                raise Violation(f"{name} returned {found!r}; visible: {[item.serial for item in visible]}")
            return None
        item = visible[0]
        if int(body_of(entry)) != item.serial:
            raise Violation(f"{name} returned message {int(body_of(entry))}; expected: {item.serial}")
        if item.seen and not entry.deliveries:
            raise Violation(f"message {item.serial} of {name} is not marked as redelivered")
        item.holder, item.seen = "", True
        self.clients.entries.append((self._queue(name).getter, entry))
        return entry

    def _bodies(self, step: Step) -> list[int]:
        count = 1 + step.how % 3
        self._serial += count
        return list(range(self._serial - count + 1, self._serial + 1))

    def _publish(self, step: Step, worker: Worker, xid: Xid) -> None:
        name, durable = (*QUEUES[:4], MARKED)[step.what % 5], step.how % 5 > 0
        for serial in self._bodies(step):
            envelope = Envelope("", name, durable=durable)
            self.broker.engine.publish(envelope, [b"%d" % serial], (self._queue(name),))
            self.model.add(name, serial, durable=durable)
            self._record()

    def _get(self, step: Step, worker: Worker, xid: Xid) -> None:
        self._entry(QUEUES[step.how % len(QUEUES)])

    def _settle(self, step: Step, worker: Worker, xid: Xid) -> None:
        entries = self.clients.entries
        if not entries:
            return
        getter, entry = entries.pop(step.what % len(entries))
        queue = getter.queue
        name = queue.name
        some = branch_marks.HOW_MARKED if name == MARKED else branch_marks.HOW
        how = some[step.how % len(some)]
        if name == MARKED and how != "accept":
            branch_marks.give_back(self.broker.engine, self.model, getter, entry, how, step.what)
            self.ledger.count(f"returned: {how}")
            return
        if how == "requeue":
            self.broker.engine.requeue(getter, [entry])
        else:
            self.broker.engine.settle(getter, [entry], DISPOSITIONS[how])
        self.model.settle(name, int(body_of(entry)), how)

    def _ask(self, what: str, call: Any, answer: Any) -> Any:
        """Call the broker, and compare its answer with the model's, `answer(lsn)`. Returns the call's result."""
        before = self.model.survive()
        end = self.server.journal.end_lsn
        result: Any = None
        try:
            result = call()
        except BrokerError as error:
            if self._refused(error):
                return None
            said = error.condition.name
        else:
            said = "" if isinstance(result, int) else result.status.name
        lsn = self.server.journal.end_lsn
        expected = answer(getattr(result, "lsn", lsn))
        self.note(f"  {what}: {said}")
        self.ledger.count(f"{what}: {said}")
        if said != expected:
            raise Violation(f"{what} was answered with {said}; expected: {expected}")
        after = self.model.survive()
        changed = (before.queues, before.branches, before.progress) != (after.queues, after.branches, after.progress)
        waits = result if isinstance(result, int) else getattr(result, "lsn", 0)
        if changed and (waits < lsn or lsn == end):
            raise Violation(f"{what} was answered before it was on disk")
        return result

    def _begin(self, step: Step, worker: Worker, xid: Xid) -> None:
        who = self.workers.index(worker)
        how = ("start", "start", "join", "resume")[step.how // 8 % 4]
        if how == "start" and step.what % 8:
            xid = next((x for x in XIDS if x not in self.model.branches), xid)
        elif how == "join":
            xid = self._aim(step, xid, "active")
        suspended = [x for x, b in self.model.branches.items() if b.workers.get(who) == "suspended"]
        if suspended and step.what % 8:
            how, xid = "resume", suspended[0]
        start = self.broker.demarcations.start
        result = self._ask(
            how,
            lambda: start(worker, xid, join=how == "join", resume=how == "resume", limits=Limits())[0],
            lambda _: self.model.start(who, xid, how, self.server.now),
        )
        if result is not None and result.status.name == "OK":
            worker.branch = self.broker.branches.find(xid)

    def _end(self, step: Step, worker: Worker, xid: Xid) -> None:
        who = self.workers.index(worker)
        at_work = self.model.at_work(who)
        if at_work is not None and step.how % 8:
            xid = at_work
        how = ("end", "end", "end", "end", "suspend", "fail")[step.what % 6]
        self._ask(
            how,
            lambda: self.broker.demarcations.end(worker, xid, fail=how == "fail", suspend=how == "suspend"),
            lambda _: self.model.end(who, xid, how, self.server.now),
        )
        if self.model.at_work(who) is None:
            worker.branch = None

    def _work(self, step: Step, worker: Worker, xid: Xid) -> None:
        who = self.workers.index(worker)
        at_work = self.model.at_work(who)
        branch = worker.branch
        if at_work is None or branch is None:
            return
        known = self.model.branches[at_work]
        live = known.state == "active"
        if step.how % 2:
            durable = step.what % 7 > 0
            names = (QUEUES[step.what % 4],) if step.what % 3 else ("a", TRANSIENT, "b")
            for serial in self._bodies(step):
                queues = tuple(self._queue(name) for name in names)
                envelope = Envelope("", names[0], durable=durable)
                self.broker.transactions.enlist(branch, Publication(envelope, [b"%d" % serial], queues))
                if live:
                    known.publishes.append((serial, names, durable))
            return
        name = QUEUES[step.what % (len(QUEUES) - 1)]  # not MARKED
        entry = self._entry(name)
        if entry is None:
            return
        self.clients.entries.pop()
        how = ("accept", "accept", "reject", "requeue")[step.how // 2 % 4]
        work = Settlement(self._queue(name).getter, [entry], DISPOSITIONS[how])
        self.broker.transactions.enlist(branch, work)
        self.model.item(name, int(body_of(entry))).holder = at_work if live else None
        if live:
            known.settles.append((name, int(body_of(entry)), how))

    def _aim(self, step: Step, xid: Xid, *states: str) -> Xid:
        """Choose a branch, mostly one for which the call makes sense."""
        fit = [x for x, b in self.model.branches.items() if b.state in states and (b.publishes or b.settles)]
        fit = [x for x in fit if not self.model.branches[x].occupied] or fit
        return fit[step.who % len(fit)] if fit and step.how % 8 else xid

    def _prepare(self, step: Step, worker: Worker, xid: Xid) -> None:
        xid = self._aim(step, xid, "active")
        self._ask("prepare", lambda: self.coordinator.prepare(xid), lambda _: self.model.prepare(xid))

    def _commit(self, step: Step, worker: Worker, xid: Xid) -> None:
        one_phase = step.how >> 3 & 3 == 0
        xid = self._aim(step, xid, "active" if one_phase else "prepared")
        self._ask(
            "commit one-phase" if one_phase else "commit",
            lambda: self.coordinator.commit(xid, one_phase=one_phase),
            lambda lsn: self.model.commit(xid, one_phase=one_phase, seal=lsn),
        )

    def _rollback(self, step: Step, worker: Worker, xid: Xid) -> None:
        xid = self._aim(step, xid, "active", "prepared")
        self._ask("rollback", lambda: self.coordinator.rollback(xid), lambda lsn: self.model.rollback(xid, lsn))

    def _leave(self, step: Step, worker: Worker, xid: Xid) -> None:
        self.broker.demarcations.leave(worker)
        self.model.leave(self.workers.index(worker))
        worker.branch = None

    def _force(self, step: Step, worker: Worker, xid: Xid) -> None:
        commit = step.how >> 3 & 1 == 0
        xid = self._aim(step, xid, "prepared")
        self._ask(
            "force",
            lambda: self.coordinator.force(xid, commit=commit),
            lambda lsn: self.model.force(xid, commit=commit, lsn=lsn),
        )

    def _forget(self, step: Step, worker: Worker, xid: Xid) -> None:
        xid = next((x for x, b in self.model.branches.items() if b.state in HEURISTIC), xid)
        self._ask("forget", lambda: self.coordinator.forget(xid), lambda _: self.model.forget(xid))

    def _decide(self, step: Step, worker: Worker, xid: Xid) -> None:
        xid = self._aim(step, xid, "prepared")
        prepared = [x.bqual for x, b in self.model.branches.items() if x.gtrid == xid.gtrid and b.state == "prepared"]
        winners = [bqual for i, bqual in enumerate(prepared) if step.how >> i & 1]
        if step.how % 16 == 0:
            winners.append(xid.bqual)
        if not prepared and step.how % 8:
            return
        epoch = self.model.progress + (step.how // 16) % 3
        self._ask(
            "decide",
            lambda: self.coordinator.decide(xid.gtrid, 1, winners, application="app", epoch=epoch),
            lambda lsn: self.model.decide(xid.gtrid, winners, epoch, lsn),
        )

    def _advance(self, step: Step, worker: Worker, xid: Xid) -> None:
        """Take the next step towards the outcome of a branch that has work, so that many reach the second phase."""
        fit = [x for x, b in self.model.branches.items() if b.publishes or b.settles or b.state in HEURISTIC]
        if not fit:
            return
        xid = fit[step.who % len(fit)]
        branch = self.model.branches[xid]
        exact = step._replace(what=step.what // len(XIDS), how=step.how & ~7)  # the call is for `xid`
        at_work = [who for who, state in branch.workers.items() if state != "ended"]
        if branch.state == "prepared":
            outcomes = (self._commit, self._commit, self._rollback, self._force, self._decide)
            outcomes[exact.what % 5](exact, worker, xid)
        elif branch.state in HEURISTIC:
            (self._commit, self._rollback, self._forget)[exact.what % 3](exact, worker, xid)
        elif not at_work:
            self._prepare(exact, worker, xid)
        elif branch.workers[at_work[0]] == "suspended":
            self._begin(exact._replace(what=1), self.workers[at_work[0]], xid)
        else:
            self._end(exact._replace(what=0), self.workers[at_work[0]], xid)

    def _recover(self, step: Step, worker: Worker, xid: Xid) -> None:
        expected = {x for x, b in self.model.branches.items() if b.state in ("prepared", *HEURISTIC)}
        if set(self.broker.branches.recover()) != expected:
            raise Violation(f"recover returned {self.broker.branches.recover()}; expected: {expected}")

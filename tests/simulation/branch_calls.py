"""The calls of clients, coordinators and operators in the world of branches, with the answers that are expected."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, Protocol

from escrowmq.core.branches.branch import Limits, Publication, Settlement
from escrowmq.core.branches.large_requests import Request
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.branches.xid import Xid
from escrowmq.core.broker import Broker
from escrowmq.core.budget import TURN
from escrowmq.core.conditions import BrokerError
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from tests.harness.contents import body_of
from tests.harness.server import SimServer
from tests.simulation import branch_marks
from tests.simulation.branch_model import HEURISTIC, MARKED, QUEUES, TRANSIENT, Model
from tests.simulation.branch_pieces import Pieces
from tests.simulation.ledger import Ledger, Violation
from tests.simulation.steps import Step

XIDS: Final = tuple(Xid(1, gtrid, bqual) for gtrid in (b"g", b"h") for bqual in (b"1", b"2", b"3"))
WORKERS: Final = 4
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

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """Nothing is copied in advance (`core.ports.Holder`)."""
        return 1, 0

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        return list(self.entries[start : start + most])


class World(Protocol):
    """The part of the world that calls need."""

    broker: Broker
    model: Model
    workers: list[Worker]
    clients: Clients
    ledger: Ledger

    @property
    def server(self) -> SimServer:
        """The process that runs now."""
        ...

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        ...

    def queue(self, name: str) -> Queue:
        """Return a queue of the broker."""
        ...

    def record(self) -> None:
        """Save a copy of the model for the current end of the log."""
        ...

    def refused(self, error: BrokerError) -> bool:
        """Return whether the broker has refused a request because the disk cannot be read."""
        ...


class BranchCalls:
    """Executes the steps of a history that call one process of the broker. The name of a step is that of its method."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._serial = 0

    def execute(self, kind: str, step: Step) -> None:
        """Execute a step, or one that makes more sense in the states that the branches have."""
        fit = _FIT.get(kind)
        if fit and step.how % 8 and not any(b.state in fit for b in self._world.model.branches.values()):
            kind = "advance"
        getattr(self, "_" + kind)(step, self._worker(step), XIDS[step.what % len(XIDS)])

    def _worker(self, step: Step) -> Worker:
        """Choose a worker, mostly one that can execute the step."""
        busy = [i for i in range(WORKERS) if self._world.model.at_work(i) is not None]
        idle = [i for i in range(WORKERS) if i not in busy]
        fit = {"end": busy, "work": busy, "begin": idle}.get(step.kind)
        return self._world.workers[fit[step.who % len(fit)] if fit and step.how % 8 else step.who % WORKERS]

    def _entry(self, name: str) -> Entry | None:
        """Get the next message of a queue, and check that it is the right one."""
        visible = self._world.model.visible(name, self._world.server.journal.synced_lsn)
        try:
            entry = self._world.broker.engine.get(self._world.queue(name), auto_settle=False)
        except BrokerError as error:
            if self._world.refused(error):
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
        self._world.clients.entries.append((self._world.queue(name).getter, entry))
        return entry

    def _envelope(self, queue: str, *, durable: bool) -> Envelope:
        """Return the envelope of a message that a client publishes outside of branches."""
        return Envelope("", queue, durable=durable)

    def _bodies(self, step: Step) -> list[int]:
        count = 1 + step.how % 3
        self._serial += count
        return list(range(self._serial - count + 1, self._serial + 1))

    def _publish(self, step: Step, worker: Worker, xid: Xid) -> None:
        name, durable = (*QUEUES[:4], MARKED)[step.what % 5], step.how % 5 > 0
        for serial in self._bodies(step):
            envelope = self._envelope(name, durable=durable)
            self._world.broker.engine.publish(envelope, [b"%d" % serial], (self._world.queue(name),))
            self._world.model.add(name, serial, durable=durable)
            self._world.record()

    def _get(self, step: Step, worker: Worker, xid: Xid) -> None:
        self._entry(QUEUES[step.how % len(QUEUES)])

    def _settle(self, step: Step, worker: Worker, xid: Xid) -> None:
        entries = self._world.clients.entries
        if not entries:
            return
        getter, entry = entries.pop(step.what % len(entries))
        queue = getter.queue
        name = queue.name
        some = branch_marks.HOW_MARKED if name == MARKED else branch_marks.HOW
        how = some[step.how % len(some)]
        if name == MARKED and how != "accept":
            branch_marks.give_back(self._world.broker.engine, self._world.model, getter, entry, how, step.what)
            self._world.ledger.count(f"returned: {how}")
            return
        if how == "requeue":
            self._world.broker.engine.requeue(getter, [entry])
        else:
            self._world.broker.engine.settle(getter, [entry], DISPOSITIONS[how])
        self._world.model.settle(name, int(body_of(entry)), how)

    def _ask(self, what: str, call: Any, answer: Any, worker: Worker | None = None, xid: Xid | None = None) -> Any:
        """Call the broker, and compare its answer with the model's, `answer(lsn)`. Returns the call's result.

        `worker` and `xid` tell who calls, and about which branch, if the call is one that protocols have.
        """
        before = self._world.model.survive()
        end = self._world.server.journal.end_lsn
        result: Any = None
        if isinstance(call, tuple):
            request, xid, seed = call
            self._ask_in_pieces(what, request, xid, seed, answer)
            return None
        try:
            result = call()
        except BrokerError as error:
            if self._world.refused(error):
                return None
            said = error.condition.name
        else:
            said = "" if isinstance(result, int) else result.status.name
        lsn = self._world.server.journal.end_lsn
        expected = answer(getattr(result, "lsn", lsn))
        self._world.note(f"  {what}: {said}")
        self._world.ledger.count(f"{what}: {said}")
        if said != expected:
            raise Violation(f"{what} was answered with {said}; expected: {expected}")
        after = self._world.model.survive()
        changed = (before.queues, before.branches, before.progress) != (after.queues, after.branches, after.progress)
        waits = result if isinstance(result, int) else getattr(result, "lsn", 0)
        if changed and (waits < lsn or lsn == end):
            raise Violation(f"{what} was answered before it was on disk")
        return result

    def _ask_in_pieces(self, what: str, request: Request, xid: Xid, seed: str, answer: Any) -> None:
        world = self._world
        work = Pieces(world.broker, world.server, world.model, world.ledger, seed, self._other(xid), world.record)
        world.broker.transactions.large = world.broker.large_requests.few = 0
        world.broker.engine.requests.turn = 2
        try:
            _, said, expected = work.carry_out(request, xid, answer)
        except BrokerError as error:
            if not world.refused(error):
                raise
            return
        finally:
            world.broker.engine.requests.turn = TURN
        world.note(f"  {what} in pieces: {said}")
        world.ledger.count(f"{what}: {said}")
        world.ledger.count(f"{what} in pieces: {said}")
        if said != expected:
            raise Violation(f"{what} in pieces was answered with {said}; expected: {expected}")

    def _other(self, xid: Xid) -> Callable[[str, random.Random], None]:
        """Return a function that lets another client work while a request about `xid` is carried out."""

        def work(what: str, choose: random.Random) -> None:
            step = Step(what, choose.randrange(1 << 16), choose.randrange(1 << 16), choose.randrange(1 << 16))
            if what == "rollback":
                if choose.random() < 0.2:
                    self._ask(
                        "rollback",
                        lambda: self._world.broker.coordinator.rollback(xid),
                        lambda lsn: self._world.model.rollback(xid, lsn),
                    )
                return
            if what == "get" and any(self._world.queue(name).returning for name in QUEUES):
                return  # protocols wait
            getattr(self, "_" + what)(step, self._world.workers[0], xid)

        return work

    def _begin(self, step: Step, worker: Worker, xid: Xid) -> None:
        who = self._world.workers.index(worker)
        how = ("start", "start", "join", "resume")[step.how // 8 % 4]
        if how == "start" and step.what % 8:
            xid = next((x for x in XIDS if x not in self._world.model.branches), xid)
        elif how == "join":
            xid = self._aim(step, xid, "active")
        suspended = [x for x, b in self._world.model.branches.items() if b.workers.get(who) == "suspended"]
        if suspended and step.what % 8:
            how, xid = "resume", suspended[0]
        start = self._world.broker.demarcations.start
        result = self._ask(
            how,
            lambda: start(worker, xid, join=how == "join", resume=how == "resume", limits=Limits())[0],
            lambda _: self._world.model.start(who, xid, how, self._world.server.now),
            worker,
            xid,
        )
        if result is not None and result.status.name == "OK":
            worker.branch = self._world.broker.branches.find(xid)

    def _end(self, step: Step, worker: Worker, xid: Xid) -> None:
        who = self._world.workers.index(worker)
        at_work = self._world.model.at_work(who)
        if at_work is not None and step.how % 8:
            xid = at_work
        how = ("end", "end", "end", "end", "suspend", "fail")[step.what % 6]
        self._ask(
            how,
            lambda: self._world.broker.demarcations.end(worker, xid, fail=how == "fail", suspend=how == "suspend"),
            lambda _: self._world.model.end(who, xid, how, self._world.server.now),
            worker,
            xid,
        )
        if self._world.model.at_work(who) is None:
            worker.branch = None

    def _work(self, step: Step, worker: Worker, xid: Xid) -> None:
        who = self._world.workers.index(worker)
        at_work = self._world.model.at_work(who)
        branch = worker.branch
        if at_work is None or branch is None:
            return
        known = self._world.model.branches[at_work]
        live = known.state == "active"
        if step.how % 2:
            durable = step.what % 7 > 0
            names = (QUEUES[step.what % 4],) if step.what % 3 else ("a", TRANSIENT, "b")
            for serial in self._bodies(step):
                queues = tuple(self._world.queue(name) for name in names)
                envelope = Envelope("", names[0], durable=durable)
                self._world.broker.transactions.enlist(branch, Publication(envelope, [b"%d" % serial], queues))
                if live:
                    known.publishes.append((serial, names, durable))
            return
        name = QUEUES[step.what % (len(QUEUES) - 1)]  # not MARKED
        entry = self._entry(name)
        if entry is None:
            return
        self._world.clients.entries.pop()
        how = ("accept", "accept", "reject", "requeue")[step.how // 2 % 4]
        work = Settlement(self._world.queue(name).getter, [entry], DISPOSITIONS[how])
        self._world.broker.transactions.enlist(branch, work)
        self._world.model.item(name, int(body_of(entry))).holder = at_work if live else None
        if live:
            known.settles.append((name, int(body_of(entry)), how))

    def _aim(self, step: Step, xid: Xid, *states: str) -> Xid:
        """Choose a branch, mostly one for which the call makes sense."""
        fit = [x for x, b in self._world.model.branches.items() if b.state in states and (b.publishes or b.settles)]
        fit = [x for x in fit if not self._world.model.branches[x].occupied] or fit
        return fit[step.who % len(fit)] if fit and step.how % 8 else xid

    def _prepare(self, step: Step, worker: Worker, xid: Xid) -> None:
        xid = self._aim(step, xid, "active")
        self._ask(
            "prepare",
            (self._world.broker.large_requests.prepare(xid), xid, str(step))
            if step.how & 1
            else lambda: self._world.broker.coordinator.prepare(xid),
            lambda _: self._world.model.prepare(xid),
            worker,
            xid,
        )

    def _commit(self, step: Step, worker: Worker, xid: Xid) -> None:
        one_phase = step.how >> 3 & 3 == 0
        xid = self._aim(step, xid, "active" if one_phase else "prepared")
        self._ask(
            "commit one-phase" if one_phase else "commit",
            (self._world.broker.large_requests.commit(xid, one_phase=one_phase), xid, str(step))
            if step.who & 1
            else lambda: self._world.broker.coordinator.commit(xid, one_phase=one_phase),
            lambda lsn: self._world.model.commit(xid, one_phase=one_phase, seal=lsn),
            worker,
            xid,
        )

    def _rollback(self, step: Step, worker: Worker, xid: Xid) -> None:
        xid = self._aim(step, xid, "active", "prepared")
        self._ask(
            "rollback",
            lambda: self._world.broker.coordinator.rollback(xid),
            lambda lsn: self._world.model.rollback(xid, lsn),
            worker,
            xid,
        )

    def _leave(self, step: Step, worker: Worker, xid: Xid) -> None:
        self._world.broker.demarcations.leave(worker)
        self._world.model.leave(self._world.workers.index(worker))
        worker.branch = None

    def _force(self, step: Step, worker: Worker, xid: Xid) -> None:
        commit = step.how >> 3 & 1 == 0
        xid = self._aim(step, xid, "prepared")
        self._ask(
            "force",
            lambda: self._world.broker.coordinator.force(xid, commit=commit),
            lambda lsn: self._world.model.force(xid, commit=commit, lsn=lsn),
        )

    def _forget(self, step: Step, worker: Worker, xid: Xid) -> None:
        xid = next((x for x, b in self._world.model.branches.items() if b.state in HEURISTIC), xid)
        coordinator, model = self._world.broker.coordinator, self._world.model
        self._ask("forget", lambda: coordinator.forget(xid), lambda _: model.forget(xid), worker, xid)

    def _decide(self, step: Step, worker: Worker, xid: Xid) -> None:
        xid = self._aim(step, xid, "prepared")
        prepared = [
            x.bqual for x, b in self._world.model.branches.items() if x.gtrid == xid.gtrid and b.state == "prepared"
        ]
        winners = [bqual for i, bqual in enumerate(prepared) if step.how >> i & 1]
        if step.how % 16 == 0:
            winners.append(xid.bqual)
        if not prepared and step.how % 8:
            return
        epoch = self._world.model.progress + (step.how // 16) % 3
        decide = self._world.broker.large_requests.decide
        self._ask(
            "decide",
            (decide(xid.gtrid, 1, winners, application="app", epoch=epoch), xid, str(step))
            if step.who & 1
            else lambda: self._world.broker.coordinator.decide(xid.gtrid, 1, winners, application="app", epoch=epoch),
            lambda lsn: self._world.model.decide(xid.gtrid, winners, epoch, lsn),
        )

    def _advance(self, step: Step, worker: Worker, xid: Xid) -> None:
        """Take the next step towards the outcome of a branch that has work, so that many reach the second phase."""
        fit = [x for x, b in self._world.model.branches.items() if b.publishes or b.settles or b.state in HEURISTIC]
        if not fit:
            return
        xid = fit[step.who % len(fit)]
        branch = self._world.model.branches[xid]
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
            self._begin(exact._replace(what=1), self._world.workers[at_work[0]], xid)
        else:
            self._end(exact._replace(what=0), self._world.workers[at_work[0]], xid)

    def _recover(self, step: Step, worker: Worker, xid: Xid) -> None:
        expected = {x for x, b in self._world.model.branches.items() if b.state in ("prepared", *HEURISTIC)}
        if set(self._world.broker.branches.recover()) != expected:
            raise Violation(f"recover returned {self._world.broker.branches.recover()}; expected: {expected}")

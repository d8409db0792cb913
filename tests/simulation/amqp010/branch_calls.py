"""The calls of the world of branches, as commands of AMQP 0-10."""

from __future__ import annotations

from typing import Any, Final, Protocol

from escrowmq.core.branches.xid import Xid
from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.amqp091.properties import Properties
from escrowmq.wire.amqp091.publication import PROTOCOL as AMQP091
from tests.simulation.amqp010 import wire
from tests.simulation.amqp010.branch_worker import CODES, INTERNAL_ERROR, Delivery, Expected, SessionWorker
from tests.simulation.branch_calls import WORKERS, BranchCalls, Worker, World
from tests.simulation.branch_model import HEURISTIC, QUEUES, TRANSIENT
from tests.simulation.ledger import Violation
from tests.simulation.steps import Step

SEVERAL: Final = "several"
"""An exchange to three queues."""
SEVERAL_QUEUES: Final = ("a", TRANSIENT, "b")
_COMMANDS: Final[dict[str, tuple[str, dict[str, bool]]]] = {
    "start": ("dtx.start", {}),
    "join": ("dtx.start", {"join": True}),
    "resume": ("dtx.start", {"resume": True}),
    "end": ("dtx.end", {}),
    "fail": ("dtx.end", {"fail": True}),
    "suspend": ("dtx.end", {"suspend": True}),
    "prepare": ("dtx.prepare", {}),
    "commit": ("dtx.commit", {}),
    "commit one-phase": ("dtx.commit", {"one_phase": True}),
    "rollback": ("dtx.rollback", {}),
    "forget": ("dtx.forget", {}),
}
_STARTING: Final = ("start", "join", "resume")
_ENDING: Final = ("end", "fail", "suspend")


class UnreadableWorld(World, Protocol):
    """The part of the world that calls need."""

    @property
    def unreadable(self) -> bool:
        """Whether the disk cannot be read now, so that requests may be refused."""
        ...


class SessionCalls(BranchCalls):
    """Executes steps over sessions. Operators, and clients outside of branches, call the broker as before."""

    _world: UnreadableWorld

    def __init__(self, world: UnreadableWorld) -> None:
        super().__init__(world)

    def _envelope(self, queue: str, *, durable: bool) -> Envelope:
        """Let other clients publish messages of AMQP 0-9-1, which sessions can be sent."""
        return Envelope("", queue, Properties().encode(), protocol=AMQP091, durable=durable)

    def _worker(self, step: Step) -> Worker:
        """Choose a worker that can send."""
        ready = [i for i in range(WORKERS) if self._session(i).able]
        if not ready:
            return self._world.workers[step.who % WORKERS]
        busy = [i for i in ready if self._world.model.at_work(i) is not None]
        idle = [i for i in ready if i not in busy]
        fit = {"end": busy, "work": busy, "begin": idle}.get(step.kind)
        return self._world.workers[fit[step.who % len(fit)] if fit and step.how % 8 else ready[step.who % len(ready)]]

    def _session(self, number: int) -> SessionWorker:
        worker = self._world.workers[number]
        assert isinstance(worker, SessionWorker)
        return worker

    def _ask(self, what: str, call: Any, answer: Any, worker: Worker | None = None, xid: Xid | None = None) -> Any:
        if not isinstance(worker, SessionWorker) or xid is None:
            return super()._ask(what, call, answer)
        if not worker.able:
            return None
        world, who = self._world, worker.number
        name, flags = _COMMANDS[what]
        before, end = world.model.survive(), world.server.journal.end_lsn
        number = worker.send(name, xid=wire.xid_struct(*xid), **flags)
        worker.flush()
        lsn = world.server.journal.end_lsn
        if worker.fault == INTERNAL_ERROR and world.unreadable:
            world.ledger.count("refused: the disk cannot be read")
            self._left(worker)
            return None
        expected = answer(lsn if lsn > end else 0)
        if what in _ENDING and expected in ("NOT_FOUND", "ILLEGAL_STATE"):  # the codes that clients know from Qpid
            expected = "ILLEGAL_STATE" if worker.associated in (None, xid) else "COMMAND_INVALID"
        after = world.model.survive()
        changed = (before.queues, before.branches, before.progress) != (after.queues, after.branches, after.progress)
        if changed and lsn == end:
            raise Violation(f"{what} has changed what must be durable, and written nothing")
        refused = expected in CODES
        if refused != bool(worker.fault):
            raise Violation(f"{what} ends the session with {worker.fault}; expected: {expected}")
        if what in _ENDING and not refused:
            worker.associated = None
        elif what in _STARTING and expected == "OK":
            worker.associated = xid
        worker.pending[number] = Expected(what, expected, lsn if changed or refused else 0)
        world.note(f"  session {who} sends {what}: {expected}")
        if refused:
            self._left(worker)
        world.server.end_turn()
        return None

    def _left(self, worker: SessionWorker) -> None:
        """The session of a worker has ended: its branches fail, and what it holds returns."""
        world = self._world
        world.model.leave(worker.number)
        for delivery in worker.held:
            world.model.item(delivery.queue, delivery.serial).holder = None
        worker.held.clear()
        self._settle_down()

    def _settle_down(self) -> None:
        """Let the server finish what a session has left behind."""
        for _ in range(1000):
            self._world.server.end_turn()
            queues = (self._world.queue(name) for name in QUEUES)
            if not self._world.broker.engine.turn.unfinished and not any(queue.returning for queue in queues):
                return
        raise Violation("a session's deliveries do not return")

    def _leave(self, step: Step, worker: Worker, xid: Xid) -> None:
        assert isinstance(worker, SessionWorker)
        if not worker.able:
            return
        held = list(worker.held)
        if step.how % 2:
            worker.lose()
            self._world.ledger.count("connections lost")
        else:
            worker.detach()
            self._world.ledger.count("sessions detached")
        worker.held[:] = held
        self._left(worker)

    # -- work

    def _work(self, step: Step, worker: Worker, xid: Xid) -> None:
        assert isinstance(worker, SessionWorker)
        at_work = self._world.model.at_work(worker.number)
        if at_work is None or not worker.able:
            return
        if worker.working is None or worker.working.xid != at_work:
            raise Violation(f"a session works for {worker.working}; expected: {at_work}")
        if step.how % 2:
            self._send(step, worker, at_work)
        elif worker.held and step.how // 2 % 2:
            self._settle_held(step, worker, at_work)
        else:
            self._take(step, worker, at_work)

    def _send(self, step: Step, worker: SessionWorker, at_work: Xid) -> None:
        known = self._world.model.branches[at_work]
        durable = step.what % 7 > 0
        names = (QUEUES[step.what % 4],) if step.what % 3 else SEVERAL_QUEUES
        for serial in self._bodies(step):
            worker.publish("" if len(names) == 1 else SEVERAL, names[0], b"%d" % serial, durable=durable)
            if known.state == "active":
                known.publishes.append((serial, names, durable))
        worker.flush()

    def _take(self, step: Step, worker: SessionWorker, at_work: Xid) -> None:
        """Receive a message, and accept it in the branch, or keep it for later. Deliveries follow answers that wait for
        the disk.
        """
        world = self._world
        if worker.pending:
            return
        name = QUEUES[step.what % (len(QUEUES) - 1)]  # not MARKED
        visible = world.model.visible(name, world.server.journal.synced_lsn)
        found = worker.fetch(name)
        if found is None or not visible:
            if (found is not None or visible) and not world.unreadable:
                raise Violation(f"{name} delivered {found}; visible: {[item.serial for item in visible]}")
            return
        item = visible[0]
        if found.serial != item.serial:
            raise Violation(f"{name} delivered message {found.serial}; expected: {item.serial}")
        if item.seen and not found.redelivered:
            raise Violation(f"message {item.serial} of {name} is not marked as redelivered")
        item.holder, item.seen = "", True
        if step.how // 4 % 4:
            self._settle_held(step, worker, at_work)

    def _settle_held(self, step: Step, worker: SessionWorker, at_work: Xid) -> None:
        """Accept the last message that the session holds, in the branch; or reject or release it, which no branch can
        undo.
        """
        delivery: Delivery = worker.held.pop()
        model, ranges = self._world.model, [(delivery.number, delivery.number)]
        match step.how // 16 % 6:
            case 0:
                worker.send("message.reject", transfers=ranges, code=0)
                model.settle(delivery.queue, delivery.serial, "reject")
                self._world.ledger.count("rejected beside a branch")
            case 1:
                worker.send("message.release", transfers=ranges, set_redelivered=True)
                model.settle(delivery.queue, delivery.serial, "requeue")
                self._world.ledger.count("released beside a branch")
            case _:
                worker.send("message.accept", transfers=ranges)
                branch = model.branches[at_work]
                live = branch.state == "active"
                model.item(delivery.queue, delivery.serial).holder = at_work if live else None
                if live:
                    branch.settles.append((delivery.queue, delivery.serial, "accept"))
        worker.flush()

    def _recover(self, step: Step, worker: Worker, xid: Xid) -> None:
        assert isinstance(worker, SessionWorker)
        if not worker.able:
            return
        states = ("prepared", *HEURISTIC)
        expected = {x for x, b in self._world.model.branches.items() if b.state in states}
        number = worker.send("dtx.recover")
        worker.pending[number] = Expected("recover", expected, self._world.server.journal.end_lsn)
        worker.flush()

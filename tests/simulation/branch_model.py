"""A model of distributed transactions, independent of the broker's code: queues, branches, and effects of crashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from escrowmq.core.branches.xid import Xid

DEAD = "dead"
LATER = "later"
TRANSIENT = "passing"
MARKED = "marked"
QUEUES = ("a", "b", "rejects", TRANSIENT, DEAD, LATER, MARKED)
REMEMBERED_MS = 30 * 60_000
UNREADY = 1 << 60
"""Stands for the LSN of a record until everything in it is applied. Until then its messages are invisible."""
RETURNING = UNREADY + 1
"""The holder of messages that return, at some time before the end of a request in pieces."""
HEURISTIC = {"forced commit": "HEUR_COM", "forced rollback": "HEUR_RB"}


@dataclass(slots=True)
class Item:
    """A message on a queue. It and all messages after it are invisible until the log is synced up to `seal`.

    `failures` counts the failed deliveries of a message that was released or modified, and is None for others.

    `holder` is None for a message that waits in its queue, "" for one delivered to a client, the xid of the branch that
    has settled it, or an LSN: the message waits in its queue again as soon as the log is synced up to there.
    """

    serial: int
    durable: bool
    seal: int = 0
    holder: str | Xid | int | None = None
    seen: bool = False
    failures: int | None = None
    annotations: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Branch:
    """A branch. `workers` contains the association of each worker: "active", "suspended" or "ended". `letters` are the
    queues of its dead letters, which its preparation has determined.
    """

    state: str
    deadline: int
    workers: dict[int, str] = field(default_factory=dict)
    publishes: list[tuple[int, tuple[str, ...], bool]] = field(default_factory=list)
    settles: list[tuple[str, int, str]] = field(default_factory=list)
    letters: tuple[str, ...] | None = None

    @property
    def occupied(self) -> bool:
        return any(state != "ended" for state in self.workers.values())


class Model:
    """The required state. Methods return the answer that the broker must give: a status, or the name of a condition."""

    def __init__(self) -> None:
        self.queues: dict[str, list[Item]] = {name: [] for name in QUEUES}
        self.branches: dict[Xid, Branch] = {}
        self.progress = -1
        self.letters: tuple[str, ...] = (DEAD,)
        """The queues that are bound to the exchange for dead letters."""

    # -- messages

    def add(self, queue: str, serial: int, *, durable: bool, seal: int = 0) -> None:
        self.queues[queue].append(Item(serial, durable and queue != TRANSIENT, seal))

    def visible(self, queue: str, synced: int) -> list[Item]:
        """Return the messages that a client can receive, in order."""
        found = []
        for item in self.queues[queue]:
            if item.seal > synced:
                break
            if item.holder is None or (isinstance(item.holder, int) and item.holder <= synced):
                found.append(item)
        return found

    def item(self, queue: str, serial: int) -> Item:
        return next(item for item in self.queues[queue] if item.serial == serial)

    def settle(self, queue: str, serial: int, how: str, seal: int = 0, letters: tuple[str, ...] | None = None) -> None:
        """Settle a message: accept, reject or requeue it. `letters` as of `Branch`."""
        item = self.item(queue, serial)
        if how == "requeue":
            item.holder = None
            return
        self.queues[queue].remove(item)
        if how == "reject" and queue == "rejects":
            for name in self.letters if letters is None else letters:
                self.add(name, serial, durable=item.durable, seal=seal)

    def mark(self, serial: int, failures: int, note: dict[str, bytes], *, failed: bool) -> None:
        """Mark a message on the queue `MARKED`. `failures` counts, unless it is marked already, all its returns."""
        item = self.item(MARKED, serial)
        item.failures = (failures if item.failures is None else item.failures) + failed
        item.annotations = {**item.annotations, **note}

    def ready(self, unready: int, lsn: int) -> None:
        """Replace the LSN `unready` by that of the record whose messages are all applied now."""
        for items in self.queues.values():
            for item in items:
                if item.seal == unready:
                    item.seal = lsn
                if item.holder == unready:
                    item.holder = lsn

    def returned(self) -> None:
        """Note that the messages that were returning wait in their queues again."""
        for items in self.queues.values():
            for item in items:
                if item.holder == RETURNING:
                    item.holder = None

    @property
    def returning(self) -> bool:
        """Whether messages are returning."""
        return any(item.holder == RETURNING for items in self.queues.values() for item in items)

    # -- branches

    def at_work(self, worker: int) -> Xid | None:
        return next((xid for xid, b in self.branches.items() if b.workers.get(worker) == "active"), None)

    def start(self, worker: int, xid: Xid, how: str, now: int) -> str:
        branch, busy = self.branches.get(xid), self.at_work(worker)
        if branch is None:
            if how == "join":
                return "NOT_FOUND"
            if how == "resume" or busy is not None:
                return "COMMAND_INVALID"
            self.branches[xid] = Branch("active", now + 60_000, {worker: "active"})
            return "OK"
        if how == "start":
            return "NOT_ALLOWED"
        if busy not in (None, xid) or branch.state not in ("active", "rollback only", "timed out"):
            return "COMMAND_INVALID"
        if branch.state == "timed out":
            return "RB_TIMEOUT" if how == "join" else "COMMAND_INVALID"
        if busy == xid:
            return "COMMAND_INVALID"
        if how == "resume" and branch.workers.get(worker) != "suspended":
            return "COMMAND_INVALID"
        branch.workers[worker] = "active"
        return "OK"

    def end(self, worker: int, xid: Xid, how: str, now: int) -> str:
        branch = self.branches.get(xid)
        if branch is None or branch.workers.get(worker, "ended") == "ended":
            return "NOT_FOUND"
        if branch.workers[worker] == "suspended":
            return "ILLEGAL_STATE"
        branch.workers[worker] = "suspended" if how == "suspend" else "ended"
        if how == "fail":
            self._fail(branch)
        return {"rollback only": "RB_ROLLBACK", "timed out": "RB_TIMEOUT"}.get(branch.state, "OK")

    def leave(self, worker: int) -> None:
        for branch in self.branches.values():
            if branch.workers.pop(worker, "ended") != "ended":
                self._fail(branch)

    def _fail(self, branch: Branch) -> None:
        if branch.state == "active":
            branch.state = "rollback only"
            self._undo(branch)

    def _undo(self, branch: Branch, after: int | None = None) -> None:
        for queue, serial, _ in branch.settles:
            self.item(queue, serial).holder = after
        branch.publishes, branch.settles = [], []

    def pass_time(self, now: int) -> None:
        for xid, branch in list(self.branches.items()):
            if branch.state == "timed out" and branch.deadline <= now:
                del self.branches[xid]
            elif branch.state in ("active", "rollback only") and branch.deadline <= now:
                self._undo(branch)
                branch.state, branch.deadline = "timed out", now + REMEMBERED_MS

    def asked(self, xid: Xid) -> str:
        """Return the condition that forbids completing a branch; empty if it can be completed."""
        branch = self.branches.get(xid)
        if branch is None:
            return "NOT_FOUND"
        return "ILLEGAL_STATE" if branch.occupied and branch.state != "timed out" else ""

    def prepare(self, xid: Xid) -> str:
        refused = self.asked(xid)
        if refused:
            return refused
        branch = self.branches[xid]
        if branch.state == "prepared":
            return "OK"
        if branch.state == "active" and (branch.publishes or branch.settles):
            branch.state = "prepared"
            branch.letters = self.letters
            return "OK"
        if branch.state in HEURISTIC:
            return "ILLEGAL_STATE"
        del self.branches[xid]
        return {"active": "RDONLY", "rollback only": "RB_ROLLBACK", "timed out": "RB_TIMEOUT"}[branch.state]

    def commit(self, xid: Xid, *, one_phase: bool, seal: int) -> str:
        refused = self.asked(xid)
        if refused:
            return refused
        branch = self.branches[xid]
        if branch.state in ("rollback only", "timed out"):
            del self.branches[xid]
            return "RB_ROLLBACK" if branch.state == "rollback only" else "RB_TIMEOUT"
        if branch.state in HEURISTIC and not one_phase:
            return HEURISTIC[branch.state]
        if branch.state != ("active" if one_phase else "prepared"):
            return "ILLEGAL_STATE"
        del self.branches[xid]
        self._apply(branch, seal)
        return "OK"

    def _apply(self, branch: Branch, seal: int) -> None:
        for serial, queues, durable in branch.publishes:
            for queue in queues:
                self.add(queue, serial, durable=durable, seal=seal)
        for queue, serial, how in branch.settles:
            self.settle(queue, serial, how, seal, branch.letters)

    def rollback(self, xid: Xid, lsn: int) -> str:
        refused = self.asked(xid)
        if refused:
            return refused
        branch = self.branches[xid]
        if branch.state in HEURISTIC:
            return HEURISTIC[branch.state]
        del self.branches[xid]
        if branch.state == "timed out":
            return "RB_TIMEOUT"
        self._undo(branch, lsn if branch.state == "prepared" else None)
        return "OK"

    def force(self, xid: Xid, *, commit: bool, lsn: int) -> str:
        branch = self.branches.get(xid)
        if branch is None:
            return "NOT_FOUND"
        if branch.state != "prepared":
            return "ILLEGAL_STATE"
        if commit:
            self._apply(branch, lsn)
            branch.publishes, branch.settles = [], []
        else:
            self._undo(branch, lsn)
        branch.state = "forced commit" if commit else "forced rollback"
        return HEURISTIC[branch.state]

    def forget(self, xid: Xid) -> str:
        branch = self.branches.get(xid)
        if branch is None:
            return "NOT_FOUND"
        if branch.state not in HEURISTIC:
            return "ILLEGAL_STATE"
        del self.branches[xid]
        return ""

    def decide(self, gtrid: bytes, winners: Sequence[bytes], epoch: int, lsn: int) -> str:
        chosen: list[Xid] = []
        if epoch > self.progress:
            for bqual in dict.fromkeys(winners):
                branch = self.branches.get(Xid(1, gtrid, bqual))
                if branch is None:
                    return "NOT_FOUND"
                if branch.state != "prepared":
                    return "ILLEGAL_STATE"
                chosen.append(Xid(1, gtrid, bqual))
        for xid in chosen:
            self._apply(self.branches.pop(xid), lsn)
        for xid, branch in list(self.branches.items()):
            if xid.gtrid != gtrid or branch.state in HEURISTIC:
                continue
            if branch.occupied:
                self._fail(branch)
                continue
            at_once = RETURNING if lsn == UNREADY else None
            self._undo(branch, lsn if branch.state == "prepared" else at_once)
            del self.branches[xid]
        self.progress = max(self.progress, epoch)
        return "OK"

    # -- a crash

    def survive(self) -> Model:
        """Return the state that a restart must find if the log contains exactly the operations so far."""
        left = Model()
        left.progress = self.progress
        left.letters = self.letters
        for xid, branch in self.branches.items():
            if branch.state in ("prepared", *HEURISTIC):
                left.branches[xid] = Branch(branch.state, 0, letters=branch.letters)
                for serial, queues, durable in branch.publishes:
                    kept = tuple(queue for queue in queues if queue != TRANSIENT)
                    if durable and kept:
                        left.branches[xid].publishes.append((serial, kept, True))
        for name, items in self.queues.items():
            for item in items:
                if not item.durable:
                    continue
                locked = isinstance(item.holder, Xid) and item.holder in left.branches
                holder = item.holder if locked else None
                found = Item(item.serial, True, 0, holder, locked, item.failures, item.annotations)
                left.queues[name].append(found)
                if locked and isinstance(item.holder, Xid):
                    settles = self.branches[item.holder].settles
                    how = next(how for queue, serial, how in settles if (queue, serial) == (name, item.serial))
                    left.branches[item.holder].settles.append((name, item.serial, how))
        for xid, branch in left.branches.items():  # in the order in which they were settled
            order = [(queue, serial) for queue, serial, _ in self.branches[xid].settles]
            branch.settles.sort(key=lambda settle: order.index(settle[:2]))
        return left

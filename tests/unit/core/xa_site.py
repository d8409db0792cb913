"""A site with distributed transactions, for tests: workers, and branches in every state."""

from __future__ import annotations

from typing import Any

from escrowmq.core.branches.branch import Limits, Settlement, State
from escrowmq.core.branches.coordinator import Coordinator
from escrowmq.core.branches.demarcation import Demarcations
from escrowmq.core.branches.registry import Registry
from escrowmq.core.branches.xa import XaStatus
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.branches.xid import Xid
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from tests.unit.core.site import Site

X = Xid(1, b"global", b"one")
Y = Xid(1, b"global", b"two")
OK = XaStatus.OK


class Channel:
    """A worker that remembers what it is told."""

    def __init__(self) -> None:
        self.expired: list[XaBranch] = []

    def branch_expired(self, branch: XaBranch) -> None:
        self.expired.append(branch)


class XaSite(Site):
    """`worker` works for branches; queues `q` and `to` are there."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.worker = Channel()
        for name in ("q", "to"):
            if name not in self.vhost.queues:
                self.queue(name)

    def restart(self, **options: Any) -> XaSite:
        return XaSite(self.storage, now=self.broker.engine.now, **options)

    @property
    def coordinator(self) -> Coordinator:
        return self.broker.coordinator

    @property
    def branches(self) -> Registry:
        return self.broker.branches

    @property
    def demarcations(self) -> Demarcations:
        return self.broker.demarcations

    @property
    def q(self) -> Queue:
        return self.vhost.queue("q")

    def start(self, xid: Xid = X, worker: Channel | None = None, **flags: Any) -> XaBranch:
        limits = flags.pop("limits", Limits())
        result, branch = self.demarcations.start(worker or self.worker, xid, limits=limits, **flags)
        assert result.status is OK
        assert branch is not None
        return branch

    def end(self, xid: Xid = X, worker: Channel | None = None, **flags: Any) -> XaStatus:
        return self.demarcations.end(worker or self.worker, xid, **flags).status

    def settle(self, branch: XaBranch, count: int = 1, disposition: Disposition = Disposition.ACCEPTED) -> list[Entry]:
        """Settle the next messages of `q` in the branch, as a client that gets them one by one."""
        entries = [self.broker.engine.get(self.q, auto_settle=False) for _ in range(count)]
        found = [entry for entry in entries if entry is not None]
        self.broker.transactions.enlist(branch, Settlement(self.q.getter, found, disposition))
        return found

    def worked(
        self, xid: Xid = X, *, settle: int = 1, publish: tuple[bytes, ...] = (b"new",), **options: Any
    ) -> XaBranch:
        """Return a branch that has settled messages of `q` and published to `to`, ended."""
        if not self.q.ready and settle:
            self.publish("q", *[b"old %d" % i for i in range(settle + 1)])
            self.turn()
        branch = self.start(xid)
        if settle:
            self.settle(branch, settle, **options)
        if publish:
            self.broker.transactions.enlist(branch, self.publication("to", *publish))
        assert self.end(xid) is OK
        return branch

    def prepared(self, xid: Xid = X, **work: Any) -> XaBranch:
        branch = self.worked(xid, **work)
        result = self.coordinator.prepare(xid)
        assert result.status is OK
        assert result.lsn == self.journal.end_lsn
        self.turn()
        return branch

    def in_state(self, state: str) -> XaBranch:
        """Return a branch X: active, suspended, ended, rollback only, prepared, forced commit, forced rollback, timed
        out (with or without `associated`).
        """
        if state in ("active", "suspended", "timed out, associated"):
            branch = self.start()
            self.broker.transactions.enlist(branch, self.publication("to", b"new"))
            if state == "suspended":
                assert self.end(suspend=True) is OK
            if state == "timed out, associated":
                self.after(60_001)
            return branch
        if state == "rollback only":
            branch = self.start()
            assert self.end(fail=True) is XaStatus.RB_ROLLBACK
            return branch
        if state in ("ended", "timed out"):
            branch = self.worked(settle=0)
            if state == "timed out":
                self.after(60_001)
                assert branch.state is State.TIMED_OUT
            return branch
        branch = self.prepared(settle=0)
        if state != "prepared":
            self.coordinator.force(X, commit=state == "forced commit")
            self.turn()
        return branch

    def waiting(self) -> tuple[list[bytes], list[bytes]]:
        """What is ready in `q` and in `to`."""
        return self.contents("q"), self.contents("to")

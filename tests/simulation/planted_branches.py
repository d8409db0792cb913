"""Planted bugs in distributed transactions that the simulator must find. Some are known from other brokers."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final

from escrowmq.core.branches import preparation
from escrowmq.core.branches.branch import Settlement
from escrowmq.core.branches.coordinator import Coordinator
from escrowmq.core.branches.decision import Decision
from escrowmq.core.branches.large_requests import LargeRequests
from escrowmq.core.branches.preparation import Preparation, discard
from escrowmq.core.branches.recovery import FoundBranches
from escrowmq.core.branches.xa import XaResult
from escrowmq.core.branches.xa_branch import XaBranch
from escrowmq.core.branches.xid import Xid
from escrowmq.core.engine import Engine
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.marks import Modification
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.discipline import Pager
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.sealed import SealedRuns
from escrowmq.core.records.kinds import Kind
from escrowmq.core.recovery.replay import Recovery
from escrowmq.journal.errors import JournalFailed
from tests.simulation import planted_faults

_apply = Preparation.apply
_finish = FoundBranches.finish
_operations = Decision.operations
_take_effect = Decision.take_effect
_force = Coordinator.force
_make_ready = SealedRuns.make_ready


def answered_before_sync(self: Preparation) -> int:
    _apply(self)
    return 0


def refusal_ignored(self: Preparation) -> int:
    """Answer although the journal has refused the record."""
    try:
        return _apply(self)
    except JournalFailed:
        return 0


def committed_by_recovery(self: FoundBranches) -> None:
    """Commit prepared branches during recovery."""
    _finish(self)
    for xid in self._broker.branches.recover():
        if self._broker.branches.find(xid).runs:
            self._broker.coordinator.commit(xid, one_phase=False)


def forgotten_by_recovery(self: FoundBranches) -> None:
    """Forget prepared branches and their locks during recovery."""
    self._found.clear()


def seen_before_its_rollback(self: Coordinator, branch: XaBranch, lsn: int) -> None:
    """Return the messages of a rolled-back branch before the rollback is on disk."""
    discard(self._engine, branch)
    branch.undo()
    self._registry.let_go(branch)


def visible_at_once(self: Decision, payloads: Any, end: int) -> None:
    _take_effect(self, payloads, 0)


def lost_settlements(self: Decision, next_positions: Any, settled: Any) -> Any:
    """Omit settlements from the record of a commit."""
    return [each for each in _operations(self, next_positions, settled) if each[0] != Kind.SETTLE]


def forced_and_forgotten(self: Coordinator, xid: Xid, *, commit: bool) -> XaResult:
    """Forget a branch as soon as an operator has decided it."""
    result = _force(self, xid, commit=commit)
    self._registry.forget(self._registry.find(xid))
    return result


def marks_not_replayed(self: Recovery, lsn: int, payload: bytes) -> None:
    """Ignore marks during recovery."""


def released_as_failed(self: Engine, consumer: Consumer, entries: list[Entry]) -> None:
    """Count released deliveries as failed ones."""
    self.modify(consumer, entries, Modification(failed=True))


def ready_one_by_one(self: SealedRuns, queue: Queue, pager: Pager) -> Iterator[int]:
    """Let the messages of a large commit become visible in one queue after the other."""
    yield from _make_ready(self, queue, pager)
    self.ready = True


def changes_ignored(
    self: LargeRequests, pieces: Iterator[None], branch: XaBranch
) -> Generator[bool | None, None, bool]:
    """Write what was gathered, although the branch has changed between the pieces."""
    for _ in pieces:
        yield None
    return True


def routed_at_the_commit(engine: Any, settlement: Settlement) -> None:
    """Leave it to the commit where dead letters go, so that its record grows with bindings that others make."""


PLANTED: Final[dict[str, dict[tuple[Any, str], Any]]] = {
    "prepare answered before the sync": {(Preparation, "apply"): answered_before_sync},
    "prepared branches committed by recovery": {(FoundBranches, "finish"): committed_by_recovery},
    "prepared branches forgotten by recovery": {(FoundBranches, "begin"): forgotten_by_recovery},
    "messages returned before the rollback is on disk": {(Coordinator, "_return_later"): seen_before_its_rollback},
    "visible before the commit is on disk": {(Decision, "take_effect"): visible_at_once},
    "settlements missing in the commit's record": {(Decision, "operations"): lost_settlements},
    "forced and forgotten": {(Coordinator, "force"): forced_and_forgotten},
    "prepared although the append was refused": {(Preparation, "apply"): refusal_ignored},
    "marks forgotten by recovery": {(Recovery, "_marked"): marks_not_replayed},
    "half of a large commit visible": {(SealedRuns, "make_ready"): ready_one_by_one},
    "changes between pieces ignored": {(LargeRequests, "_gathered"): changes_ignored},
    "released deliveries counted as failed": {(Engine, "release"): released_as_failed},
    "a prepared branch that cannot commit": {(preparation, "routes_of"): routed_at_the_commit},
    **planted_faults.OF_DISKS,
    **planted_faults.OF_CLOCKS,
}
"""The patches of each bug, by class or module and attribute."""

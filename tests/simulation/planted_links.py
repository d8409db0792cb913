"""Planted bugs in exactly-once links that the simulator must find."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from escrowmq.core.branches.decision import Decision
from escrowmq.core.budget import Budget
from escrowmq.core.engine import Receipt
from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues import selection
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.delayed import DelayedQueue, Delays
from escrowmq.core.queues.due_buckets import DueBuckets
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.termini.acquisitions import Acquisitions
from escrowmq.core.termini.arrivals import Arrival, Arrivals, fingerprints_of
from escrowmq.core.termini.enlisted_posts import EnlistedPosts
from escrowmq.core.termini.loan import AcquiredNumbers, Borrower, Loan
from escrowmq.core.termini.locks import LockedPiece
from escrowmq.core.termini.posting import ArrivalWork, FreshArrivals
from escrowmq.core.termini.recovery import FoundTermini
from escrowmq.core.termini.registry import Termini
from escrowmq.core.turn import Turn
from escrowmq.journal.errors import JournalFailed
from tests.simulation import planted_faults
from tests.simulation.link_transactions import ProducerConnection

_acquire = Loan.acquire
_post = Loan.post
_load = Acquisitions._load
_apply = Decision.apply
_apply_fresh = FreshArrivals.apply
_record_forgotten = Termini._record_forgotten
_reconcile = Arrivals.reconcile
_check_void = Loan.void
_end_turn = Turn.end
_take_due = DueBuckets.take_due
_prepare = DueBuckets.prepare


def transfer_before_its_acquisition_is_synced(self: Loan, consumer: Consumer, entries: list[Entry]) -> AcquiredNumbers:
    return AcquiredNumbers(_acquire(self, consumer, entries).first, 0)


def visible_before_its_sync(self: Decision, *, sealed: bool = False) -> int:
    return _apply(self)


def arrived_outside_the_record(self: FreshArrivals) -> list[tuple[Kind, Sequence[bytes]]]:
    """Leave the tags out of the record that enqueues the messages. They follow at the end of the turn."""
    return []


def arrived_later(self: FreshArrivals, end: int, synced: int) -> None:
    _apply_fresh(self, end, synced)
    loan = self._terminus.loan
    assert loan is not None
    work = ArrivalWork(self._terminus, self._tags, fingerprints_of(self._contents))
    _LATER.setdefault(id(loan._termini), []).extend(work.operations())


_LATER: Final[dict[int, list[tuple[Kind, Sequence[bytes]]]]] = {}


def record_at_the_end_of_the_turn(self: Termini) -> None:
    for kind, parts in _LATER.pop(id(self), ()):
        self.engine.log.append(kind, *parts)
    _record_forgotten(self)


def claimed_without_comparing(
    self: Arrivals, remote: Mapping[bytes, bool], *, complete: bool
) -> tuple[dict[bytes, Arrival | None], list[dict[bytes, Any]]]:
    """Claim every tag that the log knows, also if its FORGOTTEN was lost."""
    return _reconcile(self, dict.fromkeys(remote, True), complete=complete)


def old_link_keeps_its_consumers(self: Loan) -> Borrower | None:
    link, self.link = self.link, None
    return link


def locks_forgotten_by_recovery(self: FoundTermini, *arguments: Any) -> None:
    """Restore no locks, so that unsettled messages are ready after a crash."""


def attach_answered_before_settlements_are_synced(self: Termini) -> int:
    self.engine.settlements.flush()
    return 0


def due_message_published_by_itself(self: Delays, queue: DelayedQueue, entries: list[Entry]) -> None:
    """Publish what is due by a record of its own, and settle it where it waited by another one."""
    engine = self._engine
    for entry in entries:
        envelope = entry.run.envelope
        engine.publish(envelope, [entry.content], self._route(engine.vhost_of(queue), envelope, entry.content))
    decision = Decision(engine)
    decision.remove(queue, entries, Outcome.DUE)
    _LATE.setdefault(id(engine), []).append(decision)


def settled_a_turn_later(self: Turn) -> None:
    late = _LATE.pop(id(self._host), ())
    _end_turn(self)
    for decision in late:
        decision.apply()


_LATE: Final[dict[int, list[Decision]]] = {}


def taken_early(self: DueBuckets, now: int, most: int, admits: Callable[[Entry], bool]) -> list[Entry]:
    return _take_due(self, now + 100, most, admits)


def prepared_early(self: DueBuckets, now: int, budget: Budget) -> bool:
    return _prepare(self, now + 100, budget)


def everything_is_wanted(queue: Queue, host: Any, consumer: Consumer) -> Callable[[Entry], bool]:
    return lambda _entry: True


def posts_not_named_in_the_map(self: Arrivals, tags: Sequence[bytes], posts: EnlistedPosts) -> None:
    """Let a sender that resumes within a transaction not learn of its posts."""


def posts_stay(self: EnlistedPosts) -> None:
    """Do nothing: the terminus does not have the posts."""


def transaction_continues_after_a_theft(self: ProducerConnection, text: str) -> None:
    """Let a commit on the old connection publish messages that the client sends again on the new one."""


def accepted_although_refused(self: Loan, *arguments: Any) -> Receipt:
    """Accept a message whose record the journal has refused."""
    try:
        return _post(self, *arguments)
    except JournalFailed:
        return Receipt()


def empty_if_it_cannot_be_read(self: Acquisitions, piece: LockedPiece) -> list[Entry]:
    """Forget locked deliveries that cannot be read."""
    try:
        return _load(self, piece)
    except LogUnreadable:
        return []


PLANTED: Final[dict[str, dict[tuple[Any, str], Any]]] = {
    "transfer before its acquisition is synced": {(Loan, "acquire"): transfer_before_its_acquisition_is_synced},
    "post visible before its sync": {(Decision, "apply"): visible_before_its_sync},
    "arrived outside the record": {
        (FreshArrivals, "operations"): arrived_outside_the_record,
        (FreshArrivals, "apply"): arrived_later,
        (Termini, "_record_forgotten"): record_at_the_end_of_the_turn,
    },
    "forgotten lost and the tag claimed": {(Arrivals, "reconcile"): claimed_without_comparing},
    "old link delivers after a theft": {(Loan, "void"): old_link_keeps_its_consumers},
    "locks forgotten by recovery": {(FoundTermini, "lock"): locks_forgotten_by_recovery},
    "settlement answered before its sync": {(Termini, "record"): attach_answered_before_settlements_are_synced},
    "delayed message sent on by two records": {
        (Delays, "send_on"): due_message_published_by_itself,
        (Turn, "end"): settled_a_turn_later,
    },
    "delayed message sent on too early": {
        (DueBuckets, "take_due"): taken_early,
        (DueBuckets, "prepare"): prepared_early,
    },
    "posts not named in the map": {
        (Arrivals, "enlist"): posts_not_named_in_the_map,
        (EnlistedPosts, "leave"): posts_stay,
    },
    "transaction continues after a theft": {(ProducerConnection, "give_up"): transaction_continues_after_a_theft},
    "selector ignored": {(selection, "wanted"): everything_is_wanted},
    "a refused append of a post ignored": {(Loan, "post"): accepted_although_refused},
    "what cannot be read is settled": {(Acquisitions, "_load"): empty_if_it_cannot_be_read},
    **planted_faults.OF_ANY_DISK,
    **planted_faults.OF_CLOCKS,
}
"""The patches of each bug, by class and attribute."""
OF_TRANSACTIONS: Final = frozenset(("posts not named in the map", "transaction continues after a theft"))
"""The bugs that only transactions of producers show."""
OF_FAILING_DISKS: Final = frozenset(("a refused append of a post ignored", "what cannot be read is settled"))
"""The bugs that a disk shows which often fails."""

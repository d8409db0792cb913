"""Planted bugs in half messages that the simulator must find. Some are known from other brokers."""

from __future__ import annotations

from typing import Any, Final

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.half import deciding
from escrowmq.core.half.changes import Deciding
from escrowmq.core.half.checks import Checking
from escrowmq.core.half.deciding import HalfDecisions, HalfVerdict
from escrowmq.core.half.ledger import HalfLedger
from escrowmq.core.half.message import HalfMessage
from escrowmq.core.half.queue import HalfQueue
from escrowmq.core.half.recovery import FoundHalf
from escrowmq.core.half.registry import HalfMessages
from escrowmq.core.half.state import HalfInput, HalfState, after
from escrowmq.core.half.storing import Stored
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.journal.errors import JournalFailed
from tests.simulation import planted_faults

_decide = HalfMessages._decide
_ask = Checking._ask
_store = HalfMessages.store
_take = HalfDecisions._take
_entry = HalfQueue.entry


def answered_before_sync(self: HalfMessages, vhost: str, number: int, given: HalfInput, message_id: str) -> int:
    _decide(self, vhost, number, given, message_id)
    return 0


def stored_before_sync(self: HalfMessages, *arguments: Any, **options: Any) -> Stored:
    return _store(self, *arguments, **options)._replace(lsn=0)


def counted_though_nobody_got_it(self: Checking, half: HalfMessage) -> bool:
    _ask(self, half)
    return True


def not_counted(self: Checking, half: HalfMessage) -> bool:
    found = _ask(self, half)
    half.checks -= 1
    return found


def late_commit_delivered(self: HalfMessages, vhost: str, number: int, given: HalfInput, message_id: str) -> int:
    """Deliver a message that was rolled back when its producer commits it late."""
    try:
        return _decide(self, vhost, number, given, message_id)
    except BrokerError as error:
        half = self.at(vhost, number)
        late = half is not None and half.state is HalfState.ROLLED_BACK and given is HalfInput.COMMIT
        if error.condition is not Condition.ILLEGAL_STATE or not late or half is None or half.queue is None:
            raise
        envelope = Envelope("", "q", durable=True)
        return self._engine.publish(envelope, [half.message_id.encode()], [half.queue]).lsn


def committed_twice(self: HalfMessages, vhost: str, number: int, given: HalfInput, message_id: str) -> int:
    """Deliver the message again when its producer repeats the commit."""
    half = self.at(vhost, number)
    if half is not None and half.state is HalfState.COMMITTED and given is HalfInput.COMMIT and half.queue is not None:
        self._engine.publish(Envelope("", "q", durable=True), [half.message_id.encode()], [half.queue])
    return _decide(self, vhost, number, given, message_id)


def decisions_that_arrived_together_forgotten(
    self: HalfDecisions, queue: HalfQueue, verdict: HalfVerdict, groups: Any, states: dict[int, HalfState]
) -> None:
    """Take a decision as if none for the same message had arrived with it."""
    states.clear()
    _take(self, queue, verdict, groups, states)


def parked_messages_decided(state: HalfState, given: HalfInput, title: str) -> HalfState:
    if state is HalfState.PARKED and given is HalfInput.COMMIT:
        return HalfState.COMMITTED
    return after(state, given, title)


def outcomes_forgotten_by_recovery(self: FoundHalf, lsn: int, payload: Any) -> None:
    """Leave decided half messages undecided."""


def parking_forgotten_by_recovery(self: FoundHalf, lsn: int, payload: Any) -> None:
    """Check parked half messages again."""


def nothing_recorded(self: Deciding) -> list[Any]:
    return []


def sent_again_is_new(self: HalfLedger, topic: str, ident: str) -> int:
    return 0


def everything_is_synced(self: HalfQueue, number: int) -> bool:
    return True


def dropped_if_it_cannot_be_read(self: HalfQueue, number: int, *, whole: bool) -> Entry | None:
    """Commit a half message that cannot be read without its content."""
    try:
        return _entry(self, number, whole=whole)
    except LogUnreadable:
        return _entry(self, number, whole=False)


def stored_although_refused(self: HalfMessages, *arguments: Any, **options: Any) -> Stored:
    """Acknowledge a half message whose record the journal has refused."""
    try:
        return _store(self, *arguments, **options)
    except JournalFailed:
        return Stored(1, 0, repeated=False)


PLANTED: Final[dict[str, dict[tuple[Any, str], Any]]] = {
    "decision answered before its sync": {(HalfMessages, "_decide"): answered_before_sync},
    "half message acknowledged before its sync": {(HalfMessages, "store"): stored_before_sync},
    "check counted though nobody got it": {(Checking, "_ask"): counted_though_nobody_got_it},
    "check not counted": {(Checking, "_ask"): not_counted},
    "late commit after a rollback delivered": {(HalfMessages, "_decide"): late_commit_delivered},
    "repeated commit delivered again": {(HalfMessages, "_decide"): committed_twice},
    "contrary decisions that arrive together both taken": {
        (HalfDecisions, "_take"): decisions_that_arrived_together_forgotten
    },
    "late commit of a parked message accepted": {(deciding, "after"): parked_messages_decided},
    "outcomes forgotten by recovery": {(FoundHalf, "decided"): outcomes_forgotten_by_recovery},
    "parking forgotten by recovery": {(FoundHalf, "parked"): parking_forgotten_by_recovery},
    "decision outside the record": {(Deciding, "operations"): nothing_recorded},
    "message sent again stored twice": {(HalfLedger, "number"): sent_again_is_new},
    "checked before the half message is on disk": {(HalfQueue, "synced"): everything_is_synced},
    "a half message that cannot be read is committed": {(HalfQueue, "entry"): dropped_if_it_cannot_be_read},
    "a refused append of a half message ignored": {(HalfMessages, "store"): stored_although_refused},
    **planted_faults.OF_ANY_DISK,
    **planted_faults.OF_CLOCKS,
}
"""The patches of each bug, by class or module and attribute."""

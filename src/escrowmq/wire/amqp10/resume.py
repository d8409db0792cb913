"""Resuming deliveries: the table of section 2.6.13 of the specification, as data (SET-11).

When a link resumes, each end tells the other which deliveries it has not settled, and their states. The states of the
sender and of the receiver select a row of the table, which says what the sender does, and what that makes the receiver
do. The two directions of the broker use the same rows: it is the sender to a consumer, the receiver from a producer.

A map is incomplete if it did not fit into a frame. An absence from it proves nothing, so nothing is done about a
delivery that only the other end has, until a later attach with a complete map.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from escrowmq.wire.amqp10.codec.states import Declared, DeliveryState, Received, TransactionalState

UnsettledMap: TypeAlias = Mapping[bytes, DeliveryState | None]


class Knowledge(Enum):
    """What one end knows of a delivery."""

    ABSENT = auto()
    """Nothing: it is settled there, or never arrived."""
    NULL = auto()
    """It exists, without a state."""
    RECEIVED = auto()
    """A part of it: the sender has everything from a point on, the receiver everything before a point."""
    TERMINAL = auto()
    """Its outcome."""


class SenderAction(Enum):
    """What the sender does with a delivery."""

    RESEND = auto()
    """Send the message as a new delivery."""
    CONTINUE = auto()
    """Resume, with the message from a point that the receiver has reached, or from an earlier one."""
    WHOLE = auto()
    """Resume, with the whole message."""
    ADOPT = auto()
    """Resume without the message, with the receiver's outcome, settled."""
    RESEND_OR_SETTLE = auto()
    """Send the message as a new delivery if all of it is still there; otherwise settle it, and report its loss."""
    ABORT_AND_RESEND = auto()
    """Resume and abort; then send the message as a new delivery."""
    SETTLE = auto()
    """Settle it without a transfer."""
    ABORT = auto()
    """Resume and abort."""
    AGREE = auto()
    """Resume without the message, with the outcome that both ends know, settled."""
    INSIST = auto()
    """Resume without the message, with the sender's outcome, unsettled. The receiver applies it and settles."""
    WAIT = auto()
    """Nothing, until a later attach: the receiver's map was incomplete."""


class ReceiverAction(Enum):
    """What the receiver does with the transfer that follows, or without one."""

    TAKE = auto()
    """Take the message, which is new to it."""
    APPEND = auto()
    """Append the part that it does not have."""
    FORGET = auto()
    """Forget the delivery: it is settled, or was aborted."""
    FORGET_AND_TAKE = auto()
    """Forget the part that it has; then take the message as a new one."""
    APPLY = auto()
    """Apply the sender's outcome, and settle."""
    NOTHING = auto()


class Same(Enum):
    """How the two states compare, where that selects the row."""

    ANY = auto()
    YES = auto()
    """The same outcome; or the sender still has everything that the receiver lacks."""
    NO = auto()


class ResumeRow(NamedTuple):
    """A row of the table, with the number that the specification gives it."""

    number: int
    sender: Knowledge
    receiver: Knowledge
    same: Same
    action: SenderAction
    answer: ReceiverAction


_ABSENT, _NULL, _RECEIVED, _TERMINAL = Knowledge

ROWS: Final = (
    ResumeRow(1, _NULL, _ABSENT, Same.ANY, SenderAction.RESEND, ReceiverAction.TAKE),
    ResumeRow(2, _NULL, _RECEIVED, Same.ANY, SenderAction.CONTINUE, ReceiverAction.APPEND),
    ResumeRow(3, _NULL, _TERMINAL, Same.ANY, SenderAction.ADOPT, ReceiverAction.FORGET),
    ResumeRow(4, _NULL, _NULL, Same.ANY, SenderAction.WHOLE, ReceiverAction.TAKE),
    ResumeRow(5, _RECEIVED, _ABSENT, Same.ANY, SenderAction.RESEND_OR_SETTLE, ReceiverAction.TAKE),
    ResumeRow(6, _RECEIVED, _RECEIVED, Same.YES, SenderAction.CONTINUE, ReceiverAction.APPEND),
    ResumeRow(7, _RECEIVED, _RECEIVED, Same.NO, SenderAction.ABORT_AND_RESEND, ReceiverAction.FORGET_AND_TAKE),
    ResumeRow(8, _RECEIVED, _TERMINAL, Same.ANY, SenderAction.ADOPT, ReceiverAction.FORGET),
    ResumeRow(9, _RECEIVED, _NULL, Same.ANY, SenderAction.ABORT_AND_RESEND, ReceiverAction.FORGET_AND_TAKE),
    ResumeRow(10, _TERMINAL, _ABSENT, Same.ANY, SenderAction.SETTLE, ReceiverAction.NOTHING),
    ResumeRow(11, _TERMINAL, _RECEIVED, Same.ANY, SenderAction.ABORT, ReceiverAction.FORGET),
    ResumeRow(12, _TERMINAL, _TERMINAL, Same.YES, SenderAction.AGREE, ReceiverAction.FORGET),
    ResumeRow(13, _TERMINAL, _TERMINAL, Same.NO, SenderAction.INSIST, ReceiverAction.APPLY),
    ResumeRow(14, _TERMINAL, _NULL, Same.ANY, SenderAction.ABORT, ReceiverAction.FORGET),
)
_BY_STATES: Final = {(row.sender, row.receiver, row.same): row for row in ROWS}


class DeliveryPlan(NamedTuple):
    """What happens to one delivery. `row` is 0 if a map was incomplete; `state` is that of the receiver."""

    row: int
    action: SenderAction
    answer: ReceiverAction
    state: DeliveryState | None = None


_ALIKE: Final = {
    row.receiver: DeliveryPlan(row.number, row.action, row.answer)
    for row in ROWS
    if row.sender is _NULL and row.receiver in (_ABSENT, _NULL)
}
"""The plans of deliveries without a state at either end, which are most."""
_WAIT: Final = DeliveryPlan(0, SenderAction.WAIT, ReceiverAction.NOTHING)


def reverted(state: DeliveryState | None) -> DeliveryState | None:
    """Return a state without its transaction, which has ended with its connection: the delivery has no outcome then."""
    return None if isinstance(state, TransactionalState | Declared) else state


def knowledge_of(state: DeliveryState | None) -> Knowledge:
    """Return what an end knows that has this state in its map."""
    if state is None:
        return _NULL
    return _RECEIVED if isinstance(state, Received) else _TERMINAL


def row_of(sender: UnsettledMap, receiver: UnsettledMap, tag: bytes) -> ResumeRow:
    """Return the row for a delivery that is in the map of the sender."""
    local, remote = reverted(sender[tag]), reverted(receiver.get(tag))
    theirs = knowledge_of(remote) if tag in receiver else _ABSENT
    row = _BY_STATES.get((knowledge_of(local), theirs, Same.ANY))
    if row is not None:
        return row
    return _BY_STATES[knowledge_of(local), theirs, Same.YES if _same(local, remote) else Same.NO]


def _same(sender: DeliveryState | None, receiver: DeliveryState | None) -> bool:
    if isinstance(sender, Received) and isinstance(receiver, Received):
        begin = sender.section_number, sender.section_offset
        return begin <= (receiver.section_number, receiver.section_offset)
    return sender == receiver


def resumptions(
    sender: UnsettledMap, receiver: UnsettledMap, *, receiver_complete: bool = True
) -> dict[bytes, DeliveryPlan]:
    """Return what happens to each delivery in the map of the sender, in its order."""
    absent = _ALIKE[_ABSENT] if receiver_complete else _WAIT
    found = {}
    adopted: dict[int, DeliveryPlan] = {}  # by the identity of the state, which many deliveries may share
    for tag, local in sender.items():
        if local is None and tag not in receiver:
            found[tag] = absent
        elif local is None and receiver[tag] is None:
            found[tag] = _ALIKE[_NULL]
        elif tag not in receiver and not receiver_complete:
            found[tag] = _WAIT
        elif local is None and id(receiver[tag]) in adopted:
            found[tag] = adopted[id(receiver[tag])]
        else:
            row, remote = row_of(sender, receiver, tag), receiver.get(tag)
            found[tag] = DeliveryPlan(row.number, row.action, row.answer, remote)
            if local is None:
                adopted[id(remote)] = found[tag]
    return found


def settled_by_sender(sender: UnsettledMap, receiver: UnsettledMap, *, sender_complete: bool = True) -> list[bytes]:
    """Return the tags that only the receiver knows: the sender has settled them, so the receiver forgets them. There
    are none if the map of the sender is incomplete.
    """
    return [tag for tag in receiver if tag not in sender] if sender_complete else []

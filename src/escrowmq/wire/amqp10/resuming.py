"""Resuming links: the exchange of unsettled maps at an attach, and what it decides (SET-3, SET-11).

The table is in `resume.py`. A delivery that the broker sends has no state here, because its outcome is applied as soon
as the client names it. A map that is too large for the client's frames is cut off, and marked as incomplete. The link
then only resumes deliveries that both maps name; the client attaches again for the others.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.termini.tags import TAG
from escrowmq.wire.amqp10.codec import states
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.encoding import decode
from escrowmq.wire.amqp10.codec.performatives import encode_performative
from escrowmq.wire.amqp10.codec.states import (
    STATE,
    Accepted,
    DeliveryState,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from escrowmq.wire.amqp10.errors import FRAME_SIZE_TOO_SMALL, AmqpFault, session_fault
from escrowmq.wire.amqp10.parts import point_of
from escrowmq.wire.amqp10.resume import SenderAction, resumptions, reverted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from escrowmq.core.termini.arrivals import Arrival
    from escrowmq.core.termini.enlisted_posts import PostOwner
    from escrowmq.core.termini.loan import Loan
    from escrowmq.wire.amqp10.codec.performatives import Attach
    from escrowmq.wire.amqp10.transactions import LocalTransactions

_FRAME_HEAD: Final = 8
_MAP_HEAD: Final = 16  # what a map adds to a performative without one
_TAG_HEAD: Final = 2


class Pending(NamedTuple):
    """A delivery that the broker sends again. `state` is the client's outcome if it has one."""

    number: int
    tag: bytes
    action: SenderAction
    state: DeliveryState | None


class ConsumerPlan(NamedTuple):
    """What a resumed link to a consumer sends before anything new, and which deliveries its attach names. With `only`,
    a map was incomplete, and the link sends nothing new.
    """

    unsettled: dict[bytes, DeliveryState | None]
    incomplete: bool
    pending: deque[Pending]
    only: bool


def plan_for_consumer(loan: Loan, request: Attach, answer: Attach, frame_max: int) -> ConsumerPlan:
    """Return what a link to a consumer resumes. `answer` is its attach without a map. Raises AmqpFault if not even one
    delivery fits into a frame.
    """
    numbers = {tag: number for number, tag in loan.terminus.deliveries.tags(frame_max // TAG.size)}
    remote = request.unsettled or {}
    ours, incomplete = _fitting(dict.fromkeys(numbers), answer, frame_max)
    only = incomplete or request.incomplete_unsettled
    found = resumptions(ours, remote, receiver_complete=not only)
    pending = deque(
        Pending(numbers[tag], tag, each.action, each.state)
        for tag, each in found.items()
        if each.action is not SenderAction.WAIT
    )
    return ConsumerPlan(ours, incomplete, pending, only)


def map_for_producer(
    loan: Loan, request: Attach, answer: Attach, frame_max: int, transactions: LocalTransactions
) -> tuple[dict[bytes, DeliveryState | None], bool]:
    """Compare the tags of a producer's terminus with the client's map. Return the map for the answer, and whether it is
    incomplete. Raises AmqpFault if not even one delivery fits into a frame.

    A post of an open transaction has a state only if that transaction is one of the connection's own `transactions`,
    and the client knows its outcome in it. The transactions of other connections cannot commit any more.
    """
    arrivals = loan.terminus.arrivals
    for owner in arrivals.owners():
        if owner not in transactions:
            owner.give_up("the link of a post was resumed on another connection")
    remote = {tag: _is_known(state, arrivals.owner(tag)) for tag, state in (request.unsettled or {}).items()}
    found = loan.reconcile(remote, complete=not request.incomplete_unsettled)
    ours = {tag: None if each is None else state_of(each) for tag, each in found.items()}
    partial = arrivals.partial
    if partial is not None and partial.tag in remote:
        ours[partial.tag] = point_of(partial)
    return _fitting(ours, answer, frame_max)


def _is_known(state: DeliveryState | None, owner: PostOwner | None) -> bool:
    """Return whether a sender knows the outcome of a message. `owner` is the open transaction in which it was posted,
    if there is one.
    """
    if owner is not None and isinstance(state, TransactionalState):
        return state.outcome is not None and encode_composite(state) == owner.accepted
    return reverted(state) is not None


def state_of(arrival: Arrival) -> DeliveryState:
    """Return the outcome of a message that arrived, as the protocol has it."""
    if arrival.detail:
        state: DeliveryState = STATE.read(decode(arrival.detail)[0])
        return state
    match arrival.outcome:
        case Disposition.ACCEPTED:
            return Accepted()
        case Disposition.REJECTED:
            return Rejected()
        case Disposition.RELEASED:
            return Released()
        case Disposition.MODIFIED:
            return Modified(delivery_failed=True)


def encoded_state(state: DeliveryState) -> bytes:
    """Return the encoding of an outcome."""
    return states.ACCEPTED if isinstance(state, Accepted) else encode_composite(state)


def _fitting(
    unsettled: Mapping[bytes, DeliveryState | None], answer: Attach, frame_max: int
) -> tuple[dict[bytes, DeliveryState | None], bool]:
    """Return the first deliveries of a map, as many as fit into the answer, and whether others are left out."""
    room = frame_max - _FRAME_HEAD - _MAP_HEAD - len(encode_performative(answer))
    sizes = set(map(len, unsettled))
    if len(sizes) == 1 and not any(unsettled.values()):  # as in each map for a consumer
        count = max(room, 0) // (_TAG_HEAD + max(sizes) + 1)
        if not count:
            raise _no_room()
        return dict(islice(unsettled.items(), count)), count < len(unsettled)
    found: dict[bytes, DeliveryState | None] = {}
    for tag, state in unsettled.items():
        room -= _TAG_HEAD + len(tag) + (1 if state is None else len(encoded_state(state)))
        if room < 0:
            if not found:
                raise _no_room()
            return found, True
        found[tag] = state
    return found, False


def _no_room() -> AmqpFault:
    return session_fault(FRAME_SIZE_TOO_SMALL, "not even one unsettled delivery fits into a frame")

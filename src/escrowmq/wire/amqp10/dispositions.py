"""Dispositions of the client: outcomes of deliveries that it received, and settlements of messages that it sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.core.budget import DEAD_LETTERED, SETTLED
from escrowmq.core.messages.marks import Modification
from escrowmq.core.queues.outcome import Disposition as Settlement
from escrowmq.wire.amqp10.answers import MASK
from escrowmq.wire.amqp10.codec import states
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.performatives import SENDER
from escrowmq.wire.amqp10.codec.states import (
    Accepted,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from escrowmq.wire.amqp10.errors import (
    INVALID_FIELD,
    TRANSACTION_ROLLBACK,
    AmqpFault,
    link_fault,
    session_fault,
)
from escrowmq.wire.amqp10.sent import Part

if TYPE_CHECKING:
    from escrowmq.wire.amqp10.codec.performatives import Disposition
    from escrowmq.wire.amqp10.outgoing import ConsumerLink
    from escrowmq.wire.amqp10.session import Session

_PIECE: Final = 250
"""Deliveries that are settled between two looks at the turn's budget."""


def apply(session: Session, disposition: Disposition) -> Iterator[None] | None:
    """Apply a disposition. The result is a task if the rest of its work belongs to a later turn. Raises AmqpFault."""
    last = disposition.last if disposition.last is not None else disposition.first
    if (last - disposition.first) & MASK > MASK >> 1:
        raise session_fault(INVALID_FIELD, f"disposition from {disposition.first} to {last}")
    if disposition.role == SENDER:
        _settle_posts(session, disposition, last)
        return None
    return _settle(session, disposition, last)


def _settle_posts(session: Session, disposition: Disposition, last: int) -> None:
    """The client settles messages that it sent: their outcomes need not be kept any longer."""
    if not disposition.settled:
        return
    for link, tags in session.posts.settle(disposition.first, ((last - disposition.first) & MASK) + 1):
        link.settled(tags)


def _settle(session: Session, disposition: Disposition, last: int) -> Iterator[None]:
    """Apply the outcome of deliveries to the client, a piece of them at a time."""
    engine = session.connection.broker.engine
    requests = engine.requests
    next_id = session.next_delivery_id
    behind = (next_id - disposition.first) & MASK
    first = next_id - behind
    if not behind or behind > MASK >> 1:
        return  # numbers that were never used
    final = min(first + ((last - disposition.first) & MASK), next_id - 1)
    settled = 1 if isinstance(disposition.state, Released | Modified) else SETTLED
    rejects = isinstance(disposition.state, Rejected)
    for part in session.sent.find(first, final):
        end = part.first - 1
        while end < part.last:
            begin = end + 1
            end = min(end + _PIECE, part.last)
            if rejects:
                ahead = part.number - part.first
                end = part.link.reach(begin + ahead, end + ahead) - ahead
            try:
                count = _settle_part(session, disposition, part, begin, end)
            except AmqpFault as fault:
                part.link.link.fail(fault)
                break
            requests.left -= count * DEAD_LETTERED if rejects else count // settled
            if requests.left <= 0 and end < final:
                yield


def _settle_part(session: Session, disposition: Disposition, part: Part, begin: int, end: int) -> int:
    """Apply the outcome to consecutive deliveries of one link. Return the number of those that were unsettled."""
    link, state = part.link, disposition.state
    if session.connection.transactions:
        busy = session.connection.transactions.holder(link, begin, end)
        if busy is not None and not (isinstance(state, TransactionalState) and state.txn_id == busy.id):
            fault = link_fault(TRANSACTION_ROLLBACK, "a delivery of the transaction was settled outside it")
            busy.control.link.fail(fault)
            return 0
    if isinstance(state, TransactionalState):
        return _retire(session, disposition, Part(link, begin, end, part.number + begin - part.first), state)
    first = part.number + begin - part.first
    if isinstance(state, Received) or (state is None and not disposition.settled):
        if isinstance(state, Received):
            link.note_progress(first, first + end - begin, state)
        return 0
    settlement = settlement_of(link, state)
    count = link.settle(first, first + end - begin, settlement)
    if count:
        session.sent.settled(part.first, count)
    if not disposition.settled:
        # The client waits for the broker to settle. Without mode second it need not, but clients exist that do.
        session.settled = True
        encoded = states.ACCEPTED if isinstance(state, Accepted) else encode_composite(state)
        session.answer(SENDER, begin, end, settled=True, state=encoded)
    return count


def _retire(session: Session, disposition: Disposition, part: Part, state: TransactionalState) -> int:
    """Enlist the outcome of deliveries in a transaction (section 4.4.2). Return the number of the unsettled ones."""
    outcome = state.outcome
    try:
        transaction = session.connection.transactions.find(state.txn_id)
        if outcome is None and not disposition.settled:
            return 0
        change = settlement_of(part.link, outcome)
    except AmqpFault as fault:
        part.link.link.fail(fault)
        return 0
    return transaction.retire(session, part, outcome or Accepted(), change, settled=disposition.settled)


def settlement_of(link: ConsumerLink, state: object) -> Settlement | Modification:
    """Return the broker's word for an outcome. Raises AmqpFault."""
    match state:
        case None:
            return link.default
        case Accepted():
            return Settlement.ACCEPTED
        case Released():
            return Settlement.RELEASED
        case Rejected():
            return Settlement.REJECTED
        case Modified(undeliverable_here=True) if link.link.session.connection.limits.rabbitmq_version:
            return modification(link.name, state, discards=True)  # clients of RabbitMQ discard messages this way
        case Modified():
            return modification(link.name, state)
    raise link_fault(INVALID_FIELD, f"{type(state).__name__} is no outcome")


def modification(name: str, state: Modified, *, discards: bool = False) -> Settlement | Modification:
    """Return the broker's word for `modified`. `name` is that of the consumer, which may be excluded. With `discards`,
    the message is dead-lettered instead.
    """
    annotations = {str(key): encode_composite(value) for key, value in (state.message_annotations or {}).items()}
    if discards:
        return Modification(annotations=annotations, rejected=True) if annotations else Settlement.REJECTED
    if annotations or state.undeliverable_here:
        return Modification(bool(state.delivery_failed), annotations, name if state.undeliverable_here else "")
    return Settlement.MODIFIED if state.delivery_failed else Settlement.RELEASED

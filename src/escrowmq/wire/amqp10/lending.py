"""The termini that links borrow: their keys, and the durability and expiry that are granted (SET-6, SET-12)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.termini.terminus import (
    Durability,
    ExpiryPolicy,
    LinkRole,
    TerminusInput,
    TerminusKey,
    TerminusSettings,
)
from escrowmq.wire.amqp10.codec.composite import encode_composite, resolve
from escrowmq.wire.amqp10.codec.encoding import decode
from escrowmq.wire.amqp10.codec.performatives import SECOND
from escrowmq.wire.amqp10.codec.states import Accepted, Modified, Rejected, Released
from escrowmq.wire.amqp10.codec.termini import Source, Target
from escrowmq.wire.amqp10.errors import INVALID_FIELD, NOT_IMPLEMENTED, link_fault

if TYPE_CHECKING:
    from escrowmq.core.termini.loan import Borrower, Loan
    from escrowmq.wire.amqp10.codec.performatives import Attach
    from escrowmq.wire.amqp10.link import Link

T = TypeVar("T", Source, Target)


def granted(link: Link, request: Attach, asked: T) -> T:
    """Return the terminus with the durability, the expiry policy and the timeout that the broker grants.

    Unsettled deliveries survive a restart only if the receiver settles second. Raises AmqpFault.
    """
    most = Durability.UNSETTLED_STATE if request.rcv_settle_mode == SECOND else Durability.CONFIGURATION
    if asked.durable not in set(Durability):
        raise link_fault(INVALID_FIELD, f"durable {asked.durable} is not defined")
    if asked.expiry_policy not in set(ExpiryPolicy):
        raise link_fault(INVALID_FIELD, f"expiry policy '{asked.expiry_policy}' is not defined")
    longest = link.session.connection.broker.termini.limits.timeout_ms // 1000
    return replace(asked, durable=int(min(asked.durable, most)), timeout=min(asked.timeout, longest))


def borrow(link: Link, request: Attach, terminus: Source | Target, borrower: Borrower) -> Loan:
    """Lend `terminus`, as it was granted, to `borrower`. Raises AmqpFault, BrokerError.

    A client whose map of unsettled deliveries is null begins anew; with any other, it resumes.
    """
    connection = link.session.connection
    default = terminus.default_outcome if isinstance(terminus, Source) else None
    settings = TerminusSettings(
        Durability(terminus.durable),
        ExpiryPolicy(terminus.expiry_policy),
        terminus.timeout * 1000,
        request.rcv_settle_mode == SECOND,
        terminus.address or "",
        encode_composite(terminus),
        default_of(default),
    )
    how = TerminusInput.ESTABLISH if request.unsettled is None else TerminusInput.RESUME
    loan = connection.broker.termini.attach(key_of(link), settings, borrower, how, user=connection.user)
    link.session.loans[loan.terminus.key] = loan
    return loan


def key_of(link: Link) -> TerminusKey:
    """Return the identity of the link's terminus."""
    connection = link.session.connection
    role = LinkRole.INCOMING if link.role else LinkRole.OUTGOING
    return TerminusKey(connection.vhost.name, connection.container, link.name, role)


def recovered(link: Link) -> Source | Target | None:
    """Return the terminus that an earlier link of this name has left, for a client that asks for it; None if there is
    none, or it belongs to another user.
    """
    connection = link.session.connection
    terminus = connection.broker.termini.find(key_of(link))
    if terminus is None or terminus.user != connection.user:
        return None
    value, _ = decode(terminus.settings.data)
    found = resolve(value)
    return found if isinstance(found, Source | Target) else None


def default_of(outcome: object) -> Disposition:
    """Return the broker's word for a default outcome. Raises AmqpFault."""
    match outcome:
        case None:
            return Disposition.MODIFIED
        case Accepted():
            return Disposition.ACCEPTED
        case Rejected():
            return Disposition.REJECTED
        case Released():
            return Disposition.RELEASED
        case Modified(undeliverable_here=False, message_annotations=None):
            return Disposition.MODIFIED if outcome.delivery_failed else Disposition.RELEASED
    raise link_fault(NOT_IMPLEMENTED, "a default outcome with annotations or undeliverable-here is not implemented")

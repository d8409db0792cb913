"""The operations of the client, written once for both faces: generators that yield conditions to wait for.

A face runs an operation by waiting for each condition that it yields, exchanging bytes meanwhile, until it returns.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from escrowmq.amqp10.endpoint.connection import ConnectionState, Endpoint
from escrowmq.amqp10.endpoint.deliveries import ACCEPT, IncomingDelivery, OutgoingDelivery
from escrowmq.amqp10.endpoint.incoming import IncomingLink
from escrowmq.amqp10.endpoint.link import LinkEnd
from escrowmq.amqp10.endpoint.outgoing import OutgoingLink
from escrowmq.amqp10.endpoint.session import SessionEndpoint, SessionState
from escrowmq.amqp10.endpoint.transactions import Transaction, TransactionState, coordinator_link
from escrowmq.amqp10.errors import NotAccepted, NotGranted, UsageError
from escrowmq.amqp10.message import Message
from escrowmq.amqp10.nodes import LinkOptions
from escrowmq.wire.amqp10.codec.performatives import Attach
from escrowmq.wire.amqp10.codec.termini import Source, Target

T = TypeVar("T")
WINDOW: Final = 2000
"""The default for unsettled deliveries that a sender of many messages may have, and for a receiver's credit."""


class Wait(NamedTuple):
    """A condition to wait for, and its name for the error of a time limit."""

    until: Callable[[], object]
    what: str


Operation = Generator[Wait, None, T]


def new_name(prefix: str) -> str:
    """Return a name that no other link has."""
    return f"{prefix}-{secrets.token_hex(8)}"


# ---- connection and sessions ----


def opened(endpoint: Endpoint) -> bool:
    """Whether the connection is open."""
    return endpoint.state is ConnectionState.OPEN


def begin_session(endpoint: Endpoint) -> Operation[SessionEndpoint]:
    """Begin a session."""
    session = endpoint.session()
    yield Wait(lambda: session.check() and session.state is SessionState.MAPPED, "the session to begin")
    return session


def end_session(session: SessionEndpoint) -> Operation[None]:
    """End a session."""
    session.end()
    yield Wait(lambda: session.state is SessionState.GONE, "the session to end")


# ---- links ----


def attach(link: LinkEnd) -> Operation[Attach]:
    """Attach a link, and check that the peer granted what it asked for.

    Raises:
        LinkFailed: The peer refused the link.
        NotGranted: The peer granted less.
    """
    link.session.attach(link)
    yield Wait(lambda: link.check() and link.attached, f"{link} to attach")
    remote = link.remote
    assert remote is not None
    missing = _missing(link, remote)
    if missing:
        link.detach(closed=True)
        yield Wait(lambda: link.gone, f"{link} to detach")
        raise NotGranted(f"{link}: the broker did not grant {missing}; ask for less, or use another broker")
    return remote


def _missing(link: LinkEnd, remote: Attach) -> str:
    """Return what the peer did not grant, or an empty string."""
    wanted = link.options
    if wanted.settle_modes[1] != remote.rcv_settle_mode:
        return f"mode {wanted.mode!r} (it offers rcv-settle-mode {remote.rcv_settle_mode})"
    end = remote.source if link.role else remote.target
    if not isinstance(end, Source | Target):
        return ""
    if wanted.terminus.resumable and (
        int(end.durable or 0) < wanted.terminus.durable or str(end.expiry_policy) != wanted.terminus.expiry
    ):
        return f"the terminus {wanted.terminus} (it offers durable {end.durable}, expiry {end.expiry_policy})"
    if isinstance(end, Source):
        lost = [name for name in wanted.filters if name not in (end.filter or {})]
        if lost:
            return f"the filter {', '.join(lost)}"
    return ""


def detach(link: LinkEnd, *, closed: bool) -> Operation[None]:
    """Detach a link. `closed` also destroys its terminus at the peer."""
    link.detach(closed=closed)
    yield Wait(lambda: link.gone, f"{link} to detach")


def sender(
    session: SessionEndpoint, name: str, options: LinkOptions, recovered: Iterable[tuple[bytes, bytes]] = ()
) -> Operation[OutgoingLink]:
    """Attach a new sending link. `recovered` are tags and messages that an earlier run may have sent."""
    link = session.outgoing_link(name, options)
    for tag, payload in recovered:
        link.recover(tag, payload)
    yield from attach(link)
    return link


def receiver(
    session: SessionEndpoint, name: str, options: LinkOptions, window: int, recovered: Iterable[bytes] = ()
) -> Operation[IncomingLink]:
    """Attach a new receiving link. `recovered` are the tags that an earlier run has accepted."""
    link = session.incoming_link(name, options, window)
    for tag in recovered:
        link.recover(tag, ACCEPT)
    yield from attach(link)
    return link


# ---- sending ----


def encoded(message: Message | bytes) -> bytes:
    """Return a message in wire format; bytes are taken as such already.

    Raises:
        UsageError: It is neither a `Message` nor bytes, or it cannot be encoded.
    """
    if isinstance(message, bytes):
        return message
    if not isinstance(message, Message):
        raise UsageError(f"expected a Message, not {type(message).__name__}; wrap the body as in Message('text')")
    return message.encode()


def post(link: OutgoingLink, message: Message | bytes, transaction: Transaction | None) -> OutgoingDelivery:
    """Queue a message."""
    payload = encoded(message)
    delivery = link.send(payload) if transaction is None else transaction.post(link, payload)
    link.pump()
    return delivery


def send(link: OutgoingLink, message: Message | bytes, transaction: Transaction | None) -> Operation[OutgoingDelivery]:
    """Send a message, and wait for its outcome. Presettled messages have none: they wait only for credit.

    Raises:
        NotAccepted: The peer rejected, released or modified the message.
    """
    delivery = post(link, message, transaction)
    yield Wait(lambda: link.check() and delivered(delivery), f"the outcome of a message on {link}")
    delivery.check()
    return delivery


def delivered(delivery: OutgoingDelivery) -> bool:
    """Whether there is nothing to wait for: an outcome is known, or the message was sent presettled."""
    return delivery.done and delivery.id >= 0 if delivery.settled and delivery.state is None else delivery.done


def send_many(
    link: OutgoingLink, messages: Iterable[Message | bytes], transaction: Transaction | None, window: int
) -> Operation[int]:
    """Send messages with at most `window` of them unsettled, and wait for all outcomes. Returns their number.

    Raises:
        NotAccepted: The peer did not accept a message. The ones before and after it were sent all the same.
    """
    source = iter(messages)
    open_: dict[int, OutgoingDelivery] = {}
    failed: OutgoingDelivery | None = None
    count = 0
    half = max(window // 2, 1)
    while chunk := list(islice(source, half)):
        for payload in [encoded(message) for message in chunk]:
            delivery = link.send(payload) if transaction is None else transaction.post(link, payload)
            open_[count] = delivery
            count += 1
        link.pump()
        failed = _sweep(open_) or failed
        if len(open_) > window - half:
            yield Wait(lambda: link.check() and _behind(open_, window - half), f"credit and outcomes on {link}")
            failed = _sweep(open_) or failed
    yield Wait(lambda: link.check() and _behind(open_, 0), f"the outcomes of messages on {link}")
    failed = _sweep(open_) or failed
    if failed is not None:
        failed.check()
    return count


def _behind(pending: dict[int, OutgoingDelivery], most: int) -> bool:
    """Whether at most `most` deliveries are pending. Outcomes come nearly in order, so the oldest ones tell."""
    excess = len(pending) - most
    return excess <= 0 or all(map(delivered, islice(pending.values(), excess)))


def _sweep(pending: dict[int, OutgoingDelivery]) -> OutgoingDelivery | None:
    """Remove the deliveries that are done, and return one that was not accepted."""
    done = [number for number, delivery in pending.items() if delivered(delivery)]
    failed = None
    for number in done:
        delivery = pending.pop(number)
        if not delivery.accepted:
            failed = failed or delivery
    return failed


# ---- receiving ----


def receive(link: IncomingLink) -> Operation[IncomingDelivery]:
    """Wait for the next message."""
    yield Wait(lambda: bool(link.arrived) or not link.check(), f"a message on {link}")
    delivery = link.take()
    assert delivery is not None
    return delivery


def receive_many(link: IncomingLink, most: int) -> Operation[list[IncomingDelivery]]:
    """Wait for at least one message, and return up to `most`."""
    yield Wait(lambda: bool(link.arrived) or not link.check(), f"messages on {link}")
    return link.take_many(most)


def drain(link: IncomingLink, credit: int) -> Operation[list[IncomingDelivery]]:
    """Have the peer send what it has, up to `credit` messages, and return it without waiting for more.

    Raises:
        UsageError: The link grants credit by itself.
    """
    if link.window:
        raise UsageError(f"{link} grants credit by itself; attach it with credit=0 to drain it")
    link.grant(credit, drain=True)
    yield Wait(lambda: link.check() and (not link.draining or len(link.arrived) >= credit), f"{link} to be drained")
    return link.take_many(credit)


def settled(deliveries: Iterable[IncomingDelivery]) -> Operation[None]:
    """Wait until the sender has settled deliveries too, which were given an outcome in mode `second`."""
    waiting = list(deliveries)
    yield Wait(lambda: all(map(_finished, waiting)), "the sender to settle")


def _finished(delivery: IncomingDelivery) -> bool:
    delivery.link.check()
    return delivery.settled


# ---- transactions ----


class Coordination:
    """The coordinator link of a session, attached when it is first needed."""

    def __init__(self, session: SessionEndpoint) -> None:
        self._session = session
        self._link: OutgoingLink | None = None

    def declare(self) -> Operation[Transaction]:
        """Begin a transaction.

        Raises:
            LinkFailed: The peer has no transactions.
            TransactionFailed: The peer declared none.
        """
        link = self._link
        if link is None or link.gone:
            link = self._link = coordinator_link(self._session, new_name("transactions"))
            yield from attach(link)
        transaction = Transaction(link)
        yield Wait(lambda: transaction.declared, "a transaction to be declared")
        return transaction


def commit(transaction: Transaction) -> Operation[None]:
    """Commit, after all messages in the transaction have an outcome.

    Raises:
        NotAccepted: The peer did not accept a message; the transaction was rolled back.
        TransactionFailed: The peer could not commit; the work is undone.
        TransactionInDoubt: The connection was lost before the answer.
    """
    transaction.check()
    yield Wait(lambda: transaction.answered, "the outcomes of the messages in the transaction")
    try:
        transaction.check_posts()
    except NotAccepted:
        yield from rollback(transaction)
        raise
    yield from _discharge(transaction, fail=False)


def rollback(transaction: Transaction) -> Operation[None]:
    """Roll back. It is not an error if the transaction has failed before."""
    if transaction.state is TransactionState.ACTIVE:
        yield from _discharge(transaction, fail=True)


def _discharge(transaction: Transaction, *, fail: bool) -> Operation[None]:
    transaction.discharge(fail=fail)
    yield Wait(lambda: transaction.discharged, "the transaction to be discharged")


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    source = iter(items)
    while chunk := list(islice(source, size)):
        yield chunk


def granted(link: LinkEnd) -> Any:
    """Return the terminus at the peer, as the peer granted it: a dynamic address is in its `address`."""
    remote = link.remote
    return None if remote is None else remote.source if link.role else remote.target

"""Transactions of AMQP 1.0: declare and discharge on a coordinator link, posting and retiring."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final

from escrowmq.amqp10.endpoint.deliveries import IncomingDelivery, OutgoingDelivery
from escrowmq.amqp10.endpoint.incoming import IncomingLink
from escrowmq.amqp10.endpoint.outgoing import OutgoingLink
from escrowmq.amqp10.endpoint.session import SessionEndpoint
from escrowmq.amqp10.errors import TransactionFailed, TransactionInDoubt, described, reason
from escrowmq.amqp10.nodes import LinkOptions
from escrowmq.wire.amqp10.codec.composite import encode_composite
from escrowmq.wire.amqp10.codec.sections import VALUE
from escrowmq.wire.amqp10.codec.states import Accepted, Declared, Rejected, Released
from escrowmq.wire.amqp10.codec.termini import Coordinator, Declare, Discharge
from escrowmq.wire.amqp10.codec.types import Symbol

_SECTION: Final = b"\x00\x53" + bytes((VALUE,))
_CAPABILITIES: Final = tuple(
    Symbol(f"amqp:{name}") for name in ("local-transactions", "multi-txns-per-ssn", "multi-ssns-per-txn")
)


class TransactionState(Enum):
    """A transaction is declared, then active, then discharged. It fails when its connection is lost."""

    DECLARING = "declaring"
    ACTIVE = "active"
    DISCHARGING = "discharging"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    IN_DOUBT = "in doubt"


def coordinator_link(session: SessionEndpoint, name: str) -> OutgoingLink:
    """Add the link on which transactions of the connection are declared and discharged."""
    return session.outgoing_link(name, LinkOptions(None), Coordinator(capabilities=_CAPABILITIES))


class Transaction:
    """Messages that are sent in it, and outcomes that are given in it, take effect together at commit, or not at all.

    It belongs to one connection, and may be used on all its sessions.
    """

    def __init__(self, coordinator: OutgoingLink) -> None:
        self._coordinator = coordinator
        self._epoch = coordinator.attaches
        self._posts: list[OutgoingDelivery] = []
        self._retired: list[tuple[IncomingDelivery, Any]] = []
        self._failing = False
        self.state = TransactionState.DECLARING
        self.id = b""
        self._request = coordinator.send(_SECTION + encode_composite(Declare()))
        coordinator.pump()

    def __repr__(self) -> str:
        return f"<transaction {self.id.hex() or '?'}, {self.state.value}>"

    # -- declare

    @property
    def declared(self) -> bool:
        """Whether the answer to declare has arrived. Raises TransactionFailed if the peer refused."""
        self._coordinator.check()
        if not self._request.done:
            return False
        outcome = self._request.outcome
        if not isinstance(outcome, Declared):
            self.state = TransactionState.ROLLED_BACK
            raise _failure("the broker declared no transaction", outcome)
        self.id, self.state, self._epoch = bytes(outcome.txn_id), TransactionState.ACTIVE, self._coordinator.attaches
        return True

    # -- work

    def check(self) -> None:
        """Raise TransactionFailed if no more work can be done in this transaction."""
        if self.state is TransactionState.ACTIVE and not self._lives:
            self._undo(TransactionState.ROLLED_BACK)
        if self.state is not TransactionState.ACTIVE:
            why = "" if self._lives else ", because its connection was lost"
            raise TransactionFailed(f"the transaction is {self.state.value}{why}; begin another one")

    def post(self, link: OutgoingLink, payload: bytes) -> OutgoingDelivery:
        """Send a message in the transaction."""
        self.check()
        delivery = link.send(payload, transaction=self.id)
        self._posts.append(delivery)
        return delivery

    def retire(self, deliveries: Iterable[IncomingDelivery], outcome: Any) -> None:
        """Give deliveries an outcome that takes effect at commit."""
        self.check()
        chosen = list(deliveries)
        if chosen:
            chosen[0].link.settle(chosen, outcome, self.id)
            self._retired.extend((delivery, outcome) for delivery in chosen)

    def acquire(self, link: IncomingLink, credit: int) -> None:
        """Have a link's next deliveries acquired in the transaction: a rollback returns them to their queue."""
        self.check()
        link.properties = {Symbol("txn-id"): self.id}
        link.grant(credit)
        link.properties = None

    @property
    def answered(self) -> bool:
        """Whether all messages that were sent in the transaction have an outcome."""
        self._coordinator.check()
        return not self._lives or all(delivery.done for delivery in self._posts)

    def check_posts(self) -> None:
        """Raise NotAccepted for the first message that the peer did not accept."""
        for delivery in self._posts:
            delivery.check()

    # -- discharge

    def discharge(self, *, fail: bool) -> None:
        """Ask the peer to commit, or with `fail` to roll back."""
        self.check()
        self.state, self._failing = TransactionState.DISCHARGING, fail
        body = encode_composite(Discharge(txn_id=self.id, fail=fail))
        self._request = self._coordinator.send(_SECTION + body)
        self._coordinator.pump()

    @property
    def discharged(self) -> bool:
        """Whether the answer to discharge has arrived.

        Raises:
            TransactionFailed: The peer could not commit; the work is undone.
            TransactionInDoubt: The connection was lost before the answer to a commit.
        """
        if self._lives and not self._request.done and self._coordinator.error is None:
            return False
        outcome = self._request.outcome if self._lives else None
        if isinstance(outcome, Accepted):
            if self._failing:
                self._undo(TransactionState.ROLLED_BACK)
            else:
                self._do()
            return True
        if self._failing:
            self._undo(TransactionState.ROLLED_BACK)
            return True
        if outcome is None and self._coordinator.error is None:
            self._undo(TransactionState.IN_DOUBT)
            raise TransactionInDoubt("the connection was lost before the commit was answered; check its effects")
        self._undo(TransactionState.ROLLED_BACK)
        if outcome is None:
            self._coordinator.check()
        raise _failure("the broker rolled the transaction back", outcome)

    # -- inside

    @property
    def _lives(self) -> bool:
        return self.state is TransactionState.DECLARING or self._epoch == self._coordinator.attaches

    def _do(self) -> None:
        self.state = TransactionState.COMMITTED
        for delivery, outcome in self._retired:
            delivery.outcome = delivery.state = outcome

    def _undo(self, state: TransactionState) -> None:
        self.state = state
        for post in self._posts:
            post.state, post.settled = Released(), True
            post.link.unsettled.pop(post.tag, None)
            if post.id < 0 and post in post.link.queue:
                post.link.queue.remove(post)
        for delivery, _ in self._retired:
            if delivery.settled:
                delivery.lost = delivery.lost or "its transaction was rolled back"
            else:
                delivery.state = None


def _failure(text: str, outcome: Any) -> TransactionFailed:
    error = outcome.error if isinstance(outcome, Rejected) else None
    condition, description = described(error)
    return TransactionFailed(f"{text}: {reason(error, 'it gave no reason')}", condition, description)

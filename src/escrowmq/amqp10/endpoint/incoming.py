"""The receiving end of a link: credit, reassembly of messages, settling, and resuming."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from escrowmq.amqp10.endpoint.deliveries import TERMINAL, IncomingDelivery
from escrowmq.amqp10.endpoint.dispositions import encoded
from escrowmq.amqp10.endpoint.events import Arrived, CreditChanged
from escrowmq.amqp10.endpoint.link import LinkEnd
from escrowmq.amqp10.errors import ProtocolViolation
from escrowmq.amqp10.nodes import LinkOptions
from escrowmq.wire.amqp10.codec.performatives import RECEIVER, Attach, Flow, Transfer
from escrowmq.wire.amqp10.codec.states import TransactionalState
from escrowmq.wire.amqp10.codec.termini import Target

if TYPE_CHECKING:
    from escrowmq.amqp10.endpoint.session import SessionEndpoint

_COUNT: Final = 0xFFFFFFFF


class IncomingLink(LinkEnd):
    """A link on which this side receives.

    `arrived` holds complete messages for the application. With a `window`, credit is granted anew as the application
    takes messages; with 0, only `grant` does. `forgotten` lists the tags that the peer has settled, if
    `options.manual` is set.
    """

    role = RECEIVER

    def __init__(self, session: SessionEndpoint, name: str, options: LinkOptions, handle: int, window: int) -> None:
        super().__init__(session, name, options, handle)
        self.window = window
        self.arrived: deque[IncomingDelivery] = deque()
        self.unsettled: dict[bytes, IncomingDelivery] = {}
        self.forgotten: list[bytes] = []
        self.draining = False
        self.available = 0
        """How many messages the peer has said to have ready."""
        self.properties: dict[Any, Any] | None = None
        self._second = options.mode == "second"
        self._partial: IncomingDelivery | None = None
        self._parts: list[bytes] = []
        self._only_resumes = False  # until the maps of unsettled deliveries are complete
        self._resuming: set[bytes] = set()
        self._ignoring = False  # whether the payload of the partial delivery is of no use

    # -- what the caller does

    def take(self) -> IncomingDelivery | None:
        """Return the next message, or None. Grants more credit when half of the window is used."""
        if not self.arrived:
            return None
        delivery = self.arrived.popleft()
        if self.window:
            self._replenish()
        return delivery

    def take_many(self, most: int) -> list[IncomingDelivery]:
        """Return up to `most` messages that have arrived."""
        arrived = self.arrived
        if most >= len(arrived):
            taken = list(arrived)
            arrived.clear()
        else:
            taken = [arrived.popleft() for _ in range(most)]
        if self.window and taken:
            self._replenish()
        return taken

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Set the credit: how many messages the peer may send from now on.

        With `drain`, the peer sends what it has at once, and then uses up the rest of the credit.
        """
        self.check()
        self.credit = credit
        self.draining = drain and credit > 0
        if self.attached:
            self.session.flow(self)

    def settle(self, deliveries: Iterable[IncomingDelivery], outcome: Any, transaction: bytes | None = None) -> None:
        """Give deliveries an outcome. In mode `first` this settles them; in `second`, the sender settles afterwards.

        Raises:
            DeliveryLost: A delivery can no longer be settled.
        """
        state = outcome if transaction is None else TransactionalState(txn_id=transaction, outcome=outcome)
        data, settles = encoded(state), not self._second
        add, forget = self.session.answers.add, self.session.incoming.pop
        for delivery in deliveries:
            if delivery.settled or delivery.outcome is not None:
                if delivery.lost:
                    delivery.check()
                continue
            delivery.state = state
            if transaction is None:
                delivery.outcome = outcome
            if delivery.id >= 0:
                add(delivery.id, settles, data)
            if settles:
                delivery.settled = True
                self.unsettled.pop(delivery.tag, None)
                forget(delivery.id, None)
        self.session.dirty()

    def recover(self, tag: bytes, state: Any) -> IncomingDelivery:
        """Add a delivery of an earlier run with its outcome, before the link attaches."""
        delivery = IncomingDelivery(self, tag, -1, settled=False)
        delivery.state = delivery.outcome = state
        self.unsettled[tag] = delivery
        return delivery

    # -- what the peer does

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take one frame of a message."""
        delivery = self._partial
        if delivery is None:
            tag, number = transfer.delivery_tag, transfer.delivery_id
            if tag is None or number is None:
                raise ProtocolViolation(f"{self}: the first transfer of a delivery has no delivery-id or no tag")
            self.delivery_count = (self.delivery_count + 1) & _COUNT
            self.credit = max(self.credit - 1, 0)
            if transfer.resume:
                delivery = self._resumed(tag, number, transfer)
            else:
                delivery = IncomingDelivery(self, tag, number, bool(transfer.settled), transfer.message_format or 0)
                self._ignoring = False
            if not transfer.more and not transfer.aborted and not self._ignoring:
                delivery.payload = payload
                self._complete(delivery, transfer)
                return
            self._partial, self._parts = delivery, []
        if transfer.settled:
            delivery.settled = True
        self._parts.append(payload)
        if transfer.aborted:
            self._partial, self._parts = None, []
            if delivery.tag in self.unsettled:
                self._give_up(delivery, "the broker aborted the delivery")
        elif not transfer.more:
            if not self._ignoring:
                delivery.payload = b"".join(self._parts)
                self._complete(delivery, transfer)
            self._partial, self._parts = None, []
            if self._ignoring and self.window:
                self._replenish()

    def on_flow(self, flow: Flow) -> None:
        """Take the peer's delivery-count, which ends a drain."""
        if flow.delivery_count is not None:
            passed = (int(flow.delivery_count) - self.delivery_count) & _COUNT
            if passed < 1 << 31:
                self.credit = max(self.credit - passed, 0)
                self.delivery_count = int(flow.delivery_count)
        if self.draining and not self.credit:
            self.draining = False
        if flow.available is not None:
            self.available = int(flow.available)
        if flow.echo:
            self.session.flow(self)
        self.session.event(CreditChanged(self))

    def on_state(self, delivery: IncomingDelivery, state: Any, settled: bool) -> None:
        """Take the sender's state of a delivery, which usually settles it."""
        delivery.remote = state
        if settled and not delivery.settled:
            self._forget(delivery)
            if delivery.outcome is None and not isinstance(delivery.state, TransactionalState):
                delivery.lost = "the broker settled the delivery by itself"

    # -- inside

    def _complete(self, delivery: IncomingDelivery, transfer: Transfer) -> None:
        if not delivery.settled:
            self.unsettled[delivery.tag] = delivery
            self.session.incoming[delivery.id] = delivery
        self.arrived.append(delivery)
        self.session.event(Arrived(self))

    def _replenish(self) -> None:
        wanted = self.window - len(self.arrived)
        if wanted - self.credit >= max(self.window // 2, 1) and self.attached:
            self.credit = wanted
            self.session.flow(self)

    def _resumed(self, tag: bytes, number: int, transfer: Transfer) -> IncomingDelivery:
        """Bind a delivery that this side already holds to its new delivery-id."""
        self._ignoring = True  # what is held is whole; what is unknown must be ignored
        delivery = self.unsettled.get(tag)
        if delivery is None:
            return IncomingDelivery(self, tag, number, settled=True)
        delivery.id = number
        if transfer.settled:
            self._forget(delivery)
            if delivery.outcome is None:
                delivery.lost = "the broker settled the delivery by itself"
            return delivery
        self.session.incoming[number] = delivery
        self.session.dirty()
        if isinstance(transfer.state, TERMINAL):  # the sender's outcome is definitive
            delivery.outcome = delivery.state = transfer.state
            self.session.answers.add(number, True, encoded(transfer.state))
            self._forget(delivery)
        elif delivery.outcome is not None:
            self.session.answers.add(number, not self._second, encoded(delivery.outcome))
        return delivery

    def _forget(self, delivery: IncomingDelivery) -> None:
        delivery.settled = True
        self.unsettled.pop(delivery.tag, None)
        self.session.incoming.pop(delivery.id, None)
        if self.options.manual:
            self.forgotten.append(delivery.tag)
        if self._only_resumes:
            self._resuming.discard(delivery.tag)
            if not self._resuming and self.attached:
                self.suspend_and_attach_again()

    def _termini(self) -> dict[str, Any]:
        return {"source": self.options.source(), "target": Target(address=self.name)}

    def _unsettled_map(self) -> dict[bytes, Any]:
        return {tag: delivery.outcome for tag, delivery in self.unsettled.items()}

    def _on_attached(self, remote: Attach) -> None:
        self.delivery_count = int(remote.initial_delivery_count or 0)
        known = remote.unsettled or {}
        self._only_resumes = False
        if not remote.incomplete_unsettled:
            for delivery in [d for tag, d in self.unsettled.items() if tag not in known and d.id < 0]:
                if delivery.outcome is None:
                    self._give_up(delivery, "the broker no longer holds the delivery for this link")
                else:
                    self._forget(delivery)
        self._only_resumes = self._incomplete or bool(remote.incomplete_unsettled)
        self._resuming = set(self.offered.intersection(known))
        if self._only_resumes and not self._resuming:
            self.suspend_and_attach_again()
            return
        if self.window:
            self.credit = max(self.window - len(self.arrived), 1)
            self.session.flow(self)
        elif self.credit:
            self.session.flow(self)

    def _suspend(self, why: str) -> None:
        self._partial, self._parts = None, []
        self.draining = False
        for delivery in list(self.unsettled.values()):
            delivery.id = -1
            if isinstance(delivery.state, TransactionalState):
                delivery.state = None
            if not self.options.terminus.resumable:
                self._give_up(delivery, why)

    def _fail(self, why: str) -> None:
        for delivery in list(self.unsettled.values()):
            self._give_up(delivery, why)

    def _give_up(self, delivery: IncomingDelivery, why: str) -> None:
        delivery.lost = why
        delivery.settled = True
        self.unsettled.pop(delivery.tag, None)
        self.session.incoming.pop(delivery.id, None)
        if delivery in self.arrived:
            self.arrived.remove(delivery)

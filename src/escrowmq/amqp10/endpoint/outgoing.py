"""The sending end of a link: queueing, credit, transfers, outcomes, and resuming by the specification's table."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from escrowmq.amqp10.endpoint.deliveries import TERMINAL, OutgoingDelivery
from escrowmq.amqp10.endpoint.events import CreditChanged
from escrowmq.amqp10.endpoint.link import LinkEnd
from escrowmq.amqp10.errors import ProtocolViolation, UsageError
from escrowmq.amqp10.nodes import LinkOptions
from escrowmq.wire.amqp10.codec.performatives import SENDER, Attach, Flow, Transfer
from escrowmq.wire.amqp10.codec.states import Released, TransactionalState
from escrowmq.wire.amqp10.codec.termini import Coordinator
from escrowmq.wire.amqp10.resume import SenderAction, resumptions

if TYPE_CHECKING:
    from escrowmq.amqp10.endpoint.session import SessionEndpoint

_COUNT: Final = 0xFFFFFFFF
MAX_TAG: Final = 32
_SETTLING: Final = (SenderAction.ADOPT, SenderAction.AGREE, SenderAction.ABORT)


class OutgoingLink(LinkEnd):
    """A link on which this side sends.

    `queue` holds what waits for credit or window, `unsettled` what was sent and is not settled. With
    `options.manual`, the caller settles each delivery by `settle` once it has recorded the outcome.
    """

    role = SENDER

    def __init__(
        self,
        session: SessionEndpoint,
        name: str,
        options: LinkOptions,
        handle: int,
        coordinator: Coordinator | None = None,
    ) -> None:
        super().__init__(session, name, options, handle)
        self.queue: deque[OutgoingDelivery] = deque()
        self.unsettled: dict[bytes, OutgoingDelivery] = {}
        self.coordinator = coordinator
        self._next_tag = 0
        self._presettles = options.mode == "presettled"
        self._only_resumes = False  # until the maps of unsettled deliveries are complete
        self._resumed: set[bytes] = set()
        self._sending: tuple[OutgoingDelivery, int] | None = None  # a delivery whose frames are not all sent

    # -- what the caller does

    def send(
        self,
        payload: bytes,
        *,
        tag: bytes | None = None,
        settled: bool | None = None,
        transaction: bytes | None = None,
    ) -> OutgoingDelivery:
        """Queue a message, and send it as soon as there is credit. `payload` holds all its sections.

        Without a `tag`, the link gives one that it has not used before.

        Raises:
            UsageError: The tag is longer than 32 bytes or in use, or the message exceeds the peer's limit.
        """
        self.check()
        if tag is None:
            tag = self._next_tag.to_bytes(8, "big")
            self._next_tag += 1
        elif not 0 < len(tag) <= MAX_TAG or tag in self.unsettled:
            raise UsageError(f"{self}: tag {tag.hex()} is in use, or does not have 1 to {MAX_TAG} bytes")
        limit = self.max_message_size
        if limit and len(payload) > limit:
            raise UsageError(f"{self}: the message has {len(payload)} bytes, and the peer accepts at most {limit}")
        presettled = self._presettles if settled is None else settled
        delivery = OutgoingDelivery(self, tag, payload, presettled, transaction)
        self.queue.append(delivery)
        return delivery

    def recover(self, tag: bytes, payload: bytes) -> OutgoingDelivery:
        """Add a delivery of an earlier run, before the link attaches. It is resumed, or sent anew."""
        delivery = OutgoingDelivery(self, tag, payload, settled=False, transaction=None)
        self.unsettled[tag] = delivery
        return delivery

    def settle(self, delivery: OutgoingDelivery) -> None:
        """Forget a delivery, and let the peer forget it. Its outcome must be recorded by then."""
        if delivery.settled:
            return
        if delivery.resume is not None and delivery.id < 0:  # the peer's outcome came with its map
            if delivery not in self.queue:
                self.queue.appendleft(delivery)
                self.pump()
            return
        delivery.settled = True
        self.unsettled.pop(delivery.tag, None)
        if delivery.id >= 0:
            self.session.settle_outgoing(delivery, delivery.state)
        self._after_resume(delivery)

    def pump(self) -> None:
        """Send what credit and window permit."""
        if not self.attached:
            return
        session = self.session
        while self.queue and session.window > 0:
            if self._sending is None:
                if self.credit <= 0 or (self._only_resumes and self.queue[0].resume is None):
                    return
                self.credit -= 1
                self.delivery_count = (self.delivery_count + 1) & _COUNT
                delivery = self.queue[0]
                if not delivery.settled:
                    self.unsettled[delivery.tag] = delivery
                self._sending = (delivery, 0)
            delivery, sent = self._sending
            sent = session.transfer(self.handle, delivery, sent)
            if sent < 0:
                self._sending = None
                self.queue.popleft()
                self._sent(delivery)
            else:
                self._sending = (delivery, sent)

    # -- what the peer does

    def on_flow(self, flow: Flow) -> None:
        """Take the peer's credit, and answer a drain or an echo."""
        if flow.link_credit is not None:
            counted = self.delivery_count if flow.delivery_count is None else int(flow.delivery_count)
            behind = (self.delivery_count - counted) & _COUNT
            self.credit = max(int(flow.link_credit) - behind, 0) if behind < 1 << 31 else int(flow.link_credit)
        self.pump()
        if flow.drain and self.credit and self.session.window > 0:
            self.delivery_count = (self.delivery_count + self.credit) & _COUNT
            self.credit = 0
            self.session.flow(self)
        elif flow.echo:
            self.session.flow(self)
        self.session.event(CreditChanged(self))

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Refuse a transfer: this side is the sender."""
        raise ProtocolViolation(f"{self}: the peer sent a transfer on a link on which it receives")

    def on_state(self, delivery: OutgoingDelivery, state: Any, settled: bool) -> bool:
        """Take the peer's state of a delivery. Returns whether it is settled now."""
        if state is not None:
            delivery.state = state
        if settled:
            delivery.settled = True
            self.unsettled.pop(delivery.tag, None)
            self._after_resume(delivery)
            return True
        if not self.options.manual and delivery.outcome is not None:
            self.settle(delivery)
        return delivery.settled

    # -- resuming

    def _termini(self) -> dict[str, Any]:
        target = self.coordinator or self.options.target()
        return {"source": self.options.own_end(self.name), "target": target, "initial_delivery_count": 0}

    def _unsettled_map(self) -> dict[bytes, Any]:
        return {tag: _local(delivery) for tag, delivery in self.unsettled.items()}

    def _on_attached(self, remote: Attach) -> None:
        self.delivery_count = 0
        self.credit = 0
        self._resumed.clear()
        self._only_resumes = self._incomplete or bool(remote.incomplete_unsettled)
        known = remote.unsettled or {}
        again: list[OutgoingDelivery] = []
        table = resumptions(self._unsettled_map(), known, receiver_complete=not self._only_resumes)
        for tag, resumption in table.items():
            delivery, action = self.unsettled[tag], resumption.action
            if action is SenderAction.WAIT:
                continue
            if action is SenderAction.SETTLE:
                if not self.options.manual:
                    self.settle(delivery)
                continue
            delivery.resume = resumption if action is not SenderAction.RESEND else None
            if delivery.resume is not None:
                self._resumed.add(tag)
            if action in (SenderAction.ADOPT, SenderAction.AGREE) and self.options.manual:
                delivery.state = resumption.state  # the caller records the outcome before the transfer settles it
            else:
                again.append(delivery)
        self.queue.extendleft(reversed(again))
        if self._only_resumes and not self._resumed:
            self.suspend_and_attach_again()

    def _sent(self, delivery: OutgoingDelivery) -> None:
        """A delivery's last frame is sent."""
        resume, delivery.resume = delivery.resume, None
        if resume is None:
            return
        if resume.action in _SETTLING:  # the transfer has settled the delivery
            if resume.action is not SenderAction.ABORT:
                delivery.state = resume.state
            delivery.settled = True
            self.unsettled.pop(delivery.tag, None)
            self.session.forget_outgoing(delivery)
            self._after_resume(delivery)

    def _after_resume(self, delivery: OutgoingDelivery) -> None:
        if self._only_resumes:
            self._resumed.discard(delivery.tag)
            if not self._resumed and self.attached:
                self.suspend_and_attach_again()

    def _suspend(self, why: str) -> None:
        self._sending = None
        self.credit = 0
        queued = {delivery.tag for delivery in self.queue}
        if self.coordinator is not None:
            self.attaches += 1
            for delivery in self.queue:
                self._give_up(delivery)
            self.queue.clear()
        for delivery in list(self.unsettled.values()):
            delivery.id = -1
            delivery.resume = None
            if delivery.transaction is not None or self.coordinator is not None:
                self._give_up(delivery)
        if self.options.terminus.resumable:
            self.queue = deque(d for d in self.queue if d.tag not in self.unsettled and d.transaction is None)
        else:  # at least once: what has no outcome is sent again
            again = [delivery for tag, delivery in self.unsettled.items() if tag not in queued]
            self.queue = deque(d for d in [*again, *self.queue] if d.transaction is None)
            self.unsettled.clear()

    def _fail(self, why: str) -> None:
        self.queue.clear()
        self._sending = None

    def _give_up(self, delivery: OutgoingDelivery) -> None:
        delivery.state = Released()
        delivery.settled = True
        self.unsettled.pop(delivery.tag, None)


def _local(delivery: OutgoingDelivery) -> Any:
    """Return the state for the map of unsettled deliveries. A transaction ends with its connection."""
    state = delivery.state
    return None if isinstance(state, TransactionalState) or not isinstance(state, TERMINAL) else state

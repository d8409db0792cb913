"""A link on which the client receives: its subscription, its credit, and its deliveries (section 2.6.7)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.ports import ReceiverOrigin
from escrowmq.core.queues.credit import Credit, Replenishment
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.unsettled import size_of_one
from escrowmq.wire.amqp10.answers import MASK
from escrowmq.wire.amqp10.codec.states import TransactionalState
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import (
    INVALID_FIELD,
    LIMIT_EXCEEDED,
    NOT_IMPLEMENTED,
    RESOURCE_DELETED,
    STOLEN,
    link_fault,
)
from escrowmq.wire.amqp10.filters import Filters
from escrowmq.wire.amqp10.resumption import Resumption
from escrowmq.wire.amqp10.sending import TransferFrames, frames_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from escrowmq.core.branches.branch import Keeper, TransactionBranch
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.messages.marks import Modification
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.termini.loan import Loan
    from escrowmq.wire.amqp10.codec.performatives import Flow
    from escrowmq.wire.amqp10.codec.states import Received
    from escrowmq.wire.amqp10.link import Link
    from escrowmq.wire.amqp10.nodes import DynamicNode
    from escrowmq.wire.amqp10.policy import SettlementPolicy
    from escrowmq.wire.amqp10.resuming import ConsumerPlan
    from escrowmq.wire.amqp10.transactions import LocalTransaction
    from escrowmq.wire.outbox import Piece

_TRANSACTION: Final = Symbol("txn-id")
"""The property of a link that names the transaction in which it acquires."""
_BY_RECEIVER: Final = Replenishment.RECEIVER
_UNFILTERED: Final = Filters()
_PROGRESS: Final = 1000
"""Deliveries of a link for which the client's progress (`received`) is kept."""


class ConsumerLink:
    """The broker's end of a link to a consumer (`core.ports.Receiver`, `core.termini.loan.Borrower`).

    The terminus has the unsettled deliveries. Deliveries that the client's incoming window has no room for wait in
    `_unsent`, with their numbers; the queue is not asked for more until they have left.
    """

    __slots__ = (
        "_acquiring",
        "_browses",
        "_consumer",
        "_drained",
        "_draining",
        "_filters",
        "_frames",
        "_frames_left",
        "_given",
        "_loan",
        "_node",
        "_presettled",
        "_progress",
        "_resumption",
        "_stalled",
        "_unsent",
        "_unsent_after",
        "link",
        "name",
        "policy",
        "queue",
        "subscribed",
    )

    def __init__(
        self,
        link: Link,
        queue: Queue,
        *,
        presettled: bool,
        node: DynamicNode | None = None,
        filters: Filters = _UNFILTERED,
        browses: bool = False,
    ) -> None:
        session = link.session
        self.link = link
        self.name = consumer_name(link)
        self.queue = queue
        self.subscribed = False
        """Whether the queue is that of a durable subscription, which ends when the client closes the link."""
        self.policy: SettlementPolicy | None = None
        """Settles deliveries on the client's behalf, if the client wants that."""
        self._loan: Loan | None = None
        self._node = node
        self._filters = filters
        self._browses = browses
        self._presettled = presettled
        self._consumer: Consumer | None = None
        self._acquiring: LocalTransaction | None = None
        self._frames = TransferFrames(
            session.connection.broker.engine,
            queue,
            session.channel,
            link.handle,
            session.connection.frame_max,
            settled=presettled,
            origin=bool(session.connection.limits.rabbitmq_version),
        )
        self._given = 0  # the delivery-count, with the deliveries in `_unsent`
        self._unsent: deque[tuple[int, Entry]] = deque()
        self._frames_left: deque[bytes] = deque()  # the rest of a delivery, which waits for the window too
        self._unsent_after = 0  # the LSN for which both wait
        self._drained = False  # whether a drain is to be answered when they have left
        self._draining = False  # whether a drain begins when the resumption has spent its credit
        self._stalled = False
        self._progress: dict[int, Received] = {}
        self._resumption: Resumption | None = None

    def subscribe(self, loan: Loan) -> None:
        """Subscribe to the queue, without credit, on behalf of the terminus on loan. Raises BrokerError."""
        self._loan = loan
        self._consumer = loan.subscribe(
            self.queue,
            self,
            tag=self.link.name,
            credit=Credit(0, _BY_RECEIVER),
            auto_settle=self._presettled,
            label=self.name,
            link=self.name,
            selects=self._filters.selects,
            options=self._filters.options,
            browses=self._browses,
        )

    def resume(self, plan: ConsumerPlan) -> Iterator[None] | None:
        """Send the deliveries of an earlier link again as soon as the client grants credit. The returned task applies
        the outcomes that the client has named.
        """
        if self._loan is None or not (plan.pending or plan.only):
            return None
        self._resumption = Resumption(self, self._loan, self._frames, plan)
        return self._resumption.adopting()

    # -- core.termini.loan.Borrower

    def stolen(self) -> None:
        """Detach the link, because another one of the same name has its terminus now (SET-12)."""
        self.link.fail(link_fault(STOLEN, "another link of the same name was attached"))

    def deleted(self) -> None:
        """Detach the link, because its terminus was ended."""
        self.link.fail(link_fault(RESOURCE_DELETED, "the link's terminus was ended"))

    def relieved(self, text: str, *, closed: bool) -> None:
        """Detach the link, because memory is short."""
        self.link.suspend(link_fault(LIMIT_EXCEEDED, text), closed=closed)

    # -- core.ports.Receiver

    @property
    def writable(self) -> bool:
        """Whether the client can take more deliveries now."""
        session = self.link.session
        return (
            session.connection.flow.writable
            and session.remote_incoming_window > 0
            and not self._unsent
            and not self._frames_left
            and self.unsettled < session.connection.limits.unsettled
            and not self._held_back
        )

    @property
    def _held_back(self) -> bool:
        """Whether the user or the virtual host holds as much as it may. Settled deliveries do not add to that."""
        holdings = self.link.session.connection.broker.holdings
        if not holdings.any_full or self._presettled or self._loan is None:
            return False
        return self._loan.terminus.deliveries.full

    @property
    def unsettled(self) -> int:
        """The number of unsettled deliveries."""
        return self._loan.terminus.deliveries.count if self._loan is not None else 0

    @property
    def age_ms(self) -> int | None:
        """The time for which there has been at least one unsettled delivery; None if there is none."""
        if self._loan is None or not self.unsettled:
            return None
        return self.link.session.connection.broker.engine.now - self._loan.terminus.unsettled_since

    @property
    def origin(self) -> ReceiverOrigin:
        """See `Receiver.origin`."""
        session = self.link.session
        return ReceiverOrigin(str(session.connection.peer), session.channel, session.connection.user)

    def stalled(self, consumer: Consumer) -> None:
        """Note that messages are ready, but the client cannot take them."""
        self._stalled = True
        self._await_room()

    def _await_room(self) -> None:
        """Wait until the client, its session and the limits of its user have room."""
        session = self.link.session
        session.starve(self)
        session.connection.flow.stall(self)
        if self._held_back:
            session.connection.broker.holdings.pause(self)

    def wake(self) -> None:
        """Continue, if the client can take deliveries now."""
        self._push()
        if self._resumption is not None and self._consumer is not None and not self._frames_left:
            self._allow(self._resumption.credit)
            self._drain()
        if self._stalled and self._consumer is not None:
            if self.writable:
                self._stalled = False
                self.link.session.connection.broker.engine.wake(self._consumer)
            else:
                self._await_room()

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Send deliveries, as far as the client's window has room."""
        self._given += len(entries)
        first = after = 0
        if not self._presettled and self._loan is not None:
            first, after = self._loan.acquire(consumer, entries)
        if self._unsent or self._frames_left or len(entries) > self.link.session.remote_incoming_window:
            self._unsent.extend(enumerate(entries, first))
            self._unsent_after = after
            self._push()
            self._count_unsent()
        else:
            self._send(entries, first, after)

    def deliver_each(self, deliveries: list[tuple[Consumer, list[Entry]]]) -> None:
        """See `Receiver.deliver_each`. A link has one consumer."""
        for consumer, entries in deliveries:
            self.deliver(consumer, entries)

    def drained(self, consumer: Consumer, unused: int) -> None:
        """Tell the client that the queue is empty: the unused credit counts as spent."""
        self._given += unused
        self._drained = True
        self._answer_drain()

    def _count_unsent(self) -> None:
        """Count what waits for the client's window, apart from deliveries that count as unsettled."""
        if self._loan is not None:
            size = sum(map(len, self._frames_left))
            if self._presettled and self._unsent:
                size += len(self._unsent) * size_of_one([entry for _, entry in self._unsent])
            self._loan.terminus.deliveries.unsent(size)

    def _answer_drain(self) -> None:
        if self._drained and not self._unsent and not self._frames_left:
            self._drained = False
            self._send_flow(drain=True)

    def cancelled(self, consumer: Consumer) -> None:
        """Detach the link, because its queue was deleted."""
        self._consumer = None
        self.link.fail(link_fault(RESOURCE_DELETED, f"queue '{self.queue.name}' was deleted"))

    # -- sending

    def _push(self) -> None:
        """Send deliveries that waited for the client's window."""
        session = self.link.session
        waiting = bool(self._frames_left or self._unsent)
        if self._frames_left and session.remote_incoming_window > 0:
            left, self._frames_left = list(self._frames_left), deque()
            self.transmit([b"".join(left)], len(left), self._unsent_after)
        room = session.remote_incoming_window
        if self._unsent and not self._frames_left and room > 0:
            some = [self._unsent.popleft() for _ in range(min(room, len(self._unsent)))]
            self._send([entry for _, entry in some], some[0][0], self._unsent_after)
        if self._unsent or self._frames_left:
            self._stalled = True
            session.starve(self)
        if waiting:
            self._count_unsent()
        self._answer_drain()

    def _send(self, entries: list[Entry], first: int, after: int) -> None:
        """Send deliveries when the log is synced up to `after`. Their numbers at the terminus begin with `first`."""
        session = self.link.session
        number = session.next_delivery_id
        if not self._presettled:
            session.sent.add(number, len(entries), self, first)
        acquiring, state = self._acquiring, None
        if acquiring is not None and acquiring.open:
            acquiring.acquired(session, self, number, len(entries), first)
            state = TransactionalState(acquiring.id)
        pieces, frames = self._frames.build(number, entries, first, state)
        session.next_delivery_id = number + len(entries)
        self.transmit(pieces, frames, after)
        if self.policy is not None:
            self.policy.sent(number, first, len(entries))

    @property
    def amid_delivery(self) -> bool:
        """Whether frames of a delivery wait, so that no other delivery of the link may begin."""
        return bool(self._frames_left)

    def transmit(self, pieces: list[Piece], frames: int, after: int) -> None:
        """Send frames, as far as the client's window has room. The others wait."""
        session = self.link.session
        room = max(session.remote_incoming_window, 0)
        if frames > room:
            each = frames_of(b"".join(pieces))
            pieces, frames = [b"".join(each[:room])], room
            self._frames_left.extend(each[room:])
            self._unsent_after = after
            self._stalled = True
            session.starve(self)
            self._count_unsent()
        session.transmitted(frames)
        if len(pieces) == 1:
            session.connection.put(session.lane, pieces[0], after)
        else:
            session.connection.put_pieces(session.lane, pieces, after)

    # -- the client's performatives

    def flow(self, flow: Flow) -> None:
        """Set the credit (section 2.6.7). Raises AmqpFault."""
        consumer = self._consumer
        if consumer is None:
            return
        if flow.properties is not None:
            self._acquire_for(flow.properties.get(_TRANSACTION))
        if flow.link_credit is not None:
            spent = (self._given - (flow.delivery_count or 0)) & MASK
            if spent > MASK >> 1:
                spent -= MASK + 1
            self._allow(max(flow.link_credit - spent, 0))
        self._draining = flow.drain
        self._drain()
        if flow.echo and not flow.drain and self.link.end is not None:
            self._send_flow(drain=False)

    def _drain(self) -> None:
        """Begin a drain that the client wants, unless deliveries that are sent again have yet to spend their credit."""
        waits = self._resumption is not None and self._resumption.credit > 0
        if self._draining and not waits and self._consumer is not None:
            self._draining = False
            self._consumer.drain()

    def _acquire_for(self, ident: object) -> None:
        """Acquire further deliveries in a transaction, until its discharge (section 4.4.3); None ends this.

        Raises AmqpFault.
        """
        self._acquiring = None
        if ident is None:
            return
        if self._presettled:
            raise link_fault(NOT_IMPLEMENTED, "a link whose deliveries are settled cannot acquire in a transaction")
        if not isinstance(ident, bytes):
            raise link_fault(INVALID_FIELD, "the property txn-id is no binary value")
        self._acquiring = self.link.session.connection.transactions.find(ident)

    def _allow(self, credit: int) -> None:
        """Spend credit on deliveries that are sent again, then on others."""
        resumption = self._resumption
        if resumption is not None:
            sent, credit = resumption.send(credit)
            self._given += sent
            if resumption.done:
                self._resumption = None
        if self._consumer is not None:
            self._consumer.allow(credit)

    def _send_flow(self, *, drain: bool) -> None:
        credit = self._consumer.credit.left if self._consumer is not None else 0
        credit = max(credit, 0) + (self._resumption.credit if self._resumption is not None else 0)
        self.link.session.send_flow(
            handle=self.link.handle,
            delivery_count=(self._given - len(self._unsent)) & MASK,
            link_credit=credit + len(self._unsent),
            available=self.queue.ready,
            drain=drain,
        )

    @property
    def default(self) -> Disposition:
        """The outcome of deliveries that the client settles without naming one."""
        return self._loan.terminus.settings.default if self._loan is not None else Disposition.MODIFIED

    def enlist(
        self, branch: TransactionBranch, first: int, last: int
    ) -> list[tuple[Consumer, Sequence[int], list[Entry]]]:
        """Hand deliveries over to `branch`, by their numbers at the terminus. Return them with their numbers."""
        return self._loan.enlist(branch, first, last) if self._loan is not None else []

    @property
    def keeper(self) -> Keeper | None:
        """The link's loan, which takes deliveries back from a branch that is rolled back."""
        return self._loan

    def reach(self, first: int, last: int) -> int:
        """Return the number up to which deliveries are rejected together. There are few if dead letters go to many
        queues.
        """
        return self._loan.reach(first, last) if self._loan is not None else last

    def settle(self, first: int, last: int, settlement: Disposition | Modification) -> int:
        """Settle deliveries by their numbers at the terminus. Return how many of them were unsettled."""
        count = self._loan.settle(first, last, settlement) if self._loan is not None else 0
        if self._progress:
            for number in [number for number in self._progress if first <= number <= last]:
                del self._progress[number]
        if self._stalled and count:
            self.wake()
        return count

    def note_progress(self, first: int, last: int, state: Received) -> None:
        """Note how much of a delivery the client has received (SET-4). It does not settle the delivery."""
        if first == last and (first in self._progress or len(self._progress) < _PROGRESS):
            self._progress[first] = state

    # -- the end

    def release(self, *, closed: bool) -> int:
        """Give the terminus back. Unless the link is closed, the client may still settle its deliveries. Return the LSN
        that the answer waits for.
        """
        session, loan = self.link.session, self._loan
        self._consumer = self._acquiring = self._resumption = None
        if self.policy is not None:
            self.policy.stop()
            self.policy = None
        session.connection.flow.forget(self)
        session.connection.broker.holdings.forget(self)
        after = 0
        if loan is not None:
            if self._unsent and not self._presettled and loan.current:
                loan.settle(self._unsent[0][0], self._unsent[-1][0], Disposition.RELEASED)
            if closed:
                session.sent.forget(self)
                session.forget_loan(loan)
                after = loan.close()
            else:
                loan.detach()
        self._unsent.clear()
        self._frames_left.clear()
        self._count_unsent()
        if self._node is not None and closed:
            self._node.close()
        return after

    def unsubscribe(self) -> int:
        """End the durable subscription whose link the client has closed, unless other links use it. Return the LSN that
        the answer waits for.
        """
        connection, queue = self.link.session.connection, self.queue
        if not self.subscribed or queue.deleted or queue.consumers:
            return 0
        if connection.door.allows(Operation.DELETE_QUEUE, queue=queue.name):
            connection.broker.directory.delete_queue(queue)
        return connection.broker.log.end_lsn

    def block(self, *, on: bool) -> None:
        """Do nothing: consumers continue while publishers are blocked."""

    def forbidden(self) -> bool:
        """Whether the user may no longer read the queue."""
        return not self.link.session.connection.door.allows(Operation.CONSUME, queue=self.queue.name)

    def describe(self) -> dict[str, object]:
        """Return the link's entry in lists."""
        return {
            "address": self.queue.name,
            "credit": self._consumer.credit.left if self._consumer is not None else 0,
            "unsettled": self.unsettled,
        }


def consumer_name(link: Link) -> str:
    """Return the name by which a message excludes the link, and by which the log names its consumer."""
    return f"{link.session.connection.container}/{link.name}"

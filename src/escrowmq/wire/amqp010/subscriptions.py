"""The subscriptions of a session and their deliveries: message.subscribe and message.cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.access.holdings import STEP, SUBSCRIPTION_BYTES
from escrowmq.core.access.table import Operation
from escrowmq.core.branches.branch import TransactionBranch
from escrowmq.core.budget import CANCELLED
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.credit import ByteCredit, Credit, Replenishment
from escrowmq.core.queues.unsettled import Unsettled
from escrowmq.core.topology.arguments.consumer import ConsumerOptions, consumer_options
from escrowmq.wire.amqp010.codec.encoding import write_map
from escrowmq.wire.amqp010.codec.spec import AcceptMode, AcquireMode, ErrorCode, MessageCancel, MessageSubscribe
from escrowmq.wire.amqp010.delivery import OutgoingTransfers, size_of
from escrowmq.wire.amqp010.headers import header_values
from escrowmq.wire.amqp010.inflight import CreditWindow, InFlight
from escrowmq.wire.amqp010.ports import Reply
from escrowmq.wire.amqp010.queues import check_free
from escrowmq.wire.amqp010.sequence import Numbers
from escrowmq.wire.amqp010.shown import RUN_BYTES, Shown
from escrowmq.wire.delivery_ages import DeliveryAges
from escrowmq.wire.selectors.sql import qpid_selector
from escrowmq.wire.selectors.stored import selecting
from escrowmq.wire.selectors.values import SelectorError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.ports import ReceiverOrigin
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.selection import Selector
    from escrowmq.wire.amqp010.codec.types import Value
    from escrowmq.wire.amqp010.ports import Content, SessionPort
    from escrowmq.wire.outbox import Piece

MOST_RELEASED: Final = 10_000
"""The most ranges of deliveries that a client may release in one transaction."""
SELECTOR: Final = "x-filter-jms-selector"
"""The argument of a subscription that has a selector, as Qpid JMS sends it."""


class QueueSubscription:
    """One subscription. `flushes` are the numbers of the commands message.flush that wait for the end of the drain.

    `limited` tells whether the credit in messages is limited. If it is not, completion need not restore any.
    """

    __slots__ = ("consumer", "destination", "explicit", "flushes", "limited", "transfers", "window")

    def __init__(self, session: SessionPort, destination: str, consumer: Consumer, *, explicit: bool) -> None:
        self.destination = destination
        self.consumer = consumer
        self.explicit = explicit
        self.flushes: list[int] = []
        self.window = CreditWindow(consumer)
        self.limited = True
        self.transfers = self.outgoing(session)

    def outgoing(self, session: SessionPort) -> OutgoingTransfers:
        """Return what builds its transfers for the present channel of `session`."""
        return OutgoingTransfers(
            self.destination,
            session.channel,
            session.frame_max,
            explicit=self.explicit,
            acquired=not self.consumer.browses,
        )

    @property
    def by(self) -> Replenishment:
        """What restores its credit: the flow mode."""
        return self.consumer.credit.by

    def stop(self) -> None:
        """Set the credit to zero, in messages and in bytes. The completion of earlier transfers restores none."""
        self.consumer.stop()
        self.window.open = False
        self.window = CreditWindow(self.consumer)
        self.limited = True
        self.consumer.weigh(ByteCredit(size_of, 0, self.by))


class Subscriptions:
    """The subscriptions of one session: a part of the session (`ports.SessionPart`), and the receiver, holder and
    keeper of its deliveries.

    A delivery is kept under the number of its transfer plus one, because tags begin with 1.
    """

    def __init__(self, session: SessionPort) -> None:
        self.session = session
        self.broker = session.broker
        self.found: dict[str, QueueSubscription] = {}
        self.unsettled = Unsettled()
        self.in_flight = InFlight()
        self.ages = DeliveryAges()
        self.shown = Shown()
        self._released: dict[bool, Numbers] = {}
        self.flushing = 0
        """The number of commands message.flush that are not complete."""
        self._uncounted = 0  # about the bytes of deliveries since `count_held`
        self._stalled: dict[Consumer, None] = {}  # consumers to be served when the session is writable
        self._left = False
        self.broker.engine.holders[self] = None

    def named(self, destination: str | None) -> QueueSubscription:
        """Return the subscription with this destination. Raises NOT_FOUND."""
        found = self.found.get(destination or "")
        if found is None:
            raise BrokerError(Condition.NOT_FOUND, f"there is no subscription with the destination '{destination}'")
        return found

    def release_after_rollback(self, ranges: list[tuple[int, int]], *, set_redelivered: bool) -> None:
        """Note that the client has released these tags, some of which are settled in the open transaction. Raises
        LIMIT_EXCEEDED.
        """
        released = self._released.setdefault(set_redelivered, Numbers())
        for first, last in ranges:
            released.add(first, min(last, self.next_tag - 1))
        if len(released) > MOST_RELEASED:
            raise BrokerError(Condition.LIMIT_EXCEEDED, f"deliveries are released in {len(released)} places")

    def take_released(self) -> list[tuple[bool, list[tuple[int, int]]]]:
        """Remove and return what `release_after_rollback` has noted, by `set_redelivered`."""
        found, self._released = self._released, {}
        return [(set_redelivered, released.take()) for set_redelivered, released in found.items()]

    def answer_flushes(self, subscription: QueueSubscription) -> None:
        """Complete the commands that wait for the end of a drain."""
        flushes, subscription.flushes = subscription.flushes, []
        self.flushing -= len(flushes)
        for number in flushes:
            self.session.answer(number, None)

    # -- core.ports.Receiver

    @property
    def origin(self) -> ReceiverOrigin:
        """See `Receiver.origin`."""
        return self.session.origin

    @property
    def writable(self) -> bool:
        """Whether the client can take more deliveries now."""
        return (
            self.session.has_room
            and not self._left
            and self.session.flow.writable
            and self.unsettled.count < self.session.limits.unsettled
        )

    def stalled(self, consumer: Consumer) -> None:
        """Note that messages are ready for `consumer`, but the client cannot take them."""
        if self._left:
            return
        self._stalled[consumer] = None
        if not self.session.flow.writable:
            self.session.flow.stall(self)
        elif not self.session.has_room:
            self.broker.holdings.pause(self)

    def wake(self) -> None:
        """Serve the consumers that waited until the client can take more."""
        if self._stalled and not self._left:
            stalled, self._stalled = self._stalled, {}
            for consumer in stalled:
                self.broker.engine.wake(consumer)

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Send deliveries. Those that the client accepts are kept until it does."""
        subscription: QueueSubscription = consumer.view
        first = self.session.send_frames(subscription.transfers.build(entries), len(entries))
        if consumer.browses:
            self.shown.add(first, consumer.queue, entries)
        elif subscription.explicit:
            self.unsettled.next_tag = first + 1
            self.unsettled.add(entries, consumer)
        if subscription.by is Replenishment.COMPLETION:
            weighs = consumer.byte_credit is not None
            if weighs or subscription.limited:
                sizes = list(map(size_of, entries)) if weighs else None
                self.in_flight.add(first, subscription.window, len(entries), sizes)
        self._uncounted += len(entries) * (64 + len(entries[-1].content))
        if self._uncounted >= STEP:
            self._uncounted = 0
            self.session.count_held()

    def deliver_each(self, deliveries: list[tuple[Consumer, list[Entry]]]) -> None:
        """See `Receiver.deliver_each`."""
        for consumer, entries in deliveries:
            self.deliver(consumer, entries)

    def drained(self, consumer: Consumer, unused: int) -> None:
        """Complete message.flush: the credit is used up or cancelled."""
        del unused
        subscription: QueueSubscription = consumer.view
        subscription.stop()
        self.answer_flushes(subscription)

    def cancelled(self, consumer: Consumer) -> None:
        """End the session, because the queue of a subscription was deleted (exception queue-deletion)."""
        subscription: QueueSubscription = consumer.view
        if self.found.pop(subscription.destination, None) is not None and not self._left:
            self.answer_flushes(subscription)
            self.session.end(ErrorCode.RESOURCE_DELETED, f"queue '{consumer.queue.name}' was deleted")

    # -- the memory that counts for the user and the virtual host

    @property
    def counted_bytes(self) -> int:
        """The bytes that count, about, without those of the branch."""
        fixed = SUBSCRIPTION_BYTES * len(self.found) + RUN_BYTES * len(self.shown)
        return self.unsettled.bytes + self.in_flight.bytes + fixed

    def count_freed(self) -> None:
        """Count less, since deliveries were settled. Consumers that waited for that go on."""
        self.session.count_held()
        if self._stalled:
            self.wake()

    # -- core.ports.Holder, core.branches.branch.Keeper, server.relief.MemoryOwner

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """Return every unsettled delivery. Deliveries that were settled in a branch belong to the branch."""
        return self.unsettled.copies()

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """See `Holder.copy_ahead`."""
        return self.unsettled.copy_ahead(at, most)

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """Return at most `most` of those deliveries, from number `start` on."""
        return self.unsettled.part(start, most)

    def keep(self, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
        """Make deliveries unsettled again, because their settlement was undone (TX-4)."""
        self.unsettled.restore(consumer, tags, entries)
        self.session.count_held()

    @property
    def owner(self) -> tuple[str, object]:
        """The user and the connection (`server.relief.MemoryOwner`)."""
        return self.session.user, self.session.owner.connection

    @property
    def next_tag(self) -> int:
        """The tag of the next delivery."""
        return self.session.next_id + 1

    def held_bytes(self, before: int) -> int:
        """The bytes of the open transaction, and of unsettled deliveries with tags less than `before`, about."""
        branch: TransactionBranch | None = self.session.branch
        return (branch.bytes if branch is not None else 0) + self.unsettled.bytes_before(before)

    def give_up(self, text: str) -> None:
        """End the session, because memory is short and the session has held much for long."""
        self.session.end(ErrorCode.RESOURCE_LIMIT_EXCEEDED, text)

    # -- ports.SessionPart

    @property
    def lasting(self) -> bool:
        """Subscriptions and unsettled deliveries are kept. The output of a session that is detached is not writable."""
        return True

    def attached(self) -> None:
        """Build transfers for the new channel."""
        for subscription in self.found.values():
            subscription.transfers = subscription.outgoing(self.session)

    def sent_again(self, first: int, most: int) -> list[tuple[int, list[Piece]]]:
        """Return transfers that are unsettled. Messages that the client has acquired after they were shown to it have
        arrived.
        """
        found: list[tuple[int, list[Piece]]] = []
        builders: dict[QueueSubscription, OutgoingTransfers] = {}
        for tag, entries, consumer in self.unsettled.stretches(first + 1):
            if len(found) >= most:
                break
            subscription = consumer.view
            if not isinstance(subscription, QueueSubscription):
                continue
            builder = builders.get(subscription)
            if builder is None:
                builder = builders[subscription] = subscription.outgoing(self.session)
            begin = max(first + 1 - tag, 0)
            for number, entry in enumerate(entries[begin : begin + most], tag - 1 + begin):
                found.append((number, builder.build([entry])))
        return found[:most]

    def caught_up(self) -> None:
        """Serve the consumers that have waited."""
        self.wake()

    def flush(self) -> None:
        """Do nothing: no work is put off."""

    def completed(self, first: int, last: int) -> None:
        """Restore the credit of transfers that the client has completed."""
        for window, count, size in self.in_flight.complete(first, last):
            if window.open and window.consumer.receiver is not None:
                window.consumer.completed(count, size)

    def note_ages(self, now_ms: int) -> None:
        """See `SessionPart.note_ages`."""
        self.ages.note(now_ms, self.unsettled)

    def dropping_forbidden(self) -> Iterator[None]:
        """End the session if it has a subscription to a queue that the user may no longer read."""
        for subscription in list(self.found.values()):
            queue = subscription.consumer.queue
            try:
                self.session.door.check(Operation.CONSUME, queue=queue.name)
            except BrokerError as error:
                self.session.end(ErrorCode.UNAUTHORIZED_ACCESS, error.text)
                return
            yield

    def leave(self) -> None:
        """The session ends: deliver nothing more."""
        self._left = True

    def leaving(self) -> Iterator[None]:
        """Detach the consumers. Yield whenever the turn's budget is used up."""
        self._left = True
        requests = self.broker.engine.requests
        found, self.found = self.found, {}
        while found:  # from the last one on, so that no other one becomes active
            _, subscription = found.popitem()
            self.broker.engine.unsubscribe(subscription.consumer)
            requests.left -= CANCELLED
            if requests.left <= 0:
                yield

    def returning(self) -> Iterator[None]:
        """Return the deliveries to their queues."""
        engine = self.broker.engine
        unsettled, self.unsettled = self.unsettled, Unsettled()
        engine.give_back(unsettled, unsettled.count, unsettled.queues())
        engine.holders.pop(self, None)
        self.in_flight.clear()
        self.shown.clear()
        self._stalled.clear()
        self.broker.holdings.forget(self)
        self.session.flow.forget(self)
        return iter(())

    def row(self) -> dict[str, object]:
        """Return the session's entries in lists."""
        age_ms = self.ages.age_ms(self.broker.engine.now, self.unsettled)
        return {"consumers": len(self.found), "unsettled": self.unsettled.count, "age_ms": age_ms}


def message_subscribe(session: SessionPort, command: MessageSubscribe, _: Content | None) -> None:
    """Begin a subscription. It has no credit, and its flow mode is the window."""
    subscriptions = session.part(Subscriptions)
    destination = command.destination or ""
    if destination in subscriptions.found:
        raise BrokerError(
            Condition.NOT_ALLOWED, f"there is a subscription with the destination '{destination}' already"
        )
    if command.resume_id is not None:
        raise BrokerError(Condition.NOT_IMPLEMENTED, "subscriptions cannot be resumed")
    explicit = _choice(command.accept_mode, "accept-mode") == AcceptMode.EXPLICIT
    browses = _choice(command.acquire_mode, "acquire-mode") == AcquireMode.NOT_ACQUIRED
    session.door.check(Operation.CONSUME, queue=command.queue or "")
    queue = session.vhost.queue(command.queue or "")
    check_free(session, queue)
    selects, options = _arguments_of(session, queue, command.arguments or {})
    session.check_held(SUBSCRIPTION_BYTES, "the subscription")
    if command.exclusive and queue.consumers:
        raise BrokerError(Condition.RESOURCE_LOCKED, f"queue '{queue.name}' has other subscriptions")
    if queue.consumers.exclusive is not None:
        raise BrokerError(Condition.RESOURCE_LOCKED, f"queue '{queue.name}' is in exclusive use")
    consumer = session.broker.engine.subscribe(
        queue,
        subscriptions,
        tag=destination,
        credit=Credit(0, Replenishment.COMPLETION),
        auto_settle=not explicit,
        exclusive=command.exclusive,
        options=options,
        label=f"{session.label} {destination}",
        selects=selects,
        browses=browses,
    )
    subscription = QueueSubscription(session, destination, consumer, explicit=explicit)
    consumer.view = subscription
    subscriptions.found[destination] = subscription
    subscription.stop()


def _choice(value: int | None, what: str) -> int:
    if value not in (None, 0, 1):
        raise BrokerError(Condition.INVALID_ARGUMENT, f"there is no {what} {value}")
    return value or 0


def _arguments_of(
    session: SessionPort, queue: Queue, arguments: dict[str, Value]
) -> tuple[Selector | None, ConsumerOptions]:
    """Return the selector and the options of a subscription. Raises INVALID_ARGUMENT, LIMIT_EXCEEDED or
    PRECONDITION_FAILED.
    """
    if len(write_map(arguments)) > session.limits.arguments:
        raise BrokerError(Condition.LIMIT_EXCEEDED, f"arguments have at most {session.limits.arguments} bytes")
    options = consumer_options(queue.vhost, queue.name, queue.options.queue_type, header_values(arguments))
    text = arguments.get(SELECTOR)
    if text is None or text == "":
        return None, options
    if not isinstance(text, str):
        raise BrokerError(Condition.INVALID_ARGUMENT, f"the argument {SELECTOR} is no text")
    try:
        return selecting([qpid_selector(text)]), options
    except SelectorError as error:
        raise BrokerError(Condition.INVALID_ARGUMENT, f"invalid selector: {error}") from None


def message_cancel(session: SessionPort, command: MessageCancel, _: Content | None) -> Reply | None:
    """End a subscription. Its deliveries can still be settled. An auto-delete queue is deleted with its last one."""
    subscriptions = session.part(Subscriptions)
    subscription = subscriptions.named(command.destination)
    consumer = subscription.consumer
    consumer.queue.refresh()  # the consumer gets the messages that were published before its cancellation
    subscriptions.found.pop(subscription.destination, None)
    session.broker.engine.unsubscribe(consumer)
    subscriptions.answer_flushes(subscription)
    return Reply(after=session.broker.log.end_lsn) if consumer.queue.deleted and consumer.queue.durable else None

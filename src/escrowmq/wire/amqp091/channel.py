"""A channel: publishing and deliveries. Settlements, confirms and transactions have modules of their own."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.holdings import STEP, SUBSCRIPTION_BYTES
from escrowmq.core.access.table import Operation
from escrowmq.core.branches.branch import Publication, TransactionBranch
from escrowmq.core.branches.watch import Watch
from escrowmq.core.broker import Broker
from escrowmq.core.budget import CANCELLED, COPIES, PUBLISH, ROUTED
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.leftover import WAIT
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.ports import ReceiverOrigin
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.credit import Window
from escrowmq.core.queues.placing import WIDE
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.unsettled import Unsettled
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.confirms import Confirms
from escrowmq.wire.amqp091.content import Content
from escrowmq.wire.amqp091.delivery import Deliveries, build_each, parts_of
from escrowmq.wire.amqp091.errors import REPLIES, reply_text
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.getting import Getting
from escrowmq.wire.amqp091.keyed import routing_key_of
from escrowmq.wire.amqp091.properties import REPLY_TO
from escrowmq.wire.amqp091.publication import Address, Form, with_reply_to
from escrowmq.wire.amqp091.spec import BasicCancel, BasicPublish, BasicReturn, ChannelClose, TxCommit, TxCommitOk
from escrowmq.wire.amqp091.transaction import time_out
from escrowmq.wire.delivery_ages import DeliveryAges
from escrowmq.wire.outbox import Piece

if TYPE_CHECKING:
    from escrowmq.core.branches.xid import Xid
    from escrowmq.core.engine import Receipt
    from escrowmq.wire.amqp091.connection import Connection
    from escrowmq.wire.amqp091.method import Method
    from escrowmq.wire.amqp091.reply_to import ReplyAddress
    from escrowmq.wire.demarcation import Demarcation

_BODY_START: Final = struct.Struct(">BBH")  # end of the header frame; type and channel of the body frame

_CUT: Final = 128 << 10
"""Bytes of an incomplete message that count, but are not refused."""


class Channel:
    """One channel of a connection. It receives the deliveries of its consumers.

    A channel is in one of four modes: normal; confirming (`confirm.select`); transactional (`tx.select`; `branch` is
    never None then); or working for XA branches (`dtx-demarcation.select` sets `demarcation`, and `branch` is the
    branch with which the channel is associated). `closing` is true after the broker has closed the channel: everything
    but the client's answer is ignored (section 1.5.2.5).
    """

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.broker: Broker = connection.broker
        self.vhost: VirtualHost[Queue] = connection.vhost
        self.door = connection.door
        self.closing = False
        self._released = False
        self.flow = True
        self.prefetch = 0
        self.window = Window()
        self.consumers: dict[str, Consumer] = {}
        self._stalled: dict[Consumer, None] = {}  # consumers to be served when the connection is writable
        self.unsettled = Unsettled()
        self.ages = DeliveryAges()
        self._holdings = self.broker.holdings
        self._user = connection.user
        self.holding = self._holdings.begin(self._user, self.vhost.name)
        self._uncounted = 0  # about the bytes of deliveries since `count_held`
        self.branch: TransactionBranch | None = None
        self.commit_frame = method_frame(number, TxCommit())
        self.method_start = self.commit_frame[:3]
        self.commit_ok = method_frame(number, TxCommitOk())
        self.confirming = False
        self.traffic = self.broker.engine.counters.traffic_of(self.vhost.name, "amqp091")
        self.confirms = Confirms(connection, number, self.traffic)
        self.demarcation: Demarcation | None = None
        self.committing: Iterator[None] | None = None  # the rest of a large commit
        self.scan: list[Xid] | None = None  # xids that dtx-coordination.recover has still to report
        self.cancels: list[BasicCancel] | None = None  # cancellations to be sent after the answer to queue.delete
        self.reply_address: ReplyAddress | None = None
        self.last_queue = ""
        self.getting = Getting(self)
        self.content: Content | None = None
        # The last publish that came as three consecutive frames: its form, its bytes before the body's size, and its
        # bytes between that size and the size of the body frame.
        self.form: Form | None = None
        self.prefix = b""
        self.middle = b""
        self.address: Address | None = None  # of the last publish whose content was packed or keyed
        self.lone = False  # whether the last publish differed from those before it in method or properties
        self.body_start = _BODY_START.pack(codes.FRAME_END, codes.FRAME_BODY, number)
        self.watch = Watch(self.broker.engine.deadlines, connection.limits.transaction.age, partial(time_out, self))
        self.broker.engine.holders[self] = None
        self.broker.engine.channels[self._user] += 1
        self.broker.engine.counters.channels_opened += 1

    # -- output

    def send(self, method: Method, after: int = 0) -> None:
        """Send a method as soon as the log is synced up to `after`, and it is certain that nothing newer is in it."""
        self.connection.put(self.number, method_frame(self.number, method), self.broker.log.proof_lsn(after))

    def answer(self, method: Method, *, no_wait: bool, durable: bool) -> None:
        """Answer a declaration. If it changed durable state, the answer waits until the log is synced."""
        if not no_wait:
            self.send(method, self.broker.log.end_lsn if durable else 0)

    # -- publishing

    def publish(self, form: Form, contents: list[bytes]) -> None:
        """Publish a run of messages. Raises BrokerError for a fault that closes the channel (TX-6)."""
        self.resolve(form)
        envelope, queues = form.envelope, form.queues
        self.traffic.received += len(contents)
        if len(queues) <= WIDE or self.branch is not None:  # others are charged for each piece
            self.broker.engine.requests.left -= PUBLISH + len(queues) * (1 + len(contents) // COPIES)
        if form.found.reply_to == REPLY_TO:
            envelope = self._with_reply_address(envelope)
        if self.branch is not None:
            if queues or form.mandatory:
                self.broker.transactions.enlist(self.branch, Publication(envelope, contents, queues, form.mandatory))
            else:
                self.traffic.dropped += len(contents)
            return
        if not queues:
            after = self.broker.log.proof_lsn(0)  # another node may have bound a queue
            if form.mandatory:
                self.send_returns(envelope, contents, after)
            else:
                self.traffic.dropped += len(contents)
            if self.confirming:
                self.confirms.add(len(contents), after)
            return
        receipt = self.broker.engine.publish(envelope, contents, queues, divided=True)
        if receipt.placings:
            self.connection.await_rest(self, self._placed(receipt, len(contents)))
        elif not self.confirming:
            return
        elif receipt.refused:
            self.confirms.add_some(len(contents), receipt.refused, receipt.lsn)
        else:
            self.confirms.add(len(contents), receipt.lsn)

    def _placed(self, receipt: Receipt, count: int) -> Iterator[bool]:
        """Confirm `count` publishes when they are in all of their queues. Until then the client is not read."""
        while not all(placing.done for placing in receipt.placings):
            yield WAIT
        if self.confirming:
            refused = tuple([number for placing in receipt.placings for number in placing.refused])
            self.confirms.add_some(count, refused, max([receipt.lsn, *[placing.lsn for placing in receipt.placings]]))

    def publish_each(self, publishes: list[tuple[Envelope, list[bytes], Sequence[Queue]]], count: int) -> None:
        """Publish runs of `count` messages in all, outside a transaction, to queues that refuse none."""
        if self.closing:
            return
        self.traffic.received += count
        receipt = self.broker.engine.publish_each(publishes)
        if receipt.placings:
            self.connection.await_rest(self, self._placed(receipt, count))
        elif self.confirming:
            self.confirms.add(count, receipt.lsn)

    def resolve(self, form: Form) -> None:
        """Check the permission to publish and find the queues, unless both are known. Raises the same errors as
        `_resolve`.
        """
        if form.version != self.vhost.version or form.allowed != self.broker.access.version:
            if form.direct and form.allowed == self.broker.access.version and not form.queues[0].deleted:
                return
            self._resolve(form)
            if form.packs:
                # Routing reads the headers from the envelope's own properties, and limits in bytes count bodies only.
                form.apart = self.vhost.needs_content(form.address.exchange) or any(
                    queue.options.max_length_bytes is not None for queue in form.queues
                )

    def _resolve(self, form: Form) -> None:
        """Check the permission to publish and find the queues. Raises NOT_FOUND, ACCESS_REFUSED or
        PRECONDITION_FAILED.
        """
        vhost, access, address = self.vhost, self.broker.access, form.address
        if form.plain and address.version == vhost.version and address.allowed == access.version:
            form.queues, form.version, form.allowed = address.queues, address.version, address.allowed
            form.direct = False
            return
        envelope, user = form.envelope, self.connection.user
        self._permit(envelope.exchange, (envelope.routing_key, *envelope.extra_keys))
        claimed = form.found.user_id
        if claimed is not None and claimed != user:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"user_id property set to '{claimed}' but authenticated user was '{user}'",
            )
        reply = self.broker.engine.direct.get((vhost.name, envelope.routing_key)) if not envelope.exchange else None
        if reply is not None:
            form.queues = (reply,)
        elif form.packs and vhost.needs_content(envelope.exchange):
            form.queues = ()  # each message is routed on its own
        else:
            form.queues = self.broker.engine.route(vhost, envelope)
        form.direct = reply is not None
        form.version = vhost.version if reply is None else -1  # a reply address may be gone at the next publish
        form.allowed = access.version
        if form.plain and reply is None and not vhost.needs_content(envelope.exchange):
            address.lead_to(form.queues, form.version, form.allowed)

    def _permit(self, exchange: str, keys: tuple[str, ...]) -> None:
        """Check the permission to publish under these routing keys. Raises NOT_FOUND or ACCESS_REFUSED."""
        self.door.check_publish(exchange, keys)
        self.vhost.exchange_for_publish(exchange)

    def find_queues(self, address: Address) -> bool:
        """Check the permission to publish to `address` and find its queues. Returns False, without having done so, if
        the queues may differ from message to message. Raises NOT_FOUND or ACCESS_REFUSED.
        """
        vhost, exchange, key = self.vhost, address.exchange, address.routing_key
        self._permit(exchange, (key,))
        if vhost.needs_content(exchange):
            return False
        queues = vhost.route(exchange, key)
        self.broker.engine.requests.left -= len(queues) // ROUTED + vhost.take_cost()
        address.lead_to(queues, vhost.version, self.broker.access.version)
        return True

    def _with_reply_address(self, envelope: Envelope) -> Envelope:
        if self.reply_address is None:
            raise BrokerError(Condition.PRECONDITION_FAILED, "fast reply consumer does not exist")
        return Envelope(
            envelope.exchange,
            envelope.routing_key,
            with_reply_to(envelope.header, self.reply_address.name),
            protocol=envelope.protocol,
            durable=envelope.durable,
            priority=envelope.priority,
            ttl=envelope.ttl,
            extra_keys=envelope.extra_keys,
        )

    def send_returns(self, envelope: Envelope, contents: list[bytes], after: int = 0) -> None:
        """Return unroutable messages to their publisher."""
        self.traffic.returned += len(contents)
        for content in contents:
            key = routing_key_of(envelope, content)
            head = method_frame(self.number, BasicReturn(codes.NO_ROUTE, "NO_ROUTE", envelope.exchange, key))
            props, body = parts_of(envelope, content)
            self.connection.put_content(self.number, head, props, body, after)

    # -- deliveries

    @property
    def origin(self) -> ReceiverOrigin:
        """See `Receiver.origin`."""
        return ReceiverOrigin(str(self.connection.peer), self.number, self._user)

    @property
    def writable(self) -> bool:
        if self._holdings.any_full and self.holding.share and self.holding.full:
            return False
        return self.flow and self.connection.flow.writable

    # -- the memory that counts for the user and the virtual host

    @property
    def counted_bytes(self) -> int:
        """The bytes that count, about, without those of the branch."""
        return self.unsettled.bytes + SUBSCRIPTION_BYTES * len(self.consumers) + self._incomplete_bytes

    @property
    def _incomplete_bytes(self) -> int:
        return self.content.held_bytes if self.content is not None else 0

    def count_held(self) -> None:
        """Count the deliveries that have become unsettled."""
        self._uncounted = 0
        held = self.counted_bytes
        if held > self.holding.share:
            self.holding.follow(held)

    def count_content(self, content: Content) -> None:
        """Count a message that is incomplete at the end of a read. If a limit is exceeded, close the channel.

        One short message of each connection is never refused: reads end anywhere, so every publisher may have one.
        """
        content.leave_read()
        content.counted = True
        try:
            self.check_held(0, "a message that is incomplete")
        except BrokerError as error:
            others = (one for one in self.connection.channels.values() if one.content is not None and one is not self)
            if content.held_bytes > _CUT or next(others, None) is not None:
                self.refuse(error, BasicPublish())
            else:
                self.holding.follow(self.counted_bytes)

    def take_content(self, content: Content) -> None:
        """The message is complete: it does not count any more."""
        self.content = None
        if content.counted:
            self.holding.follow(self.counted_bytes)

    def check_room(self) -> None:
        """Raises LIMIT_EXCEEDED if the user or the virtual host holds as much as it may."""
        if self.holding.full:
            self.holding.grow(self.holding.share + 1, "an unacknowledged delivery")

    def check_held(self, more: int, what: str) -> None:
        """Raises LIMIT_EXCEEDED if the user or the virtual host may not hold `more` bytes for `what`."""
        self.holding.grow(self.counted_bytes + more, what)

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Send deliveries. Unsettled ones are stored under their tags."""
        deliveries: Deliveries = consumer.view
        first = self.unsettled.next_tag
        if consumer.auto_settle:
            self.unsettled.skip(len(entries))
        else:
            self.unsettled.add(entries, consumer)
        # Translated frames may be much shorter than the content, so a content counts, too.
        self._uncounted += len(entries[-1].content)
        self._put_deliveries(deliveries.build(first, entries))

    def deliver_each(self, deliveries: list[tuple[Consumer, list[Entry]]]) -> None:
        """See `Receiver.deliver_each`."""
        self._uncounted += sum([len(entries[-1].content) for _, entries in deliveries])
        self._put_deliveries(build_each(self.unsettled.add_each(deliveries), deliveries))

    def _put_deliveries(self, pieces: list[Piece]) -> None:
        if len(pieces) == 1:
            self._uncounted += len(pieces[0])
            self.connection.put(self.number, pieces[0])
        else:
            self._uncounted = STEP
            self.connection.put_pieces(self.number, pieces)
        if self._uncounted >= STEP:
            self.count_held()

    def stalled(self, consumer: Consumer) -> None:
        """Note that messages are ready for `consumer`, but the connection is not writable."""
        if self._released:
            return
        self._stalled[consumer] = None
        if self.holding.full and self.flow and self.connection.flow.writable:
            self.broker.holdings.pause(self)
        else:
            self.connection.flow.stall(self)

    def wake(self) -> None:
        """Serve the consumers that waited until the connection is writable."""
        if self.flow and self._stalled:
            stalled, self._stalled = self._stalled, {}
            for consumer in stalled:
                self.broker.engine.wake(consumer)

    def drained(self, consumer: Consumer, unused: int) -> None:
        """Do nothing: AMQP 0-9-1 has no drain."""

    def cancelled(self, consumer: Consumer) -> None:
        """Tell the client that the consumer's queue was deleted, if it understands cancellations."""
        if self.consumers.pop(consumer.tag, None) is not None and self.connection.cancel_notify:
            cancel = BasicCancel(consumer.tag, True)
            if self.cancels is None:
                self.send(cancel)
            else:
                self.cancels.append(cancel)

    def dropping_forbidden_consumers(self) -> Iterator[None]:
        """End the consumers of queues that the user may no longer read, and tell the client as when a queue is deleted.
        The client keeps the deliveries that it has not settled. Yield after each consumer that was checked.
        """
        for tag, consumer in list(self.consumers.items()):
            queue = consumer.queue
            if self.consumers.get(tag) is not consumer:
                continue
            if queue is not self.reply_address and not self.door.allows(Operation.CONSUME, queue=queue.name):
                self.broker.engine.unsubscribe(consumer)
                self.cancelled(consumer)
            yield

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
        self.count_held()

    # -- memory

    @property
    def owner(self) -> tuple[str, object]:
        """The user and the connection (`server.relief.MemoryOwner`)."""
        return self._user, self.connection

    @property
    def next_tag(self) -> int:
        """The tag of the next delivery."""
        return self.unsettled.next_tag

    def held_bytes(self, before: int) -> int:
        """The bytes of the open transaction, of an incomplete message, and of unsettled deliveries with tags less than
        `before`, about.
        """
        branch = self.branch.bytes if self.branch is not None else 0
        return branch + self._incomplete_bytes + self.unsettled.bytes_before(before)

    def give_up(self, text: str) -> None:
        """Close the channel, because memory is short and the channel has held much for long."""
        self.fail(codes.RESOURCE_ERROR, text)

    # -- the end

    def fail(self, code: int, text: str, method: Method | None = None, after: int = 0) -> None:
        """Close the channel for a fault of the client or a limit of a transaction (TX-13). `after` is the same as in
        `send`.
        """
        if self.closing:
            return
        self.confirms.send()
        self.release()
        self.closing = self.confirms.closed = True
        class_id, method_id = (method.CLASS_ID, method.METHOD_ID) if method is not None else (0, 0)
        self.send(ChannelClose(code, reply_text(code, text), class_id, method_id), after)
        self.connection.failed(code, f"channel {self.number}: {text}")

    def refuse(self, error: BrokerError, method: Method | None = None, after: int = 0) -> None:
        """Close the channel because the core refused an operation. `after` is the same as in `send`."""
        self.fail(REPLIES[error.condition].code, error.text, method, after)

    def drop_reply_address(self) -> None:
        """Give up the address for direct replies. Replies that arrive later are lost."""
        address, self.reply_address = self.reply_address, None
        if address is not None:
            address.close()
            self.broker.engine.direct.pop((self.vhost.name, address.name), None)

    def release(self) -> None:
        """Return everything that the channel holds (ORD-2, TX-10). Many consumers are detached in later turns; no
        further message is delivered to them.
        """
        self.broker.engine.left_over.begin(self.releasing())

    def releasing(self) -> Iterator[None]:
        """Do `release`, and yield whenever the turn's budget is used up."""
        if self._released:
            return
        self._released = True
        self.flow = False
        broker = self.broker
        requests = broker.engine.requests
        consumers, self.consumers = self.consumers, {}
        while consumers:  # from the last one on, so that no other one becomes active
            _, consumer = consumers.popitem()
            broker.engine.unsubscribe(consumer)
            requests.left -= CANCELLED
            if requests.left <= 0:
                yield
        self._return_all()

    def _return_all(self) -> None:
        broker = self.broker
        if self.demarcation is not None:
            self.demarcation.leave()
            self.demarcation = None
        elif self.branch is not None:
            broker.transactions.abandon(self.branch)
            self.branch = None
        if self.committing is not None:
            broker.engine.left_over.add(self.committing)
            self.committing = None
        self.watch.close()
        unsettled, self.unsettled = self.unsettled, Unsettled()
        broker.engine.give_back(unsettled, unsettled.count, unsettled.queues())
        self.drop_reply_address()
        broker.engine.holders.pop(self, None)
        broker.engine.channels[self._user] -= 1
        if not broker.engine.channels[self._user]:
            del broker.engine.channels[self._user]
        self._stalled.clear()
        self.holding.close()
        broker.holdings.forget(self)
        self.connection.flow.forget(self)
        if self.content is not None:
            self.content.discard()  # a body frame that has arrived in part refers to it
        self.content = self.form = self.address = None
        del self.getting  # it refers to the channel, whose memory must be free as soon as no other object refers to it

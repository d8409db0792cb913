"""A channel: publishing, deliveries, settlements, confirms and transactions."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.holdings import STEP, SUBSCRIPTION_BYTES
from escrowmq.core.access.table import Operation
from escrowmq.core.branches.branch import RETURN, Keep, Publication, Settlement, TransactionBranch
from escrowmq.core.branches.watch import Watch
from escrowmq.core.broker import Broker
from escrowmq.core.budget import COPIES, DEAD_LETTERED, PUBLISH, SETTLED
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.entry import Entry
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.credit import Window
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.queues.unsettled import Stretch, Unsettled, by_consumer, entries_by_consumer
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.wire.amqp091 import codes
from escrowmq.wire.amqp091.content import Content
from escrowmq.wire.amqp091.delivery import Deliveries, parts_of
from escrowmq.wire.amqp091.errors import REPLIES, reply_text
from escrowmq.wire.amqp091.frames import method_frame
from escrowmq.wire.amqp091.getting import Getting
from escrowmq.wire.amqp091.keyed import routing_key_of
from escrowmq.wire.amqp091.properties import REPLY_TO
from escrowmq.wire.amqp091.publication import Address, Form, with_reply_to
from escrowmq.wire.amqp091.spec import BasicCancel, BasicReturn, ChannelClose, TxCommit, TxCommitOk, TxRollbackOk

if TYPE_CHECKING:
    from escrowmq.core.branches.xid import Xid
    from escrowmq.wire.amqp091.connection import Connection
    from escrowmq.wire.amqp091.dtx_demarcation import Demarcation
    from escrowmq.wire.amqp091.method import Method
    from escrowmq.wire.amqp091.reply_to import ReplyAddress

_ACK: Final = struct.Struct(">BHIHHQBB")
_ACK_SIZE: Final = 13
_LEAST: Final = 32  # deliveries that are settled in any case when a request goes on
_BODY_START: Final = struct.Struct(">BBH")  # end of the header frame; type and channel of the body frame
_ACCEPTED: Final = Disposition.ACCEPTED  # found sooner than a member of an enumeration


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
        self.flow = True
        self.prefetch = 0
        self.window = Window()
        self.consumers: dict[str, Consumer] = {}
        self._stalled: dict[Consumer, None] = {}  # consumers to be served when the connection is writable
        self.unsettled = Unsettled()
        self._holdings = self.broker.holdings
        self._holding = self._holdings.begin(connection.user, self.vhost.name)
        self._uncounted = 0  # about the bytes of deliveries since `count_held`
        self.branch: TransactionBranch | None = None
        self.commit_frame = method_frame(number, TxCommit())
        self.commit_ok = method_frame(number, TxCommitOk())
        self.confirming = False
        self.demarcation: Demarcation | None = None
        self._committing: Iterator[None] | None = None  # the rest of a large commit
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
        self._watch = Watch(self.broker.engine.deadlines, connection.limits.transaction.age, self._timed_out)
        self._published = 0  # sequence number of the last publish, in confirm mode
        self._confirmed = 0
        self._confirm_after = 0
        self.broker.engine.holders[self] = None
        self.broker.engine.channels[connection.user] += 1

    # -- output

    def send(self, method: Method, after: int = 0) -> None:
        """Send a method as soon as the log is synced up to `after`."""
        self.connection.put(self.number, method_frame(self.number, method), after)

    def answer(self, method: Method, *, no_wait: bool, durable: bool) -> None:
        """Answer a declaration. If it changed durable state, the answer waits until the log is synced."""
        if not no_wait:
            self.send(method, self.broker.log.end_lsn if durable else 0)

    # -- publishing

    def publish(self, form: Form, contents: list[bytes]) -> None:
        """Publish a run of messages. Raises BrokerError for a fault that closes the channel (TX-6)."""
        self.resolve(form)
        envelope, queues = form.envelope, form.queues
        self.broker.engine.requests.left -= PUBLISH + len(queues) * (1 + len(contents) // COPIES)
        if form.found.reply_to == REPLY_TO:
            envelope = self._with_reply_address(envelope)
        if self.branch is not None:
            if queues or form.mandatory:
                self.broker.transactions.enlist(self.branch, Publication(envelope, contents, queues, form.mandatory))
            return
        if not queues:
            if form.mandatory:
                self.send_returns(envelope, contents)
            if self.confirming:
                self._confirm(len(contents), 0)
            return
        receipt = self.broker.engine.publish(envelope, contents, queues)
        if not self.confirming:
            return
        if receipt.refused:
            self._confirm_some(len(contents), receipt.refused, receipt.lsn)
        else:
            self._confirm(len(contents), receipt.lsn)

    def publish_each(self, publishes: list[tuple[Envelope, list[bytes], Sequence[Queue]]], count: int) -> None:
        """Publish runs of `count` messages in all, outside a transaction, to queues that refuse none."""
        if self.closing:
            return
        lsn = self.broker.engine.publish_each(publishes)
        if self.confirming:
            self._confirm(count, lsn)

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
                form.apart = self.vhost.needs_headers(form.address.exchange) or any(
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
        elif form.packs and vhost.needs_headers(envelope.exchange):
            form.queues = ()  # each message is routed on its own
        else:
            form.queues = self.broker.engine.route(vhost, envelope)
        form.direct = reply is not None
        form.version = vhost.version if reply is None else -1  # a reply address may be gone at the next publish
        form.allowed = access.version
        if form.plain and reply is None and not vhost.needs_headers(envelope.exchange):
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
        if vhost.needs_headers(exchange):
            return False
        address.lead_to(vhost.route(exchange, key), vhost.version, self.broker.access.version)
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
        for content in contents:
            key = routing_key_of(envelope, content)
            head = method_frame(self.number, BasicReturn(codes.NO_ROUTE, "NO_ROUTE", envelope.exchange, key))
            props, body = parts_of(envelope, content)
            self.connection.put_content(self.number, head, props, body, after)

    # -- confirms

    def _confirm(self, count: int, lsn: int) -> None:
        self._published += count
        self._confirm_after = max(self._confirm_after, lsn)
        self.connection.confirm_later(self, lsn)

    def _confirm_some(self, count: int, refused: tuple[int, ...], lsn: int) -> None:
        first = self._published + 1
        for i in refused:
            accepted = first + i - 1 - self._published
            if accepted > 0:
                self._confirm(accepted, lsn)
            self.send_confirms()
            self._published = self._confirmed = first + i
            self._put_confirm(120, self._published, 0, 0)
        rest = first + count - 1 - self._published
        if rest:
            self._confirm(rest, lsn)

    def send_confirms(self) -> None:
        """Confirm the publishes of this turn once the log has them (DUR-1)."""
        count = self._published - self._confirmed
        if count and not self.closing:
            self._put_confirm(80, self._published, 1 if count > 1 else 0, self._confirm_after)
        self._confirmed = self._published

    def _put_confirm(self, method: int, tag: int, bits: int, after: int) -> None:
        number = self.number
        frame = _ACK.pack(codes.FRAME_METHOD, number, _ACK_SIZE, 60, method, tag, bits, codes.FRAME_END)
        self.connection.put(number, frame, after)

    # -- deliveries

    @property
    def writable(self) -> bool:
        if self._holdings.any_full and self._holding.share and self._holding.full:
            return False
        return self.flow and self.connection.flow.writable

    # -- the memory that counts for the user and the virtual host

    @property
    def _held(self) -> int:
        return self.unsettled.bytes + SUBSCRIPTION_BYTES * len(self.consumers)

    def count_held(self) -> None:
        """Count the deliveries that have become unsettled."""
        self._uncounted = 0
        held = self._held
        if held > self._holding.share:
            self._holding.follow(held)

    def check_room(self) -> None:
        """Raises LIMIT_EXCEEDED if the user or the virtual host holds as much as it may."""
        if self._holding.full:
            self._holding.grow(self._holding.share + 1, "an unacknowledged delivery")

    def check_held(self, more: int, what: str) -> None:
        """Raises LIMIT_EXCEEDED if the user or the virtual host may not hold `more` bytes for `what`."""
        self._holding.grow(self._held + more, what)

    def deliver(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Send deliveries. Unsettled ones are stored under their tags."""
        deliveries: Deliveries = consumer.view
        first = self.unsettled.next_tag
        if consumer.auto_settle:
            self.unsettled.skip(len(entries))
        else:
            self.unsettled.add(entries, consumer)
        pieces = deliveries.build(first, entries)
        if len(pieces) == 1:
            piece = pieces[0]
            # Translated frames may be much shorter than the content, so a content counts, too.
            self._uncounted += len(piece) + len(entries[-1].content)
            self.connection.put(self.number, piece)
        else:
            self._uncounted = STEP
            self.connection.put_pieces(self.number, pieces)
        if self._uncounted >= STEP:
            self.count_held()

    def stalled(self, consumer: Consumer) -> None:
        """Note that messages are ready for `consumer`, but the connection is not writable."""
        self._stalled[consumer] = None
        if self._holding.full and self.flow and self.connection.flow.writable:
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

    def drop_forbidden_consumers(self) -> None:
        """End the consumers of queues that the user may no longer read, and tell the client as when a queue is deleted.
        The client keeps the deliveries that it has not settled.
        """
        for consumer in list(self.consumers.values()):
            queue = consumer.queue
            if queue is not self.reply_address and not self.door.allows(Operation.CONSUME, queue=queue.name):
                self.broker.engine.unsubscribe(consumer)
                self.cancelled(consumer)

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """Return every unsettled delivery. Deliveries that were settled in a branch belong to the branch."""
        return self.unsettled.copies()

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """Return at most `most` of those deliveries, from number `start` on."""
        return self.unsettled.part(start, most)

    def keep(self, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
        """Make deliveries unsettled again, because their settlement was undone (TX-4)."""
        self.unsettled.restore(consumer, tags, entries)
        self.count_held()

    # -- memory

    @property
    def next_tag(self) -> int:
        """The tag of the next delivery."""
        return self.unsettled.next_tag

    def held_bytes(self, before: int) -> int:
        """The bytes of the open transaction, and of unsettled deliveries with tags less than `before`, about."""
        return (self.branch.bytes if self.branch is not None else 0) + self.unsettled.bytes_before(before)

    def give_up(self, text: str) -> None:
        """Close the channel, because memory is short and the channel has held much for long."""
        self.fail(codes.RESOURCE_ERROR, text)

    # -- settlements

    def settle(self, tag: int, disposition: Disposition, *, multiple: bool) -> None:
        """Execute basic.ack, nack or reject. Raises PRECONDITION_FAILED if the tag is not outstanding."""
        if multiple:
            taken = self.unsettled.take_through(tag)
            if disposition is Disposition.MODIFIED and self.branch is None and taken:
                self._holding.shrink(self._held)
                self.broker.engine.give_back([(consumer, entries) for _, entries, consumer in taken])
                return
        else:
            one = self.unsettled.take(tag)
            taken = [] if one is None else [one]
        if taken:
            self._settle(taken, disposition)
        elif tag or not multiple:
            raise _unknown_tag(tag)

    def settle_in_pieces(self, tag: int, disposition: Disposition) -> Iterator[None]:
        """Like `settle` with `multiple`, for many deliveries: a part of them at a time."""
        unsettled, requests = self.unsettled, self.broker.engine.requests
        tag = tag or unsettled.last_tag
        if tag not in unsettled:
            raise _unknown_tag(tag)
        cost = 1 / SETTLED if disposition is Disposition.ACCEPTED else DEAD_LETTERED
        while True:
            reached = unsettled.reach(tag, max(int(requests.left / cost), _LEAST))
            before = unsettled.count
            self._settle(unsettled.take_through(reached), disposition)
            requests.left -= int(cost * (before - unsettled.count))
            if reached == tag:
                return
            yield

    def settle_each(self, tags: list[int]) -> None:
        """Settle single acknowledgements in order. Raises PRECONDITION_FAILED; tags before the fault stay settled."""
        before = self.unsettled.count
        taken = self.unsettled.take_each(tags)
        count = before - self.unsettled.count
        if taken:
            self._settle(taken, _ACCEPTED)
        if count < len(tags):
            raise _unknown_tag(tags[count])

    def _settle(self, taken: list[Stretch], disposition: Disposition) -> None:
        if self._holding.share > STEP:  # one step stays
            self._holding.shrink(self._held)
        if self.branch is not None:
            self._settle_in(self.branch, taken, disposition)
            return
        settle = self.broker.engine.settle
        for consumer, entries in entries_by_consumer(taken).items():
            settle(consumer, entries, disposition)

    def _settle_in(self, branch: TransactionBranch, taken: list[Stretch], disposition: Disposition) -> None:
        kept = self.demarcation is None
        groups = by_consumer(taken)
        for i, (consumer, tags, entries) in enumerate(groups, 1):
            undo = Keep(self, tags) if kept else RETURN
            try:
                self.broker.transactions.enlist(branch, Settlement(consumer, entries, disposition, undo))
            except BrokerError:  # the branch has undone the settlement that it refused
                for other, others, rest in groups[i:]:
                    self.keep(other, others, rest)
                raise

    def recover(self, *, requeue: bool) -> None:
        """Execute basic.recover: every unsettled delivery returns to its queue or is sent again to the same consumer.

        If the client does not read its deliveries, they return to the queue and are delivered when the client reads
        again.
        """
        if requeue:
            self.broker.engine.give_back([(consumer, entries) for _, entries, consumer in self.unsettled.clear()])
            return
        for consumer, _, entries in by_consumer(self.unsettled.clear()):
            if consumer.receiver is None or consumer.tag not in self.consumers or not self.writable:
                self.broker.engine.requeue(consumer, entries)
                continue
            for entry in entries:
                entry.deliveries += 1
            self.deliver(consumer, entries)

    # -- transactions

    def begin(self) -> None:
        """Begin a transaction (TX-1). A new branch follows each branch that ends (TX-12)."""
        self.branch = self.broker.transactions.begin(self.connection.limits.transaction, self._watch)
        self.branch.holding = self.broker.holdings.begin(self.connection.user, self.vhost.name)

    def commit(self) -> int:
        """Commit the branch. Returns the LSN that the answer waits for. Returned messages precede the answer (TX-7)."""
        branch = self._branch()
        result = self.broker.transactions.commit(branch)
        for publication in result.returned:
            self.send_returns(publication.envelope, publication.contents, result.lsn)
        self.broker.transactions.begin_again(branch)
        return result.lsn

    @property
    def is_large(self) -> bool:
        """Whether the transaction is to be committed or rolled back in pieces."""
        return self.demarcation is None and self.branch is not None and self.broker.transactions.is_large(self.branch)

    def commit_in_pieces(self) -> Iterator[None]:
        """Like `commit`, in pieces, for a large branch; then answer. Once the record is written, the commit continues
        even if the client goes.
        """
        branch, transactions = self._branch(), self.broker.transactions
        work = transactions.commit_in_pieces(branch)
        yield from work.gather()
        work.write()
        transactions.begin_again(branch)
        self._committing = work.complete()
        for _ in self._committing:
            yield
        self._committing = None
        for publication in work.result.returned:
            self.send_returns(publication.envelope, publication.contents, work.result.lsn)
        self.connection.put(self.number, self.commit_ok, work.result.lsn)

    def rollback_in_pieces(self) -> Iterator[None]:
        """Like `rollback`, in pieces, for a large branch; then answer."""
        requests = self.broker.engine.requests
        for count in self._branch().undo_in_pieces():
            requests.left -= 1 + count // SETTLED
            if requests.left <= 0:
                yield
        self.rollback()
        self.send(TxRollbackOk())

    def rollback(self) -> None:
        """Roll back: drop the publishes; deliveries that were settled are unsettled again (TX-4)."""
        branch = self._branch()
        self.broker.transactions.rollback(branch)
        self.broker.transactions.begin_again(branch)

    def _branch(self) -> TransactionBranch:
        if self.branch is None or self.demarcation is not None:
            raise BrokerError(Condition.PRECONDITION_FAILED, "channel is not transactional")
        return self.branch

    def _timed_out(self) -> None:
        age = self.connection.limits.transaction.age // 1000
        self.broker.transactions.expire(self._branch())
        self.branch = None
        self.fail(codes.RESOURCE_ERROR, f"transaction is older than {age} s, the configured limit")

    # -- the end

    def fail(self, code: int, text: str, method: Method | None = None, after: int = 0) -> None:
        """Close the channel for a fault of the client or a limit of a transaction (TX-13). `after` is the same as in
        `send`.
        """
        if self.closing:
            return
        self.send_confirms()
        self.release()
        self.closing = True
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
        """Return everything that the channel holds (ORD-2, TX-10)."""
        if self.closing:
            return
        broker = self.broker
        for consumer in list(self.consumers.values()):
            broker.engine.unsubscribe(consumer)
        self.consumers.clear()
        if self.demarcation is not None:
            self.demarcation.leave()
            self.demarcation = None
        elif self.branch is not None:
            broker.transactions.abandon(self.branch)
            self.branch = None
        if self._committing is not None:
            broker.engine.left_over.add(self._committing)
            self._committing = None
        self._watch.close()
        broker.engine.give_back([(consumer, entries) for _, entries, consumer in self.unsettled.clear()])
        self.drop_reply_address()
        broker.engine.holders.pop(self, None)
        broker.engine.channels[self.connection.user] -= 1
        if not broker.engine.channels[self.connection.user]:
            del broker.engine.channels[self.connection.user]
        self._stalled.clear()
        self._holding.close()
        broker.holdings.forget(self)
        self.connection.flow.forget(self)
        self.content = self.form = self.address = None
        del self.getting  # it refers to the channel, whose memory must be free as soon as no other object refers to it


def _unknown_tag(tag: int) -> BrokerError:
    return BrokerError(Condition.PRECONDITION_FAILED, f"unknown delivery tag {tag}")

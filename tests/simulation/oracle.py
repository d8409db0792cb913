"""The observer between clients and server: every frame in both directions, and what follows from it.

Frames count when the server has received them, in the order in which it did; answers when it has said them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import scan
from tests.harness.frames import FrameReader, Message
from tests.simulation.ledger import DEAD, Copy, Ledger, Operation, Queue, Sent, State, Violation
from tests.simulation.topology import EXCHANGE, new_queue


@dataclass(eq=False, slots=True)
class Subscription:
    queue: Queue
    prefetch: int
    no_ack: bool
    last_key: int = 0
    cancelled: bool = False


@dataclass(eq=False, slots=True)
class Delivery:
    copy: Copy
    consumer: str


@dataclass(eq=False, slots=True)
class Transaction:
    """What a channel has done since its last commit or rollback."""

    publishes: list[tuple[Sent, list[Queue], bool]] = field(default_factory=list)
    settlements: list[tuple[int, Delivery, str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.publishes or self.settlements)


@dataclass(eq=False, slots=True)
class Answer:
    """What a client waits for; `check` is called with it. A basic.get takes a message out of `queue`."""

    kinds: tuple[type[Method], ...]
    check: Callable[[Message], None] = lambda message: None
    queue: Queue | None = None


@dataclass(eq=False, slots=True)
class Channel:
    """A channel as the server must see it. `closing`: the reply code that it is being closed with, 0 by the client."""

    number: int
    mode: str = ""
    closing: int | None = None
    recovering: int = 0
    next_tag: int = 1
    prefetch: int = 0
    consumers: dict[str, Subscription] = field(default_factory=dict)
    unsettled: dict[int, Delivery] = field(default_factory=dict)
    transaction: Transaction = field(default_factory=Transaction)
    expected: deque[Answer] = field(default_factory=deque)
    published: int = 0
    confirms: dict[int, tuple[Operation, int]] = field(default_factory=dict)
    returns: deque[tuple[int, int]] = field(default_factory=deque)
    committing: tuple[Operation, Transaction] | None = None

    @property
    def pending(self) -> bool:
        """Something is owed to the client, behind which deliveries may wait unseen."""
        return bool(self.expected or self.confirms)

    @property
    def undecided(self) -> bool:
        """Only the answer will tell whether the commit was refused."""
        return self.committing is not None and any(copy.queue.refuses for copy in self.committing[0].adds)

    def hides(self, queue: Queue) -> bool:
        """While it is pending, messages of `queue` may be on their way to it."""
        consumes = any(subscription.queue is queue for subscription in self.consumers.values())
        return consumes or any(answer.queue is queue for answer in self.expected)


class Connection:
    """Both directions of one connection."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inward = FrameReader(from_client=True)
        self.outward = FrameReader()
        self.channels: dict[int, Channel] = {}
        self.lost = False

    @property
    def undecided(self) -> bool:
        """See `Channel.undecided`."""
        return any(channel.undecided for channel in self.channels.values())


class Oracle:
    """Raises Violation as soon as the server says what it must not."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.connections: dict[Connection, None] = {}
        self.held: set[Channel] = set()
        self._seen: list[tuple[Copy, int]] = []
        self._handlers: dict[int, Callable[[Connection, Channel, Any], None]] = {
            spec.TxSelect.INDEX: self._tx_select,
            spec.ConfirmSelect.INDEX: self._confirm_select,
            spec.BasicQos.INDEX: self._qos,
            spec.QueueDeclare.INDEX: self._declare,
            spec.QueueBind.INDEX: self._bind,
            spec.QueueDelete.INDEX: self._delete,
            spec.QueuePurge.INDEX: self._purge,
            spec.ExchangeDeclare.INDEX: self._declare_exchange,
            spec.BasicConsume.INDEX: self._consume,
            spec.BasicCancel.INDEX: self._cancel,
            spec.BasicGet.INDEX: self._get,
            spec.BasicAck.INDEX: self._ack,
            spec.BasicNack.INDEX: self._nack,
            spec.BasicReject.INDEX: self._reject,
            spec.BasicRecover.INDEX: self._recover,
            spec.TxCommit.INDEX: self._commit,
            spec.TxRollback.INDEX: self._rollback,
            spec.ChannelClose.INDEX: self._close,
        }

    # -- connections and turns

    def connect(self, name: str) -> Connection:
        connection = Connection(name)
        self.connections[connection] = None
        return connection

    def lose(self, connection: Connection) -> None:
        """The server has lost the connection."""
        if not connection.lost:
            connection.lost = True
            self.connections.pop(connection)
            self._release_all(connection)

    def _release_all(self, connection: Connection) -> None:
        for channel in connection.channels.values():
            self._release(channel)
        connection.channels.clear()
        for queue in [queue for queue in self.ledger.queues.values() if queue.owner is connection]:
            self.ledger.delete(queue, self.ledger.operation("end of an exclusive queue"))  # EXC-1

    def die(self) -> None:
        """The server process is gone."""
        for connection in list(self.connections):
            self.lose(connection)
        self.held.clear()
        self._seen.clear()

    def before_output(self) -> None:
        """A turn is about to end."""
        self.held = {c for connection in self.connections for c in connection.channels.values() if c.pending}

    def after_output(self) -> None:
        """A turn has ended: what was delivered in it must have been the head of its queue (ORD-2)."""
        for copy, threshold in self._seen:
            if copy.key is not None:
                self._check_head(copy, threshold)
        self._seen.clear()
        self.ledger.turn += 1

    def _check_head(self, copy: Copy, threshold: int) -> None:
        queue = copy.queue
        if queue.sealed_by or queue.deleted or any(channel.hides(queue) for channel in self.held):
            return
        place = queue.place(copy)
        for other in queue.ready():
            if other.maybe or other.key is None or other.since > threshold:
                continue
            if queue.place(other) < place:
                raise Violation(f"{copy} was delivered before {other}, which waits since turn {other.since}")

    @property
    def settled(self) -> bool:
        """No answer is owed to anybody, so that all deliveries have been seen."""
        return not any(
            c.pending or c.recovering for connection in self.connections for c in connection.channels.values()
        )

    # -- from clients

    def inward(self, connection: Connection, data: bytes) -> None:
        """The server has received these bytes."""
        for message in connection.inward.feed(data):
            if connection.lost:
                return
            self._inward(connection, message)

    def _inward(self, connection: Connection, message: Message) -> None:
        method = message.method
        if message.channel == 0:
            if isinstance(method, spec.ConnectionClose):
                self._release_all(connection)
            return
        channel = connection.channels.get(message.channel)
        if isinstance(method, spec.ChannelOpen):
            assert channel is None
            connection.channels[message.channel] = channel = Channel(message.channel)
            self._expect(channel, spec.ChannelOpenOk)
        elif channel is None:
            return
        elif isinstance(method, spec.ChannelCloseOk):
            del connection.channels[message.channel]
        elif channel.closing is not None:
            if isinstance(method, spec.ChannelClose):
                self._expect(channel, spec.ChannelCloseOk)
        elif isinstance(method, spec.BasicPublish):
            self._publish(channel, message)
        else:
            self._handlers[method.INDEX](connection, channel, method)

    def _expect(
        self, channel: Channel, *kinds: type[Method], check: Callable[[Message], None] = lambda message: None
    ) -> None:
        channel.expected.append(Answer(kinds, check))

    def _refuse(self, channel: Channel, code: int) -> None:
        """The server must close the channel."""
        self._release(channel)
        channel.closing = code

    def _release(self, channel: Channel) -> None:
        """Everything that the channel holds goes back (ORD-2, TX-10)."""
        if channel.closing is not None:
            return
        settled = [delivery for _, delivery, _ in channel.transaction.settlements]
        for delivery in [*channel.unsettled.values(), *settled]:
            self._give_back(delivery.copy)
        if channel.transaction.publishes:
            self.ledger.count("transactions dropped by a close")
        channel.unsettled.clear()
        channel.transaction = Transaction()
        channel.consumers.clear()

    def _give_back(self, copy: Copy) -> None:
        if not copy.queue.deleted:
            self.ledger.give_back(copy)
            self.ledger.count("returned")

    def _tx_select(self, connection: Connection, channel: Channel, method: spec.TxSelect) -> None:
        channel.mode = "tx"
        self._expect(channel, spec.TxSelectOk)

    def _confirm_select(self, connection: Connection, channel: Channel, method: spec.ConfirmSelect) -> None:
        channel.mode = "confirm"
        self._expect(channel, spec.ConfirmSelectOk)

    def _qos(self, connection: Connection, channel: Channel, method: spec.BasicQos) -> None:
        channel.prefetch = method.prefetch_count
        self._expect(channel, spec.BasicQosOk)

    def _queue(self, connection: Connection, channel: Channel, name: str) -> Queue | None:
        """The queue of that name; without one, or if it is another connection's, the channel must be closed."""
        queue = self.ledger.queues.get(name)
        if queue is None or (queue.owner is not None and queue.owner is not connection):
            self._refuse(channel, 404 if queue is None else 405)  # EXC-2
            return None
        return queue

    def _exact(self, queue: Queue) -> int | None:
        """How many messages wait in a queue, if that can be known."""
        ready = queue.ready()
        moves = queue.lossy or queue.refuses or queue.name == DEAD  # at other moments than a client's doing
        if queue.sealed_by or moves or any(copy.maybe for copy in ready) or not self.settled:
            return None
        return len(ready)

    def _counted(self, name: str, what: str, known: int | None) -> Callable[[Message], None]:
        def check(message: Message) -> None:
            said: int = getattr(message.method, "message_count")
            if known is not None:
                self.ledger.count("counts checked")
                if said != known:
                    raise Violation(f"{what} of {name} says {said} messages, there are {known}")

        return check

    def _declare(self, connection: Connection, channel: Channel, method: spec.QueueDeclare) -> None:
        name = method.queue
        if method.passive or name in self.ledger.queues:
            queue = self._queue(connection, channel, name)
            if queue is None:
                return
        else:
            operation = self.ledger.operation(f"declaration of {name}")
            owner = connection if method.exclusive else None
            queue = self.ledger.declare(name, new_queue(method, operation, owner))
        born, counted = queue.born, self._counted(name, "declare-ok", self._exact(queue))

        def check(message: Message) -> None:
            born.promised = True
            counted(message)

        self._expect(channel, spec.QueueDeclareOk, check=counted if method.passive else check)

    def _declare_exchange(self, connection: Connection, channel: Channel, method: spec.ExchangeDeclare) -> None:
        self._expect(channel, spec.ExchangeDeclareOk)

    def _bind(self, connection: Connection, channel: Channel, method: spec.QueueBind) -> None:
        queue = self._queue(connection, channel, method.queue)
        if queue is not None:
            queue.bound = True
            self._expect(channel, spec.QueueBindOk)

    def _delete(self, connection: Connection, channel: Channel, method: spec.QueueDelete) -> None:
        queue = self.ledger.queues.get(method.queue)
        known: int | None = 0
        operation = self.ledger.operation(f"deletion of {method.queue}")
        if queue is not None:
            if self._queue(connection, channel, method.queue) is None:
                return
            known = self._exact(queue)
            self.ledger.delete(queue, operation)
            for other in self.connections:
                for c in other.channels.values():
                    for subscription in c.consumers.values():
                        subscription.cancelled = subscription.cancelled or subscription.queue is queue
        counted = self._counted(method.queue, "delete-ok", known)

        def check(message: Message) -> None:
            self.ledger.old = [old for old in self.ledger.old if old is not queue]
            counted(message)

        self._expect(channel, spec.QueueDeleteOk, check=check)

    def _purge(self, connection: Connection, channel: Channel, method: spec.QueuePurge) -> None:
        queue = self._queue(connection, channel, method.queue)
        if queue is None:
            return
        known = self._exact(queue)
        operation = self.ledger.operation(f"purge of {queue.name}")
        for copy in queue.ready():
            if known is None:
                copy.doubtful = True  # it may be on its way to a client, or its commit not be on disk yet
            else:
                self.ledger.remove(copy, operation)
        counted = self._counted(queue.name, "purge-ok", known)

        def check(message: Message) -> None:
            operation.promised = True
            counted(message)

        self._expect(channel, spec.QueuePurgeOk, check=check)

    def _publish(self, channel: Channel, message: Message) -> None:
        method = message.method
        assert isinstance(method, spec.BasicPublish)
        found = scan(message.header)
        serial = int(message.body.split(b".")[0])
        sent = Sent(
            serial,
            message.body,
            message.header,
            method.exchange,
            method.routing_key,
            found.delivery_mode == 2,
            found.priority or 0,
        )
        self.ledger.sent[serial] = sent
        queues = self._route(method)
        if channel.mode == "tx":
            channel.transaction.publishes.append((sent, queues, method.mandatory))
            return
        operation = self.ledger.operation(f"publish of message {serial}")
        for queue in queues:
            self.ledger.add(queue, sent, operation)
        if channel.mode == "confirm":
            channel.published += 1
            channel.confirms[channel.published] = (operation, serial)
        if method.mandatory and not queues:
            channel.returns.append((serial, channel.published))

    def _route(self, method: spec.BasicPublish) -> list[Queue]:
        if method.exchange == EXCHANGE:
            return [queue for queue in self.ledger.queues.values() if queue.bound]
        queue = self.ledger.queues.get(method.routing_key)
        return [] if queue is None else [queue]

    def _consume(self, connection: Connection, channel: Channel, method: spec.BasicConsume) -> None:
        queue = self._queue(connection, channel, method.queue)
        if queue is not None:
            prefetch = 0 if method.no_ack else channel.prefetch
            channel.consumers[method.consumer_tag] = Subscription(queue, prefetch, method.no_ack)
            self._expect(channel, spec.BasicConsumeOk)

    def _cancel(self, connection: Connection, channel: Channel, method: spec.BasicCancel) -> None:
        tag = method.consumer_tag

        def check(message: Message) -> None:
            channel.consumers.pop(tag, None)

        self._expect(channel, spec.BasicCancelOk, check=check)

    def _get(self, connection: Connection, channel: Channel, method: spec.BasicGet) -> None:
        queue = self._queue(connection, channel, method.queue)
        if queue is None:
            return
        surely = bool(self._exact(queue))
        threshold = self.ledger.turn - 1 if self.settled else -1

        def check(message: Message) -> None:
            if isinstance(message.method, spec.BasicGetOk):
                self._seen_delivery(channel, queue, message, message.method, "", threshold, no_ack=method.no_ack)
            elif surely:
                raise Violation(f"get-empty, although messages wait on {queue.name}")

        channel.expected.append(Answer((spec.BasicGetOk, spec.BasicGetEmpty), check, queue))

    # -- settlements and transactions

    def _ack(self, connection: Connection, channel: Channel, method: spec.BasicAck) -> None:
        self._settle(channel, method.delivery_tag, method.multiple, "ack")

    def _nack(self, connection: Connection, channel: Channel, method: spec.BasicNack) -> None:
        self._settle(channel, method.delivery_tag, method.multiple, "requeue" if method.requeue else "reject")

    def _reject(self, connection: Connection, channel: Channel, method: spec.BasicReject) -> None:
        self._settle(channel, method.delivery_tag, False, "requeue" if method.requeue else "reject")

    def _settle(self, channel: Channel, tag: int, multiple: bool, how: str) -> None:
        tags = [t for t in channel.unsettled if t <= tag or tag == 0] if multiple else [tag]
        if (tag and tag not in channel.unsettled) or (not tag and not multiple):
            self._refuse(channel, 406)
            return
        for one in tags:
            delivery = channel.unsettled.pop(one)
            if channel.mode == "tx":
                channel.transaction.settlements.append((one, delivery, how))
            else:
                operation = self.ledger.operation(f"{how} of {delivery.copy}")
                self._apply(delivery.copy, how, operation, ordered=len(tags) == 1)

    def _apply(self, copy: Copy, how: str, operation: Operation, *, ordered: bool = True) -> None:
        self.ledger.count(how)
        if how == "requeue":
            self._give_back(copy)
        elif how == "reject":
            self.ledger.bury(copy, operation, ordered=ordered)
        else:
            self.ledger.remove(copy, operation)

    def _recover(self, connection: Connection, channel: Channel, method: spec.BasicRecover) -> None:
        assert method.requeue
        for delivery in channel.unsettled.values():
            self._give_back(delivery.copy)
        channel.unsettled.clear()
        channel.recovering += 1

        def check(message: Message) -> None:
            channel.recovering -= 1

        self._expect(channel, spec.BasicRecoverOk, check=check)

    def _rollback(self, connection: Connection, channel: Channel, method: spec.TxRollback) -> None:
        for tag, delivery, _ in channel.transaction.settlements:
            channel.unsettled[tag] = delivery
        channel.unsettled = dict(sorted(channel.unsettled.items()))
        channel.transaction = Transaction()
        self._expect(channel, spec.TxRollbackOk)
        self.ledger.count("rollbacks")

    def _commit(self, connection: Connection, channel: Channel, method: spec.TxCommit) -> None:
        transaction, channel.transaction = channel.transaction, Transaction()
        names = ", ".join(str(sent.serial) for sent, _, _ in transaction.publishes)
        settled = ", ".join(f"{how} {delivery.copy.identity.serial}" for _, delivery, how in transaction.settlements)
        operation = self.ledger.operation(f"transaction ({names}; {settled})", transaction=True)
        for sent, queues, mandatory in transaction.publishes:
            left = [queue for queue in queues if not queue.deleted]  # TX-11
            for queue in left:
                self.ledger.add(queue, sent, operation)
                queue.sealed_by[operation] = None
            if mandatory and not left:
                channel.returns.append((sent.serial, 0))
        for _, delivery, how in transaction.settlements:
            self._apply(delivery.copy, how, operation, ordered=False)
            if how == "reject" and delivery.copy.queue.dead_letters:
                self.ledger.queues[DEAD].sealed_by[operation] = None
        channel.committing = (operation, transaction)

        def check(message: Message) -> None:
            if channel.returns:
                raise Violation(f"commit-ok before the return of message {channel.returns[0][0]}")  # TX-7
            channel.committing = None
            self._know(operation)
            self.ledger.count("commits")
            self.ledger.count("commits over several queues", len({copy.queue for copy in operation.adds}) > 1)

        self._expect(channel, spec.TxCommitOk, check=check)

    def _know(self, operation: Operation) -> None:
        """It is certain that the transaction was committed."""
        operation.promised = True
        for copy in operation.adds:
            copy.queue.sealed_by.pop(operation, None)
            if copy.queue.refuses:
                copy.doubtful = False

    def _revoke(self, channel: Channel) -> None:
        """The commit was refused: nothing of it may ever be seen (TX-13)."""
        if channel.committing is None:
            raise Violation(f"channel {channel.number} is closed with 506 without a reason")
        operation, transaction = channel.committing
        if not any(copy.queue.refuses for copy in operation.adds):
            raise Violation(f"{operation.what} is refused without a reason")
        self.ledger.count("commits refused")
        refusal = Operation(f"refusal of {operation.what}", None, promised=True)
        for copy in operation.adds:
            copy.queue.sealed_by.pop(operation, None)
            self._refuse_copy(copy, refusal)
        for copy in operation.removals:
            if not copy.queue.deleted:
                self.ledger.restore(copy)
        for sent, queues, _ in transaction.publishes:
            if not any(not queue.deleted for queue in queues):
                channel.returns.clear()
                self.ledger.count("returns of a refused commit", sent.serial > 0)
        operation.adds.clear()
        operation.removals.clear()
        channel.expected.popleft()
        self._release(channel)
        channel.closing = 506

    def _infer_refusal(self, copy: Copy) -> None:
        """If a delivery comes from a channel whose commit was refused, this is the first that is seen of it."""
        for connection in self.connections:
            for channel in connection.channels.values():
                if channel.undecided:
                    assert channel.committing is not None
                    held = any(delivery.copy is copy for delivery in channel.unsettled.values())
                    if held or copy in channel.committing[0].removals:
                        self._revoke(channel)
                        return

    def _refuse_copy(self, copy: Copy, refusal: Operation) -> None:
        if copy.state is not State.READY or copy.delivered:
            raise Violation(f"{copy} was refused after it had been delivered")
        self.ledger.remove(copy, refusal)
        if copy.identity.via:
            del copy.queue.gone[copy.identity]  # it may yet be dead-lettered

    def _close(self, connection: Connection, channel: Channel, method: spec.ChannelClose) -> None:
        self._release(channel)
        channel.closing = 0
        self._expect(channel, spec.ChannelCloseOk)

    # -- to clients

    def outward(self, connection: Connection, data: bytes) -> None:
        """The server has said this."""
        for message in connection.outward.feed(data):
            if message.channel == 0:
                if isinstance(message.method, spec.ConnectionClose):
                    raise Violation(f"{connection.name} is closed: {message.method.reply_text}")
                continue
            channel = connection.channels.get(message.channel)
            if channel is not None:
                self._outward(connection, channel, message)

    def _outward(self, connection: Connection, channel: Channel, message: Message) -> None:
        method = message.method
        if isinstance(method, spec.BasicDeliver):
            self._deliver(channel, message, method)
        elif isinstance(method, (spec.BasicAck, spec.BasicNack)):
            self._confirmed(channel, method)
        elif isinstance(method, spec.BasicReturn):
            serial = int(message.body.split(b".")[0])
            if not channel.returns or channel.returns.popleft()[0] != serial:
                raise Violation(f"message {serial} is returned, which is not expected")
            self.ledger.count("returns")
        elif isinstance(method, spec.ChannelClose):
            self._closed(channel, method)
        elif isinstance(method, spec.BasicCancel):
            subscription = channel.consumers.pop(method.consumer_tag, None)
            if subscription is not None and not subscription.cancelled:
                raise Violation(f"consumer {method.consumer_tag} is cancelled without a reason")
        else:
            if not channel.expected or not isinstance(method, channel.expected[0].kinds):
                raise Violation(f"{method} on channel {channel.number} is not the answer that is due")
            channel.expected.popleft().check(message)
            if isinstance(method, spec.ChannelCloseOk):
                connection.channels.pop(channel.number, None)

    def _closed(self, channel: Channel, method: spec.ChannelClose) -> None:
        if method.reply_code == 506 and channel.closing is None:
            self._revoke(channel)
        elif not channel.closing or channel.closing != method.reply_code:
            raise Violation(f"channel {channel.number} is closed: {method.reply_text}, expected was {channel.closing}")
        if channel.confirms:
            raise Violation(f"channel {channel.number} is closed before {list(channel.confirms)} were confirmed")
        self.ledger.count(f"channels closed with {method.reply_code}")

    def _confirmed(self, channel: Channel, method: spec.BasicAck | spec.BasicNack) -> None:
        tag = method.delivery_tag
        tags = [t for t in channel.confirms if t <= tag] if method.multiple else [tag]
        if tag not in channel.confirms:
            raise Violation(f"confirm of {tag} on channel {channel.number}, which was not published or is confirmed")
        if channel.returns and channel.returns[0][1] <= tag:
            raise Violation(f"confirm of {tag} before its return")
        for one in tags:
            operation, _ = channel.confirms.pop(one)
            if isinstance(method, spec.BasicNack):
                if not any(copy.queue.refuses for copy in operation.adds):
                    raise Violation(f"{operation.what} is refused without a reason")
                refusal = Operation(f"refusal of {operation.what}", None, promised=True)
                for copy in operation.adds:
                    self._refuse_copy(copy, refusal)
                self.ledger.count("refused")
                continue
            operation.promised = True
            self.ledger.count("confirms")
            for copy in operation.adds:
                if copy.queue.refuses and copy.state is State.READY:
                    copy.doubtful = False

    def _deliver(self, channel: Channel, message: Message, method: spec.BasicDeliver) -> None:
        if channel.closing is not None or channel.recovering:
            channel.next_tag += 1
            return
        subscription = channel.consumers.get(method.consumer_tag)
        if subscription is None:
            raise Violation(f"delivery to consumer {method.consumer_tag}, which does not exist")
        threshold = self.ledger.turn
        copy = self._seen_delivery(
            channel,
            subscription.queue,
            message,
            method,
            method.consumer_tag,
            threshold,
            no_ack=subscription.no_ack,
        )
        if copy.key is not None and not method.redelivered and not copy.queue.priorities:
            if copy.key <= subscription.last_key:
                raise Violation(f"{copy} came to {method.consumer_tag} after a later one, not marked as redelivered")
            subscription.last_key = copy.key
        if subscription.prefetch:
            deliveries = [*channel.unsettled.values(), *(d for _, d, _ in channel.transaction.settlements)]
            held = sum(delivery.consumer == method.consumer_tag for delivery in deliveries)
            if held > subscription.prefetch:
                raise Violation(f"{method.consumer_tag} holds {held} deliveries, its limit is {subscription.prefetch}")

    def _seen_delivery(
        self,
        channel: Channel,
        queue: Queue,
        message: Message,
        method: spec.BasicDeliver | spec.BasicGetOk,
        consumer: str,
        threshold: int,
        *,
        no_ack: bool,
    ) -> Copy:
        if method.delivery_tag != channel.next_tag:
            raise Violation(
                f"delivery tag {method.delivery_tag} on channel {channel.number}, {channel.next_tag} is due"
            )
        channel.next_tag += 1
        deaths = (scan(message.header).headers or {}).get("x-death")
        via = str(deaths[0]["queue"]) if isinstance(deaths, list) and isinstance(deaths[0], dict) else ""
        header = None if via or queue.quorum else message.header  # both add a header of their own
        copy = self.ledger.identify(queue, int(message.body.split(b".")[0]), via, message.body, header)
        if copy.state is not State.READY:
            self._infer_refusal(copy)
        if copy.state is State.OUT:
            raise Violation(f"{copy} is delivered, but another client holds it")
        if copy.state is State.GONE:
            raise Violation(f"{copy} is delivered after {copy.removed and copy.removed.what}")
        if copy.delivered and not method.redelivered:
            raise Violation(f"{copy} is delivered again, not marked as redelivered")
        if copy.added.transaction:
            self._know(copy.added)
        self.ledger.count("redelivered" if method.redelivered else "delivered")
        copy.delivered = True
        self._seen.append((copy, threshold))
        if no_ack:
            self.ledger.remove(copy, Operation(f"delivery of {copy}", None))  # it left when nobody saw it
        else:
            copy.state = State.OUT
            channel.unsettled[method.delivery_tag] = Delivery(copy, consumer)
        return copy

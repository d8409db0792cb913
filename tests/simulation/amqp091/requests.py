"""The part of the oracle that follows the clients' requests, which count when the server has received them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.method import Method
from escrowmq.wire.amqp091.properties import scan
from tests.harness.frames import Message
from tests.simulation.amqp091.channels import Answer, Channel, Connection, Subscription, Transaction, no_check
from tests.simulation.amqp091.watch import Watch
from tests.simulation.ledger import DEAD, Copy, Ledger, Operation, Queue, Sent, Violation
from tests.simulation.topology import EXCHANGE, new_queue


class Requests(Watch):
    """Follows the direction from clients to the server."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._last_work = -1  # the turn in which a client last asked for something that moves messages
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

    def inward(self, connection: Connection, data: bytes) -> None:
        """Process bytes that the server has received."""
        for message in connection.inward.feed(data):
            if connection.lost:
                return
            self._inward(connection, message)

    def _inward(self, connection: Connection, message: Message) -> None:
        self._tell(connection, ">", message)
        method = message.method
        if message.channel == 0:
            if isinstance(method, spec.ConnectionClose):
                self._release_all(connection)
            return
        channel = connection.channels.get(message.channel)
        if not isinstance(method, (spec.QueueDeclare, spec.QueueDelete, spec.QueuePurge)):
            self._last_work = self.ledger.turn
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

    def _expect(self, channel: Channel, *kinds: type[Method], check: Callable[[Message], None] = no_check) -> None:
        channel.expected.append(Answer(kinds, check))

    def _refuse(self, channel: Channel, code: int) -> None:
        """Expect the server to close the channel with this reply code."""
        self._release(channel)
        channel.closing = code

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
        """Return the queue of that name. If it is missing or another connection's, the channel must be closed."""
        queue = self.ledger.queues.get(name)
        if queue is None or (queue.owner is not None and queue.owner is not connection):
            self._refuse(channel, 404 if queue is None else 405)  # EXC-2
            return None
        return queue

    def _exact(self, queue: Queue) -> int | None:
        """Return the number of ready messages on a queue; None if the oracle cannot know it."""
        ready = queue.ready()
        moves = queue.lossy or queue.refuses or queue.name == DEAD  # the count can change without a client's request
        if self._last_work == self.ledger.turn and self._has_consumers(queue):
            # Messages that arrived in this turn, or for which there is credit now, are delivered before the count.
            moves = True
        moves = moves or self._last_release == self.ledger.turn  # deliveries may return in pieces, during the turn
        if queue.sealed_by or moves or any(copy.maybe for copy in ready) or not self.settled:
            return None
        return len(ready)

    def _has_consumers(self, queue: Queue) -> bool:
        channels = [channel for connection in self.connections for channel in connection.channels.values()]
        return any(subscription.queue is queue for c in channels for subscription in c.consumers.values())

    def _counted(self, name: str, what: str, known: int | None) -> Callable[[Message], None]:
        def check(message: Message) -> None:
            method = message.method
            assert isinstance(method, (spec.QueueDeclareOk, spec.QueuePurgeOk, spec.QueueDeleteOk))
            said = method.message_count
            if known is not None:
                self.ledger.count("counts checked")
                if said != known:
                    raise Violation(f"{what} of {name} counts {said} messages; expected: {known}")

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
            if queue is not None:
                self.ledger.forget(queue)
            counted(message)

        self._expect(channel, spec.QueueDeleteOk, check=check)

    def _purge(self, connection: Connection, channel: Channel, method: spec.QueuePurge) -> None:
        queue = self._queue(connection, channel, method.queue)
        if queue is None:
            return
        known = self._exact(queue)
        operation = self.ledger.operation(f"purge of {queue.name}")
        if known is None:
            for copy in (*queue.copies.values(), *queue.gone.values()):
                copy.doubtful = True  # it may be in flight, or its commit may not be on disk yet
        else:
            for copy in queue.ready():
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
                raise Violation(f"get-empty, although {queue.name} has messages")

        channel.expected.append(Answer((spec.BasicGetOk, spec.BasicGetEmpty), check, queue))

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
            self.ledger.dead_letter(copy, operation, ordered=ordered)
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
        channel.committing = operation

        def check(message: Message) -> None:
            if channel.returns:
                raise Violation(f"commit-ok before the return of message {channel.returns[0][0]}")  # TX-7
            channel.committing = None
            self._know(operation)
            self.ledger.count("commits")
            self.ledger.count("commits over several queues", len({copy.queue for copy in operation.adds}) > 1)

        self._expect(channel, spec.TxCommitOk, check=check)

    def _close(self, connection: Connection, channel: Channel, method: spec.ChannelClose) -> None:
        self._release(channel)
        channel.closing = 0
        self._expect(channel, spec.ChannelCloseOk)

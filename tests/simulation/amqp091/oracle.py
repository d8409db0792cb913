"""The oracle observes every frame between clients and server, and checks the server's output.

A client's frame counts when the server has received it, and an answer when the server has sent it.
"""

from __future__ import annotations

from escrowmq.wire.amqp091 import spec
from tests.harness.frames import Message
from tests.simulation.amqp091.channels import Channel, Connection
from tests.simulation.amqp091.requests import Requests
from tests.simulation.ledger import Operation, State, Violation


class Oracle(Requests):
    """Observes connections and turns, and checks the direction from the server to clients."""

    def connect(self, name: str) -> Connection:
        connection = Connection(name)
        self.connections[connection] = None
        return connection

    def lose(self, connection: Connection) -> None:
        """Note that the server has lost the connection."""
        if not connection.lost:
            connection.lost = True
            self.connections.pop(connection)
            self._release_all(connection)

    def die(self) -> None:
        """Note that the server process has ended."""
        for connection in list(self.connections):
            self.lose(connection)
        self.held.clear()
        self._seen.clear()

    def before_output(self) -> None:
        """Prepare for the end of a turn. Deliveries wait behind all earlier answers on their connection."""
        waiting = [each for each in self.connections if any(channel.pending for channel in each.channels.values())]
        self.held = {channel: channel.sources for each in waiting for channel in each.channels.values()}

    def after_output(self, *, unfinished: bool = False) -> None:
        """Check at the end of a turn that every message delivered in it was the head of its queue (ORD-2).

        If the turn is `unfinished`, deliveries of an ended channel or connection go on returning in the next one.
        """
        for copy, threshold in self._seen:
            if copy.key is not None:
                self._check_head(copy, threshold)
        self._seen.clear()
        if unfinished and self._last_release == self.ledger.turn:
            self._last_release += 1
        self.ledger.turn += 1

    def outward(self, connection: Connection, data: bytes) -> None:
        """Process bytes that the server has sent."""
        for message in connection.outward.feed(data):
            self._tell(connection, "<", message)
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
                raise Violation(f"message {serial} is returned unexpectedly")
            self.ledger.count("returns")
        elif isinstance(method, spec.ChannelClose):
            self._closed(channel, method)
        elif isinstance(method, spec.BasicCancel):
            subscription = channel.consumers.pop(method.consumer_tag, None)
            if subscription is not None and not subscription.cancelled:
                raise Violation(f"consumer {method.consumer_tag} is cancelled without a reason")
        else:
            if not channel.expected or not isinstance(method, channel.expected[0].kinds):
                raise Violation(f"{method} on channel {channel.number} is not the expected answer")
            channel.expected.popleft().check(message)
            if isinstance(method, spec.ChannelCloseOk):
                connection.channels.pop(channel.number, None)

    def _closed(self, channel: Channel, method: spec.ChannelClose) -> None:
        if method.reply_code == 506 and channel.closing is None:
            self._revoke(channel)
        elif not channel.closing or channel.closing != method.reply_code:
            raise Violation(f"channel {channel.number} is closed: {method.reply_text}; expected: {channel.closing}")
        if channel.confirms:
            raise Violation(
                f"channel {channel.number} is closed before publishes {list(channel.confirms)} are confirmed"
            )
        self.ledger.count(f"channels closed with {method.reply_code}")

    def _confirmed(self, channel: Channel, method: spec.BasicAck | spec.BasicNack) -> None:
        tag = method.delivery_tag
        tags = [t for t in channel.confirms if t <= tag] if method.multiple else [tag]
        if tag not in channel.confirms:
            raise Violation(f"confirm of {tag} on channel {channel.number}, which has no such unconfirmed publish")
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
                raise Violation(
                    f"{copy} was delivered to {method.consumer_tag} after a later one, but not marked as redelivered"
                )
            subscription.last_key = copy.key
        if subscription.prefetch:
            deliveries = [*channel.unsettled.values(), *(d for _, d, _ in channel.transaction.settlements)]
            held = sum(delivery.consumer == method.consumer_tag for delivery in deliveries)
            if held > subscription.prefetch:
                raise Violation(f"{method.consumer_tag} has {held} deliveries, its limit is {subscription.prefetch}")

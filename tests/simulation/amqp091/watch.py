"""The state shared by both directions of the oracle: deliveries, and knowledge about transactions."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.properties import scan
from tests.harness.frames import Message
from tests.simulation.amqp091.channels import Channel, Connection, Delivery, Transaction
from tests.simulation.ledger import Copy, Ledger, Operation, Queue, State, Violation


class Watch:
    """The state of the observation. Methods raise Violation as soon as the server breaks a rule."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.connections: dict[Connection, None] = {}
        self.held: dict[Channel, set[Queue]] = {}
        """Channels whose deliveries may be on their way, and from which queues, at the end of a turn."""
        self.tell: Callable[[str], None] | None = None
        """Called with a line for each message, if set."""
        self._seen: list[tuple[Copy, int]] = []
        self._last_release = -1  # the turn in which deliveries of a channel or connection that ended last returned

    def _tell(self, connection: Connection, way: str, message: Message) -> None:
        if self.tell is not None and message.channel:
            serial = f" message {message.body.split(b'.')[0].decode()}" if message.body else ""
            self.tell(f"{connection.name} {way} {message.channel} {message.method}{serial}")

    @property
    def settled(self) -> bool:
        """Whether no answer is due, so that all deliveries have been seen."""
        return not any(
            c.pending or c.recovering for connection in self.connections for c in connection.channels.values()
        )

    def _check_head(self, copy: Copy, threshold: int) -> None:
        queue = copy.queue
        if (
            queue.sealed_by
            or queue.deleted
            or any(queue in sources | channel.sources for channel, sources in self.held.items())
        ):
            return
        place = queue.place(copy)
        for other in queue.ready():
            if other.maybe or other.key is None or other.since > threshold:
                continue
            if queue.place(other) < place:
                raise Violation(f"{copy} was delivered before {other}, which has been ready since turn {other.since}")

    def _release(self, channel: Channel) -> None:
        """Requeue all deliveries of a channel (ORD-2, TX-10)."""
        if channel.closing is not None:
            return
        self._last_release = self.ledger.turn
        settled = [delivery for _, delivery, _ in channel.transaction.settlements]
        for delivery in [*channel.unsettled.values(), *settled]:
            self._give_back(delivery.copy)
        if channel.transaction.publishes:
            self.ledger.count("transactions dropped by a close")
        channel.unsettled.clear()
        channel.transaction = Transaction()
        channel.consumers.clear()

    def _release_all(self, connection: Connection) -> None:
        for channel in connection.channels.values():
            self._release(channel)
        connection.channels.clear()
        for queue in [queue for queue in self.ledger.queues.values() if queue.owner is connection]:
            self.ledger.delete(queue, self.ledger.operation("end of an exclusive queue"))  # EXC-1

    def _give_back(self, copy: Copy) -> None:
        if not copy.queue.deleted:
            self.ledger.give_back(copy)
            self.ledger.count("returned")

    def _know(self, operation: Operation) -> None:
        """Note that the transaction is certain to be committed."""
        operation.promised = True
        for copy in operation.adds:
            copy.queue.sealed_by.pop(operation, None)
            if copy.queue.refuses:
                copy.doubtful = False

    def _revoke(self, channel: Channel) -> None:
        """Note that the commit was refused, so that none of its effects may ever be seen (TX-13)."""
        if channel.committing is None:
            raise Violation(f"channel {channel.number} is closed with 506 without a reason")
        operation = channel.committing
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
        channel.returns.clear()
        operation.adds.clear()
        operation.removals.clear()
        channel.expected.popleft()
        self._release(channel)
        channel.closing = 506

    def _infer_refusal(self, copy: Copy) -> None:
        """Conclude that a commit was refused, if one of its channel's deliveries is delivered again."""
        for connection in self.connections:
            for channel in connection.channels.values():
                if channel.undecided:
                    assert channel.committing is not None
                    held = any(delivery.copy is copy for delivery in channel.unsettled.values())
                    if held or copy in channel.committing.removals:
                        self._revoke(channel)
                        return

    def _refuse_copy(self, copy: Copy, refusal: Operation) -> None:
        if copy.state is not State.READY or copy.delivered:
            raise Violation(f"{copy} was refused after it had been delivered")
        self.ledger.remove(copy, refusal)
        if copy.identity.via:
            del copy.queue.gone[copy.identity]  # it may still be dead-lettered later

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
                f"delivery tag {method.delivery_tag} on channel {channel.number}; expected: {channel.next_tag}"
            )
        channel.next_tag += 1
        deaths = (scan(message.header).headers or {}).get("x-death")
        via = str(deaths[0]["queue"]) if isinstance(deaths, list) and isinstance(deaths[0], dict) else ""
        header = None if via or queue.quorum else message.header  # both add a header of their own
        copy = self.ledger.identify(queue, int(message.body.split(b".")[0]), via, message.body, header)
        if copy.state is not State.READY:
            self._infer_refusal(copy)
        if copy.state is State.OUT:
            raise Violation(f"{copy} is delivered, although it is unsettled at another client")
        if copy.state is State.GONE:
            raise Violation(f"{copy} is delivered after {copy.removed and copy.removed.what}")
        if copy.delivered and not method.redelivered:
            raise Violation(f"{copy} is delivered again, but not marked as redelivered")
        if copy.added.transaction:
            self._know(copy.added)
        self.ledger.count("redelivered" if method.redelivered else "delivered")
        copy.delivered = True
        self._seen.append((copy, threshold))
        if no_ack:
            self.ledger.remove(
                copy, Operation(f"delivery of {copy}", None)
            )  # the oracle cannot know the turn of its removal
        else:
            copy.state = State.OUT
            channel.unsettled[method.delivery_tag] = Delivery(copy, consumer)
        return copy

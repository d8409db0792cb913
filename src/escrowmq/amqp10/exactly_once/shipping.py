"""Sends the rows of an outbox over a link, for both faces of the client. Only the faces know a socket.

The operation `flush` claims rows, sends them, and records their outcomes, each in a transaction of the database, before
the broker may forget the messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from escrowmq.amqp10 import operations
from escrowmq.amqp10.endpoint.deliveries import OutgoingDelivery
from escrowmq.amqp10.endpoint.outgoing import OutgoingLink
from escrowmq.amqp10.endpoint.session import SessionEndpoint
from escrowmq.amqp10.errors import reason
from escrowmq.amqp10.exactly_once.database import Database
from escrowmq.amqp10.exactly_once.identity import Identity
from escrowmq.amqp10.exactly_once.outbox import OutboxTable
from escrowmq.amqp10.message import Message
from escrowmq.amqp10.nodes import DURABLE, LinkOptions

WINDOW: Final = 2000


class Shipping:
    """The outbox of one link, and the messages of it that are in flight."""

    def __init__(self, database: Any, name: str, window: int) -> None:
        self.database = database if isinstance(database, Database) else Database(database)
        self.identity = Identity(self.database, name)
        self.outbox = OutboxTable(self.database, name)
        self._name = name
        self._window = window
        self._link: OutgoingLink | None = None
        self._flying: dict[bytes, OutgoingDelivery] = {}
        self._uncertain = False  # whether the last claim may have been committed without being sent

    @property
    def link(self) -> OutgoingLink:
        """The link, which `attach` has attached."""
        assert self._link is not None
        return self._link

    def attach(self, session: SessionEndpoint, address: str) -> operations.Operation[None]:
        """Attach the link, and resume the messages that an earlier run may have sent."""
        options = LinkOptions(address, "second", DURABLE, manual=True)
        self._link = yield from operations.sender(session, self._name, options, self.outbox.in_flight())
        self._flying = dict(self.link.unsettled)

    def put(self, message: Message | bytes, connection: Any) -> bytes:
        """Write a message into the outbox, in the transaction of `connection` or by itself. Returns its tag."""
        payload = operations.encoded(message)
        if connection is not None:
            return self.outbox.put(payload, connection)
        with self.database.transaction():
            return self.outbox.put(payload)

    def retry(self, tags: Iterable[bytes]) -> None:
        """Have refused messages sent again."""
        with self.database.transaction():
            self.outbox.retry(list(tags))

    def discard(self, tags: Iterable[bytes]) -> None:
        """Delete refused messages."""
        with self.database.transaction():
            self.outbox.discard(tags)

    def flush(self) -> operations.Operation[int]:
        """Send everything that was committed to the outbox, and wait until the broker has it. Returns the number.

        Raises:
            NotAccepted: The broker did not accept a message, which stays refused.
            LinkStolen: Another process runs this link now.
        """
        count, failed = 0, None
        while True:
            done, refused = self._collect()
            count, failed = count + done, failed or refused
            free = self._window - len(self._flying)
            if free * 2 >= self._window and self._claim(free) < free and not self._flying:
                break
            yield self._outcomes()
        if failed is not None:
            failed.check()
        return count

    # -- inside

    def _claim(self, most: int) -> int:
        uncertain, self._uncertain = self._uncertain, True
        with self.database.transaction():
            rows = [row for row in self.outbox.in_flight() if row.tag not in self._flying] if uncertain else []
            rows += self.outbox.claim(most)
            if rows:
                self.identity.check()
        self._uncertain = False
        for tag, message in rows:
            self._flying[tag] = self.link.send(message, tag=tag)
        self.link.pump()
        return len(rows)

    def _collect(self) -> tuple[int, OutgoingDelivery | None]:
        """Record the outcomes that have arrived, and only then let the broker forget them."""
        self.link.check()
        done = [delivery for delivery in self._flying.values() if delivery.outcome is not None]
        if not done:
            return 0, None
        refused = [delivery for delivery in done if not delivery.accepted]
        with self.database.transaction():
            self.identity.check()
            self.outbox.delete(delivery.tag for delivery in done if delivery.accepted)
            self.outbox.refuse((delivery.tag, _reason(delivery)) for delivery in refused)
        for delivery in done:
            del self._flying[delivery.tag]
            self.link.settle(delivery)
        self.link.session.endpoint.wake()
        return len(done) - len(refused), refused[0] if refused else None

    def _outcomes(self) -> operations.Wait:
        """Return the condition for half of the outcomes, because each record of outcomes costs a commit."""
        flying = list(self._flying.values())
        wanted = max(len(flying) // 2, 1)
        return operations.Wait(
            lambda: self.link.check() and sum(delivery.outcome is not None for delivery in flying) >= wanted,
            f"outcomes on {self.link}: {len(flying)} messages are still in flight; flush again",
        )


def _reason(delivery: OutgoingDelivery) -> str:
    return reason(getattr(delivery.outcome, "error", None), type(delivery.outcome).__name__.lower())

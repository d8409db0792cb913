"""A sender whose unsettled messages are rows of a database, so that each is sent exactly once, whoever crashes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, Self

from escrowmq.amqp10 import operations
from escrowmq.amqp10.blocking.connection import Connection, connect
from escrowmq.amqp10.blocking.links import DEFAULT, ConnectionTimeout, Timeout
from escrowmq.amqp10.endpoint.deliveries import OutgoingDelivery
from escrowmq.amqp10.errors import NotAccepted, OperationTimeout, reason
from escrowmq.amqp10.exactly_once.database import Database
from escrowmq.amqp10.exactly_once.identity import Identity
from escrowmq.amqp10.exactly_once.outbox import OutboxTable, RefusedRow
from escrowmq.amqp10.message import Message
from escrowmq.amqp10.nodes import DURABLE, LinkOptions

WINDOW: Final = 2000


class ExactlyOnceSender:
    """Sends the messages of an outbox to one address, each exactly once.

    `put` writes a message into the outbox in your own database transaction, together with the rows that it belongs
    to. `flush` sends what was committed. `name` identifies the link in the database and at the broker, for ever; one
    process at a time runs it. `database` is a `Database`, or what its constructor takes. Other keywords are those of
    `connect`.

    Raises:
        NotGranted: The broker has no exactly-once links.
    """

    def __init__(
        self,
        urls: str | Iterable[str] | None,
        address: str,
        *,
        name: str,
        database: Any,
        window: int = WINDOW,
        **keywords: Any,
    ) -> None:
        self._database = database if isinstance(database, Database) else Database(database)
        self._window = window
        self._identity = Identity(self._database, name)
        self.outbox = OutboxTable(self._database, name)
        self.connection: Connection = connect(urls, container_id=self._identity.container, **keywords)
        try:
            options = LinkOptions(address, "second", DURABLE, manual=True)
            recovered = self.outbox.in_flight()
            operation = operations.sender(self.connection.endpoint_session, name, options, recovered)
            self._link = self.connection.run(operation)
        except BaseException:
            self.connection.abort()
            raise
        self._flying: dict[bytes, OutgoingDelivery] = dict(self._link.unsettled)
        self._uncertain = False  # whether the last claim may have been committed without being sent

    def put(self, message: Message | bytes, connection: Any = None) -> bytes:
        """Write a message into the outbox, and return its tag. It is sent after your transaction has committed.

        `connection` is your database connection, with an open transaction. Without it, the message is committed by
        itself.
        """
        payload = operations.encoded(message)
        if connection is not None:
            return self.outbox.put(payload, connection)
        with self._database.transaction():
            return self.outbox.put(payload)

    def send(self, message: Message | bytes, timeout: Timeout = DEFAULT) -> None:
        """Write a message into the outbox by itself, and send it. Raises as `flush` does."""
        self.put(message)
        self.flush(timeout)

    def flush(self, timeout: Timeout = DEFAULT) -> int:
        """Send everything that was committed to the outbox, and wait until the broker has it. Returns the number.

        Raises:
            NotAccepted: The broker did not accept a message, which stays in `refused`.
            OperationTimeout: Messages are still in flight; a later `flush`, also of another process, goes on.
            LinkStolen: Another process runs this link now.
        """
        limit = self.connection.timeout if isinstance(timeout, ConnectionTimeout) else timeout
        deadline = None if limit is None else time.monotonic() + limit
        count, failed = 0, None
        while True:
            done, refused = self._collect()
            count, failed = count + done, failed or refused
            free = self._window - len(self._flying)
            if free * 2 >= self._window and self._claim(free) < free and not self._flying:
                break
            self._wait(deadline)
        if failed is not None:
            failed.check()
        return count

    def run(self, stop: threading.Event, poll: float = 0.2) -> None:
        """Send what is committed to the outbox, also by other processes, until `stop` is set.

        The table is read every `poll` seconds. Refused messages stay in `refused`.
        """
        while not stop.is_set():
            try:
                self.flush(None)
            except NotAccepted:
                continue
            stop.wait(poll)
            self.connection.process()

    def refused(self) -> list[RefusedRow]:
        """Return the messages that the broker did not accept, with its reasons."""
        return self.outbox.refused()

    def retry(self, tags: Iterable[bytes]) -> None:
        """Have refused messages sent again by the next `flush`."""
        with self._database.transaction():
            self.outbox.retry(list(tags))

    def discard(self, tags: Iterable[bytes]) -> None:
        """Delete refused messages."""
        with self._database.transaction():
            self.outbox.discard(tags)

    def close(self) -> None:
        """Close the connections to broker and database. What is in the outbox is sent by a later run."""
        self.connection.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- inside

    def _claim(self, most: int) -> int:
        uncertain, self._uncertain = self._uncertain, True
        with self._database.transaction():
            rows = [row for row in self.outbox.in_flight() if row.tag not in self._flying] if uncertain else []
            rows += self.outbox.claim(most)
            if rows:
                self._identity.check()
        self._uncertain = False
        with self.connection.driver:
            for tag, message in rows:
                self._flying[tag] = self._link.send(message, tag=tag)
            self._link.pump()
        return len(rows)

    def _collect(self) -> tuple[int, OutgoingDelivery | None]:
        """Record the outcomes that have arrived, and only then let the broker forget them."""
        self._link.check()
        done = [delivery for delivery in self._flying.values() if delivery.outcome is not None]
        if not done:
            return 0, None
        refused = [delivery for delivery in done if not delivery.accepted]
        with self._database.transaction():
            self._identity.check()
            self.outbox.delete(delivery.tag for delivery in done if delivery.accepted)
            self.outbox.refuse((delivery.tag, _reason(delivery)) for delivery in refused)
        with self.connection.driver:
            for delivery in done:
                del self._flying[delivery.tag]
                self._link.settle(delivery)
            self.connection.driver.endpoint.wake()
        return len(done) - len(refused), refused[0] if refused else None

    def _wait(self, deadline: float | None) -> None:
        """Wait for outcomes: for half of what is in flight, because each record of outcomes costs a commit."""
        flying = list(self._flying.values())
        wanted = max(len(flying) // 2, 1)
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        if left == 0.0:
            raise OperationTimeout(f"{self._link}: {len(flying)} messages are still in flight; flush again")

        def until() -> operations.Operation[None]:
            yield operations.Wait(
                lambda: self._link.check() and sum(delivery.outcome is not None for delivery in flying) >= wanted,
                f"outcomes on {self._link}",
            )

        self.connection.run(until(), left)


def _reason(delivery: OutgoingDelivery) -> str:
    return reason(getattr(delivery.outcome, "error", None), type(delivery.outcome).__name__.lower())

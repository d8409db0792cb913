"""A receiver that records each processed message in the transaction of its processing: exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from escrowmq.amqp10 import operations
from escrowmq.amqp10.blocking.connection import Connection, connect
from escrowmq.amqp10.blocking.links import DEFAULT, Timeout
from escrowmq.amqp10.endpoint.deliveries import IncomingDelivery
from escrowmq.amqp10.errors import OperationTimeout
from escrowmq.amqp10.exactly_once.processing import Processing


class ExactlyOnceReceiver:
    """Receives messages from one address, and has each processed exactly once.

    `process` runs your processing and the record of the delivery in one database transaction. `name` identifies the
    link in the database and at the broker, for ever; one process at a time runs it. `database` is a `Database`, or
    what its constructor takes. Other keywords are those of `connect`.

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
        credit: int = 100,
        filters: dict[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        self._processing = Processing(database, name)
        self.inbox = self._processing.inbox
        self.connection: Connection = connect(urls, container_id=self._processing.identity.container, **keywords)
        try:
            self.connection.run(self._processing.attach(self.connection.endpoint_session, address, credit, filters))
        except BaseException:
            self.connection.abort()
            raise

    def receive(self, timeout: Timeout = DEFAULT) -> IncomingDelivery:
        """Wait for the next message. Pass its delivery to `process`, or release or reject it.

        Raises:
            OperationTimeout: No message arrived in time.
        """
        return self.connection.run(operations.receive(self._processing.link), timeout)

    def receive_many(self, most: int, timeout: Timeout = DEFAULT) -> list[IncomingDelivery]:
        """Wait for at least one message, and return up to `most`; an empty list after `timeout` seconds."""
        try:
            return self.connection.run(operations.receive_many(self._processing.link, most), timeout)
        except OperationTimeout:
            self._processing.forget_settled()
            return []

    @contextmanager
    def process(self, *deliveries: IncomingDelivery) -> Iterator[Any]:
        """Process deliveries in one database transaction, whose connection the `with` statement gives you.

        The end of the block records the deliveries, commits, and accepts them. An exception rolls back, and returns
        them to the queue as failed; so does the block if a delivery was lost meanwhile.

        Raises:
            DeliveryLost: The broker has taken a delivery back; nothing was committed.
            LinkStolen: Another process runs this link now; nothing was committed.

        If the commit itself fails, its effect is unknown, and the deliveries are kept as they are. Close the receiver
        and open it again: it then knows from the database.
        """
        with self._processing.transaction(deliveries) as connection:
            yield connection

    def record(self, deliveries: Iterable[IncomingDelivery], connection: Any = None) -> None:
        """Record deliveries as processed in a transaction of your own connection. Commit it, then call `confirm`.

        Raises:
            DeliveryLost: The broker has taken a delivery back: roll back.
            LinkStolen: Another process runs this link now: roll back.
        """
        self._processing.record(deliveries, connection)

    def confirm(self, deliveries: Iterable[IncomingDelivery]) -> None:
        """Accept deliveries whose record is committed. After a crash before this, the next run does so."""
        self._processing.confirm(deliveries)

    def close(self) -> None:
        """Close the connections to broker and database. A later run goes on where this one has ended."""
        self._processing.forget_settled()
        self.connection.close()
        self._processing.database.close()

    def __iter__(self) -> Iterator[IncomingDelivery]:
        while True:
            yield self.receive(timeout=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

"""A sender whose unsettled messages are rows of a database, so that each is sent exactly once, whoever crashes."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from escrowmq.amqp10.blocking.connection import Connection, connect
from escrowmq.amqp10.blocking.links import DEFAULT, Timeout
from escrowmq.amqp10.errors import NotAccepted
from escrowmq.amqp10.exactly_once.outbox import RefusedRow
from escrowmq.amqp10.exactly_once.shipping import WINDOW, Shipping
from escrowmq.amqp10.message import Message


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
        self._shipping = Shipping(database, name, window)
        self.outbox = self._shipping.outbox
        self.connection: Connection = connect(urls, container_id=self._shipping.identity.container, **keywords)
        try:
            self.connection.run(self._shipping.attach(self.connection.endpoint_session, address))
        except BaseException:
            self.connection.abort()
            raise

    def put(self, message: Message | bytes, connection: Any = None) -> bytes:
        """Write a message into the outbox, and return its tag. It is sent after your transaction has committed.

        `connection` is your database connection, with an open transaction. Without it, the message is committed by
        itself.
        """
        return self._shipping.put(message, connection)

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
        return self.connection.run(self._shipping.flush(), timeout)

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
        self._shipping.retry(tags)

    def discard(self, tags: Iterable[bytes]) -> None:
        """Delete refused messages."""
        self._shipping.discard(tags)

    def close(self) -> None:
        """Close the connections to broker and database. What is in the outbox is sent by a later run."""
        self.connection.close()
        self._shipping.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

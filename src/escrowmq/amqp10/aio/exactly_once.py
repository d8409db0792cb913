"""Exactly once from table to queue and from queue to table, for asyncio.

The database is that of the blocking face, so its calls block the event loop: one commit for each batch of messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

from escrowmq.amqp10 import operations
from escrowmq.amqp10.aio.connection import AsyncConnection, connect
from escrowmq.amqp10.blocking.links import DEFAULT, Timeout
from escrowmq.amqp10.endpoint.deliveries import IncomingDelivery
from escrowmq.amqp10.errors import NotAccepted, OperationTimeout
from escrowmq.amqp10.exactly_once.outbox import RefusedRow
from escrowmq.amqp10.exactly_once.processing import Processing
from escrowmq.amqp10.exactly_once.shipping import WINDOW, Shipping
from escrowmq.amqp10.message import Message


async def exactly_once_sender(
    urls: str | Iterable[str] | None,
    address: str,
    *,
    name: str,
    database: Any,
    window: int = WINDOW,
    **keywords: Any,
) -> AsyncExactlyOnceSender:
    """Open a sender. Arguments and errors are those of `ExactlyOnceSender`."""
    shipping = Shipping(database, name, window)
    connection = await connect(urls, container_id=shipping.identity.container, **keywords)
    try:
        await connection.run(shipping.attach(connection.endpoint_session, address))
    except BaseException:
        connection.abort()
        raise
    return AsyncExactlyOnceSender(connection, shipping)


async def exactly_once_receiver(
    urls: str | Iterable[str] | None,
    address: str,
    *,
    name: str,
    database: Any,
    credit: int = 100,
    filters: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> AsyncExactlyOnceReceiver:
    """Open a receiver. Arguments and errors are those of `ExactlyOnceReceiver`."""
    processing = Processing(database, name)
    connection = await connect(urls, container_id=processing.identity.container, **keywords)
    try:
        await connection.run(processing.attach(connection.endpoint_session, address, credit, filters))
    except BaseException:
        connection.abort()
        raise
    return AsyncExactlyOnceReceiver(connection, processing)


class AsyncExactlyOnceSender:
    """Sends the messages of an outbox to one address, each exactly once. Opened by `exactly_once_sender`."""

    def __init__(self, connection: AsyncConnection, shipping: Shipping) -> None:
        self._shipping = shipping
        self.connection = connection
        self.outbox = shipping.outbox

    def put(self, message: Message | bytes, connection: Any = None) -> bytes:
        """Write a message into the outbox, and return its tag. It is sent after your transaction has committed.

        `connection` is your database connection, with an open transaction. Without it, the message is committed by
        itself.
        """
        return self._shipping.put(message, connection)

    async def send(self, message: Message | bytes, timeout: Timeout = DEFAULT) -> None:
        """Write a message into the outbox by itself, and send it. Raises as `flush` does."""
        self.put(message)
        await self.flush(timeout)

    async def flush(self, timeout: Timeout = DEFAULT) -> int:
        """Send everything that was committed to the outbox, and wait until the broker has it. Returns the number.

        Raises:
            NotAccepted: The broker did not accept a message, which stays in `refused`.
            OperationTimeout: Messages are still in flight; a later `flush`, also of another process, goes on.
            LinkStolen: Another process runs this link now.
        """
        return await self.connection.run(self._shipping.flush(), timeout)

    async def run(self, poll: float = 0.2) -> None:
        """Send what is committed to the outbox, also by other processes, until the task is cancelled.

        The table is read every `poll` seconds. Refused messages stay in `refused`.
        """
        while True:
            try:
                await self.flush(None)
            except NotAccepted:
                continue
            await asyncio.sleep(poll)

    def refused(self) -> list[RefusedRow]:
        """Return the messages that the broker did not accept, with its reasons."""
        return self.outbox.refused()

    def retry(self, tags: Iterable[bytes]) -> None:
        """Have refused messages sent again by the next `flush`."""
        self._shipping.retry(tags)

    def discard(self, tags: Iterable[bytes]) -> None:
        """Delete refused messages."""
        self._shipping.discard(tags)

    async def close(self) -> None:
        """Close the connections to broker and database. What is in the outbox is sent by a later run."""
        await self.connection.close()
        self._shipping.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class AsyncExactlyOnceReceiver:
    """Receives messages from one address, and has each processed exactly once. Opened by `exactly_once_receiver`."""

    def __init__(self, connection: AsyncConnection, processing: Processing) -> None:
        self._processing = processing
        self._transactions = asyncio.Lock()  # the database connection has one transaction at a time
        self.connection = connection
        self.inbox = processing.inbox

    async def receive(self, timeout: Timeout = DEFAULT) -> IncomingDelivery:
        """Wait for the next message. Pass its delivery to `process`, or release or reject it.

        Raises:
            OperationTimeout: No message arrived in time.
        """
        return await self.connection.run(operations.receive(self._processing.link), timeout)

    async def receive_many(self, most: int, timeout: Timeout = DEFAULT) -> list[IncomingDelivery]:
        """Wait for at least one message, and return up to `most`; an empty list after `timeout` seconds."""
        try:
            return await self.connection.run(operations.receive_many(self._processing.link, most), timeout)
        except OperationTimeout:
            async with self._transactions:
                self._processing.forget_settled()
            return []

    @asynccontextmanager
    async def process(self, *deliveries: IncomingDelivery) -> AsyncIterator[Any]:
        """Process deliveries in one database transaction, whose connection the `async with` statement gives you.

        Blocks of several tasks run one after the other. Everything else, and the errors, are those of
        `ExactlyOnceReceiver.process`.
        """
        async with self._transactions:
            with self._processing.transaction(deliveries) as connection:
                yield connection

    def record(self, deliveries: Iterable[IncomingDelivery], connection: Any) -> None:
        """Record deliveries as processed in a transaction of your own connection. Commit it, then call `confirm`.

        Raises:
            DeliveryLost: The broker has taken a delivery back: roll back.
            LinkStolen: Another process runs this link now: roll back.
        """
        self._processing.record(deliveries, connection)

    def confirm(self, deliveries: Iterable[IncomingDelivery]) -> None:
        """Accept deliveries whose record is committed. After a crash before this, the next run does so."""
        self._processing.confirm(deliveries)

    async def close(self) -> None:
        """Close the connections to broker and database. A later run goes on where this one has ended."""
        async with self._transactions:
            self._processing.forget_settled()
        await self.connection.close()
        self._processing.database.close()

    async def __aiter__(self) -> AsyncIterator[IncomingDelivery]:
        while True:
            yield await self.receive(timeout=None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

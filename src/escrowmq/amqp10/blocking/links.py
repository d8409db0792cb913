"""Senders and receivers of the blocking face."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from escrowmq.amqp10 import operations
from escrowmq.amqp10.blocking.driver import SocketDriver
from escrowmq.amqp10.endpoint.deliveries import ACCEPT, IncomingDelivery, OutgoingDelivery
from escrowmq.amqp10.endpoint.incoming import IncomingLink
from escrowmq.amqp10.endpoint.link import LinkEnd
from escrowmq.amqp10.endpoint.outgoing import OutgoingLink
from escrowmq.amqp10.endpoint.transactions import Transaction
from escrowmq.amqp10.errors import OperationTimeout
from escrowmq.amqp10.message import Message
from escrowmq.amqp10.operations import WINDOW

T = TypeVar("T")


class ConnectionTimeout:
    """The type of DEFAULT."""

    def __repr__(self) -> str:
        return "the connection's timeout"


DEFAULT: Final = ConnectionTimeout()
"""Wait for at most the connection's `timeout`."""
Timeout = float | ConnectionTimeout | None
"""A time limit in seconds; None waits without limit."""


class BlockingLink:
    """What senders and receivers share. As a context manager, a link is closed at the end of the block."""

    def __init__(self, driver: SocketDriver, link: LinkEnd) -> None:
        self._driver = driver
        self._end = link

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._end}, {self._end.state.value}>"

    @property
    def name(self) -> str:
        """The name of the link."""
        return self._end.name

    @property
    def address(self) -> str | None:
        """The address as the broker granted it; with `dynamic`, that of the new node."""
        return getattr(operations.granted(self._end), "address", None) or self._end.options.address

    @property
    def properties(self) -> dict[Any, Any]:
        """The properties in the broker's attach."""
        remote = self._end.remote
        return {} if remote is None else remote.properties or {}

    @property
    def is_open(self) -> bool:
        """Whether the link can be used."""
        return not self._end.gone

    def close(self) -> None:
        """Close the link, and destroy its terminus at the broker."""
        self._leave(closed=True)

    def detach(self) -> None:
        """Detach the link. The broker keeps its terminus for as long as its expiry policy says."""
        self._leave(closed=False)

    def _leave(self, *, closed: bool) -> None:
        if not self._end.gone:
            self._run(operations.detach(self._end, closed=closed), DEFAULT)

    def _run(self, operation: operations.Operation[T], timeout: Timeout) -> T:
        limit = self._driver.target.timeout if isinstance(timeout, ConnectionTimeout) else timeout
        return self._driver.run(operation, limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()


class Sender(BlockingLink):
    """Sends messages to one address. Opened by `connection.sender(…)`."""

    def __init__(self, driver: SocketDriver, link: OutgoingLink) -> None:
        super().__init__(driver, link)
        self.link = link

    def send(
        self, message: Message | bytes, *, transaction: Transaction | None = None, timeout: Timeout = DEFAULT
    ) -> OutgoingDelivery:
        """Send a message, and wait for its outcome; presettled, wait only until it is sent.

        `bytes` are taken as an encoded message (`Message.encode`). In a transaction, the outcome is provisional.

        Raises:
            NotAccepted: The broker rejected, released or modified the message.
            OperationTimeout: The outcome is still unknown; with `delivery` unsettled, it may yet arrive.
        """
        return self._run(operations.send(self.link, message, transaction), timeout)

    def post(self, message: Message | bytes, *, transaction: Transaction | None = None) -> OutgoingDelivery:
        """Queue a message without waiting. Its delivery shows the outcome after a later call, such as `flush`."""
        with self._driver:
            delivery = operations.post(self.link, message, transaction)
            self._driver.endpoint.wake()
            return delivery

    def send_many(
        self,
        messages: Iterable[Message | bytes],
        *,
        transaction: Transaction | None = None,
        window: int = WINDOW,
        timeout: Timeout = None,
    ) -> int:
        """Send messages with at most `window` of them unsettled. Returns their number once all are accepted.

        Raises:
            NotAccepted: The broker did not accept a message. The others were sent all the same.
        """
        return self._run(operations.send_many(self.link, messages, transaction, window), timeout)

    def flush(self, timeout: Timeout = DEFAULT) -> None:
        """Wait until everything that was posted is sent and has an outcome."""
        link = self.link
        pending = [*link.queue, *link.unsettled.values()]

        def until() -> operations.Operation[None]:
            yield operations.Wait(
                lambda: link.check() and all(map(operations.delivered, pending)), f"the outcomes on {link}"
            )

        self._run(until(), timeout)

    @property
    def credit(self) -> int:
        """How many messages the broker accepts now."""
        return self.link.credit

    @property
    def unsettled(self) -> list[OutgoingDelivery]:
        """The deliveries that are not settled."""
        return list(self.link.unsettled.values())


class Receiver(BlockingLink):
    """Receives messages from one address. Opened by `connection.receiver(…)`; iterating waits for each message."""

    def __init__(self, driver: SocketDriver, link: IncomingLink) -> None:
        super().__init__(driver, link)
        self.link = link

    def receive(self, timeout: Timeout = DEFAULT) -> IncomingDelivery:
        """Wait for the next message.

        Raises:
            OperationTimeout: No message arrived in time.
        """
        return self._run(operations.receive(self.link), timeout)

    def receive_many(self, most: int = WINDOW, timeout: Timeout = DEFAULT) -> list[IncomingDelivery]:
        """Wait for at least one message, and return up to `most`; an empty list after `timeout` seconds."""
        try:
            return self._run(operations.receive_many(self.link, most), timeout)
        except OperationTimeout:
            return []

    def accept(self, deliveries: Iterable[IncomingDelivery], transaction: Transaction | None = None) -> None:
        """Accept deliveries of this link, in as few frames as possible. Raises DeliveryLost as their `accept` does."""
        with self._driver:
            if transaction is None:
                self.link.settle(deliveries, ACCEPT)
            else:
                transaction.retire(deliveries, ACCEPT)
            self._driver.endpoint.wake()

    def wait_settled(self, deliveries: Iterable[IncomingDelivery], timeout: Timeout = DEFAULT) -> None:
        """In mode `second`, wait until the broker has settled deliveries that were given an outcome."""
        self._run(operations.settled(deliveries), timeout)

    def drain(self, credit: int = WINDOW, timeout: Timeout = DEFAULT) -> list[IncomingDelivery]:
        """Return what the broker has ready, up to `credit` messages. For receivers with `credit=0`."""
        return self._run(operations.drain(self.link, credit), timeout)

    def grant(self, credit: int) -> None:
        """Set the credit: how many messages the broker may send from now on. For receivers with `credit=0`."""
        with self._driver:
            self.link.grant(credit)
            self._driver.endpoint.wake()

    def acquire(self, transaction: Transaction, credit: int) -> None:
        """Have the next `credit` deliveries acquired in the transaction: a rollback returns them to the queue."""
        with self._driver:
            transaction.acquire(self.link, credit)
            self._driver.endpoint.wake()

    def __iter__(self) -> Iterator[IncomingDelivery]:
        while self.is_open:
            yield self.receive(timeout=None)

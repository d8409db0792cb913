"""Records processed messages in an inbox, for both faces of the client. Only the faces know a socket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from escrowmq.amqp10 import operations
from escrowmq.amqp10.endpoint.deliveries import ACCEPT, IncomingDelivery
from escrowmq.amqp10.endpoint.incoming import IncomingLink
from escrowmq.amqp10.endpoint.session import SessionEndpoint
from escrowmq.amqp10.errors import DeliveryLost
from escrowmq.amqp10.exactly_once.database import Database
from escrowmq.amqp10.exactly_once.identity import Identity
from escrowmq.amqp10.exactly_once.inbox import InboxTable
from escrowmq.amqp10.nodes import DURABLE, LinkOptions

_FORGET: Final = 500


class Processing:
    """The inbox of one link, and the transactions that record deliveries in it."""

    def __init__(self, database: Any, name: str) -> None:
        self.database = database if isinstance(database, Database) else Database(database)
        self.identity = Identity(self.database, name)
        self.inbox = InboxTable(self.database, name)
        self._name = name
        self._link: IncomingLink | None = None

    @property
    def link(self) -> IncomingLink:
        """The link, which `attach` has attached."""
        assert self._link is not None
        return self._link

    def attach(
        self, session: SessionEndpoint, address: str, credit: int, filters: Mapping[str, Any] | None
    ) -> operations.Operation[None]:
        """Attach the link, and resume the deliveries that an earlier run has processed."""
        options = LinkOptions(address, "second", DURABLE, filters=filters or {}, manual=True)
        self._link = yield from operations.receiver(session, self._name, options, credit, self.inbox.tags())

    @contextmanager
    def transaction(self, deliveries: Iterable[IncomingDelivery]) -> Iterator[Any]:
        """Process deliveries in one database transaction, as the faces describe it."""
        chosen = list(deliveries)
        recorded = False
        try:
            with self.database.transaction() as connection:
                self.identity.check()
                forgotten = self._forget()
                yield connection
                self.record(chosen)
                recorded = True
        except BaseException:
            # If the commit has failed, it may have taken effect all the same: the next run knows from the table.
            for delivery in () if recorded else chosen:
                if not delivery.settled and delivery.outcome is None:
                    with suppress(DeliveryLost):
                        delivery.modify()
            raise
        del self.link.forgotten[:forgotten]
        self.confirm(chosen)

    def record(self, deliveries: Iterable[IncomingDelivery], connection: Any = None) -> None:
        """Record deliveries as processed in a transaction of the user's own connection, or in that of `transaction`.

        Raises:
            DeliveryLost: The broker has taken a delivery back: roll back.
            LinkStolen: Another process runs this link now: roll back.
        """
        chosen = list(deliveries)
        if connection is not None:
            self.identity.check(connection)
        for delivery in chosen:
            delivery.check()
        self.inbox.record([delivery.tag for delivery in chosen], connection)

    def confirm(self, deliveries: Iterable[IncomingDelivery]) -> None:
        """Accept deliveries whose record is committed."""
        endpoint = self.link.session.endpoint
        with endpoint.guard:
            self.link.settle([delivery for delivery in deliveries if not delivery.lost], ACCEPT)
            endpoint.wake()

    def forget_settled(self) -> None:
        """Delete the records of what the broker has settled."""
        while self.link.forgotten:
            with self.database.transaction():
                forgotten = self._forget()
            del self.link.forgotten[:forgotten]

    def _forget(self) -> int:
        """Delete some of these records in the current transaction. Returns their number."""
        tags = self.link.forgotten[:_FORGET]
        self.inbox.forget(tags)
        return len(tags)

"""Connections, sessions and transactions of the blocking face."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, Self

from escrowmq.amqp10 import operations
from escrowmq.amqp10.blocking.driver import SocketDriver
from escrowmq.amqp10.blocking.links import DEFAULT, ConnectionTimeout, Receiver, Sender, Timeout
from escrowmq.amqp10.endpoint.session import SessionEndpoint
from escrowmq.amqp10.endpoint.transactions import Transaction, TransactionState
from escrowmq.amqp10.nodes import LinkOptions, Mode, Terminus, terminus_for, terminus_of_subscription
from escrowmq.amqp10.operations import Coordination, new_name
from escrowmq.amqp10.parameters import Backoff, parameters


def connect(
    urls: str | Iterable[str] | None = None,
    *,
    container_id: str = "",
    reconnect: Backoff | bool = True,
    **keywords: Any,
) -> Connection:
    """Connect to a broker, or to the first of several URLs that answers.

    `container_id` identifies this client to the broker; durable links need one that stays the same. `reconnect` is the
    back-off after a lost connection; False raises ConnectionLost instead. The first connection is attempted once for
    each URL, unless a `Backoff` is given, which then applies to it, too. Other keywords are the fields of `Parameters`.

    Raises:
        ConnectionLost: No broker answered, or all refused the login (LoginRefused) or the connection
            (ConnectionRefused).
        UsageError: A URL or an argument is invalid.
    """
    backoff = Backoff() if reconnect is True else reconnect or None
    driver = SocketDriver(parameters(urls, **keywords), container_id or new_name("python"), backoff)
    driver.connect(patiently=isinstance(reconnect, Backoff))
    try:
        return Connection(driver)
    except BaseException:
        driver.abort()
        raise


class Session:
    """Links and transactions that share the order and the window of one session."""

    def __init__(self, driver: SocketDriver, session: SessionEndpoint) -> None:
        self._driver = driver
        self._session = session
        self._coordination = Coordination(session)

    def sender(
        self,
        address: str | None = None,
        *,
        mode: Mode | Literal["mixed"] = "first",
        name: str = "",
        terminus: Terminus | None = None,
        dynamic: bool = False,
        capabilities: Iterable[str] = (),
        properties: Mapping[str, Any] | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Sender:
        """Attach a sender to an address; None is the anonymous terminus, where each message's `to` is the address.

        `mode` is `presettled`, `first` or `second`. A link with a `name` and a durable `terminus` can be resumed.
        `dynamic` has the broker create a node; its name is then in `address`.

        Raises:
            LinkFailed: The broker refused the link; NotGranted: or it granted less than was asked for.
        """
        options = LinkOptions(
            address,
            mode,
            terminus or terminus_for(mode),
            dynamic=dynamic,
            capabilities=tuple(capabilities),
            properties=properties or {},
        )
        link = self._run(operations.sender(self._session, name or new_name("sender"), options), timeout)
        return Sender(self._driver, link)

    def receiver(
        self,
        address: str | None = None,
        *,
        mode: Mode | None = None,
        credit: int = 100,
        name: str = "",
        terminus: Terminus | None = None,
        dynamic: bool = False,
        browse: bool = False,
        filters: Mapping[str, Any] | None = None,
        capabilities: Iterable[str] = (),
        properties: Mapping[str, Any] | None = None,
        default_outcome: Any = None,
        timeout: Timeout = DEFAULT,
    ) -> Receiver:
        """Attach a receiver to an address.

        `mode` is `first` by default. `credit` is the number of messages to have ready; with 0, only `grant`, `drain`
        and `acquire` ask for messages. `browse` reads presettled copies, and leaves the messages in the queue.
        `filters` come from `selector` and its neighbours; `capabilities` of the source are `queue`, `topic`, `shared`
        or `global`. The broker applies `default_outcome` to deliveries that are never settled.

        Raises:
            LinkFailed: The broker refused the link; NotGranted: or it granted less than was asked for.
        """
        chosen = mode or ("presettled" if browse else "first")
        options = LinkOptions(
            address,
            chosen,
            terminus or terminus_for(chosen),
            dynamic=dynamic,
            distribution="copy" if browse else None,
            filters=filters or {},
            capabilities=tuple(capabilities),
            properties=properties or {},
            default_outcome=default_outcome,
        )
        link = self._run(operations.receiver(self._session, name or new_name("receiver"), options, credit), timeout)
        return Receiver(self._driver, link)

    def subscribe(self, address: str, name: str, *, shared: bool = False, **options: Any) -> Receiver:
        """Attach to the durable subscription `name` of a topic or an exchange, and create it if it is new.

        `detach` keeps the subscription, `close` deletes it. With `shared`, several receivers divide its messages.
        Other keywords are those of `receiver`.
        """
        options.setdefault("terminus", terminus_of_subscription(options.get("mode")))
        capabilities = [*options.pop("capabilities", ()), "topic", *(["shared"] if shared else [])]
        return self.receiver(address, name=name, capabilities=capabilities, **options)

    @contextmanager
    def transaction(self, timeout: Timeout = DEFAULT) -> Iterator[Transaction]:
        """Begin a transaction; the end of the `with` block commits it, and an exception rolls it back.

        Raises:
            TransactionFailed: The broker could not commit; NotAccepted: or it did not accept a message.
            TransactionInDoubt: The connection was lost before the commit was answered.
        """
        transaction = self.begin(timeout)
        try:
            yield transaction
        except BaseException:
            self.rollback(transaction, timeout)
            raise
        if transaction.state is not TransactionState.ROLLED_BACK:
            self.commit(transaction, timeout)

    def begin(self, timeout: Timeout = DEFAULT) -> Transaction:
        """Begin a transaction. Several can be active at once."""
        return self._run(self._coordination.declare(), timeout)

    def commit(self, transaction: Transaction, timeout: Timeout = DEFAULT) -> None:
        """Commit a transaction. Raises as `transaction` does."""
        self._run(operations.commit(transaction), timeout)

    def rollback(self, transaction: Transaction, timeout: Timeout = DEFAULT) -> None:
        """Roll a transaction back."""
        self._run(operations.rollback(transaction), timeout)

    def _run(self, operation: operations.Operation[operations.T], timeout: Timeout) -> operations.T:
        limit = self._driver.target.timeout if isinstance(timeout, ConnectionTimeout) else timeout
        return self._driver.run(operation, limit)

    def close(self) -> None:
        """End the session. Its links are gone; the broker keeps termini as their expiry policies say."""
        self._run(operations.end_session(self._session), DEFAULT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Connection(Session):
    """A connection, with a session of its own for its links. Opened by `connect`."""

    def __init__(self, driver: SocketDriver) -> None:
        self.driver = driver
        super().__init__(driver, driver.run(operations.begin_session(driver.endpoint), driver.target.timeout))

    def __repr__(self) -> str:
        return f"<Connection to {self.driver.target.location}, {self.driver.endpoint.state.value}>"

    @property
    def container_id(self) -> str:
        """The name of this client at the broker."""
        return self.driver.endpoint.container_id

    @property
    def timeout(self) -> float | None:
        """The time limit (s) of calls that name none."""
        return self.driver.target.timeout

    @property
    def endpoint_session(self) -> SessionEndpoint:
        """The connection's own session, without I/O."""
        return self._session

    def run(self, operation: operations.Operation[operations.T], timeout: Timeout = DEFAULT) -> operations.T:
        """Run an operation of `escrowmq.amqp10.operations`."""
        return self._run(operation, timeout)

    @property
    def is_open(self) -> bool:
        """Whether the connection is open at this moment."""
        return operations.opened(self.driver.endpoint)

    @property
    def broker_properties(self) -> dict[Any, Any]:
        """The properties in the broker's open."""
        remote = self.driver.endpoint.remote
        return {} if remote is None else remote.properties or {}

    def session(self, timeout: Timeout = DEFAULT) -> Session:
        """Begin a further session."""
        return Session(self.driver, self._run(operations.begin_session(self.driver.endpoint), timeout))

    def process(self) -> None:
        """Exchange what is ready, without waiting: outcomes of posted messages arrive, and heartbeats are sent."""
        self.driver.poll()

    def close(self) -> None:
        """Close the connection. Open transactions are rolled back; durable termini stay at the broker."""
        self.driver.close()

    def abort(self) -> None:
        """Drop the connection without a word, as a crash would. For tests."""
        self.driver.abort()

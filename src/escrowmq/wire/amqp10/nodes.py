"""The nodes that links are attached to: queues to read, routes to publish to, and nodes that are created for a link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.declaration import Declaration
from escrowmq.core.topology.exchange import NO_ARGUMENTS
from escrowmq.wire.addresses import exchange_address, queue_address
from escrowmq.wire.amqp10.addresses import (
    TOPIC_CAPABILITIES,
    NodeAddress,
    NodeKind,
    parse,
)
from escrowmq.wire.amqp10.codec.termini import DeleteOnClose, Source, Target
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import INVALID_FIELD, NOT_IMPLEMENTED, PRECONDITION_FAILED, link_fault
from escrowmq.wire.amqp10.lifetime import POLICIES, NodeLifetime, Policy
from escrowmq.wire.amqp10.publication import Destination

if TYPE_CHECKING:
    from escrowmq.core.topology.vhost import VirtualHost
    from escrowmq.wire.amqp10.connection import Connection
    from escrowmq.wire.amqp10.subscriptions import Subscription

LIFETIME: Final = Symbol("lifetime-policy")
_EVERY_KEY: Final = {"topic": "#"}  # the routing key of a subscription to everything, by the type of the exchange


class Nodes:
    """The nodes of a virtual host, as one connection may use them."""

    __slots__ = ("_connection", "_created")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def _vhost(self) -> VirtualHost[Queue]:
        return self._connection.vhost

    # -- targets

    def route(self, address: str, capabilities: tuple[str, ...] = ()) -> Destination:
        """Return the route to `address`, and create its queue if that is allowed. Raises AmqpFault, BrokerError.

        Permissions to publish are checked by the caller.
        """
        node = parse(address, capabilities)
        vhost = self._vhost
        if node.kind is NodeKind.EXCHANGE:
            return Destination(vhost.exchange(node.name).name, node.key)
        if node.kind is NodeKind.TOPIC:
            return Destination(self._topic(node), None)
        if node.name in vhost.queues:
            return Destination("", node.name)
        if node.kind is NodeKind.ANY:
            found = self._exchange(node.name)
            if found is not None:
                return found
        return Destination("", self._created_queue(node).name)

    def _exchange(self, name: str) -> Destination | None:
        """Return the exchange that a plain name means: its own name, or `exchange/key`."""
        exchanges = self._vhost.exchanges
        if name in exchanges:
            return Destination(name, None)
        exchange, slash, key = name.partition("/")
        return Destination(exchange, key) if slash and exchange and exchange in exchanges else None

    def _topic(self, node: NodeAddress) -> str:
        """Return the name of the exchange of a topic, which may have to be created."""
        if node.name not in self._vhost.exchanges:
            self._check_creation(node, "exchange")
            self._connection.door.check(Operation.DECLARE_EXCHANGE, exchange=node.name)
            self._connection.broker.directory.declare_exchange(self._vhost, node.name, "fanout", durable=True)
        return node.name

    # -- sources

    def queue(
        self,
        address: str,
        capabilities: tuple[str, ...] = (),
        subscription: Subscription | None = None,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
    ) -> Queue:
        """Return the queue that a consumer of `address` reads. For an exchange it is that of `subscription`, or else a
        new one, which is bound to it, and is deleted with its last consumer. `arguments` are for the queue of an
        exchange. Raises AmqpFault, BrokerError.
        """
        node = parse(address, capabilities)
        if node.kind is NodeKind.TOPIC:
            return self._subscribed(Destination(self._topic(node), None), subscription, arguments)
        if node.kind is NodeKind.EXCHANGE:
            route = Destination(self._vhost.exchange(node.name).name, node.key or None)
            return self._subscribed(route, subscription, arguments)
        self._connection.door.check(Operation.CONSUME, queue=node.name)
        queue = self._vhost.queues.get(node.name)
        if queue is None and node.kind is NodeKind.ANY:
            found = self._exchange(node.name)
            if found is not None:
                return self._subscribed(found, subscription, arguments)
        if queue is None:
            queue = self._created_queue(node)
        queue.check_access(self._connection.owner)
        return queue

    def _subscribed(
        self, route: Destination, subscription: Subscription | None, arguments: Mapping[str, object]
    ) -> Queue:
        connection, directory = self._connection, self._connection.broker.directory
        exchange = self._vhost.exchange(route.exchange)
        key = route.routing_key if route.routing_key is not None else _EVERY_KEY.get(exchange.kind, "")
        name = subscription.queue if subscription is not None else directory.fresh_queue_name(self._vhost)
        connection.door.check(Operation.DECLARE_QUEUE, queue=name)
        connection.door.check(Operation.CONSUME, queue=name)
        connection.door.check(Operation.BIND_QUEUE, queue=name, exchange=exchange.name, key=key)
        if subscription is None:
            declaration = Declaration(exclusive=True, auto_delete=True, arguments=arguments)
        else:
            durable = subscription.durable
            declaration = Declaration(durable=durable, auto_delete=not durable, arguments=arguments)
            self._end_other(subscription, exchange.name, key, arguments)
        queue = directory.declare_queue(
            self._vhost, name, declaration, connection.owner, generated=subscription is None
        )
        directory.bind_queue(self._vhost, exchange.name, name, key)
        return queue

    def _end_other(self, subscription: Subscription, exchange: str, key: str, arguments: Mapping[str, object]) -> None:
        """End a subscription of the same name to another topic, or with other filters, as JMS has it. Raises
        BrokerError if it is in use.
        """
        queue = self._vhost.queues.get(subscription.queue)
        if queue is None:
            return
        if queue.arguments == arguments and self._vhost.is_bound(exchange, queue.name, key, {}, to_exchange=False):
            return
        if queue.consumers:
            raise BrokerError(
                Condition.RESOURCE_LOCKED,
                f"a subscription to another topic, or with other filters, uses queue '{queue.name}'",
            )
        self._connection.broker.directory.delete_queue(queue)

    # -- creating

    def _created_queue(self, node: NodeAddress) -> Queue:
        """Create the durable queue that a plain name means, if there is none. Raises BrokerError."""
        self._check_creation(node, "queue")
        self._connection.door.check(Operation.DECLARE_QUEUE, queue=node.name)
        return self._connection.broker.directory.declare_queue(
            self._vhost, node.name, Declaration(durable=True), self._connection.owner
        )

    def _check_creation(self, node: NodeAddress, what: str) -> None:
        if node.exact or not self._connection.limits.auto_create:
            raise BrokerError(Condition.NOT_FOUND, f"no {what} '{node.name}' in vhost '{self._vhost.name}'")

    def dynamic(self, terminus: Source | Target) -> DynamicNode:
        """Create a node for a terminus that asks for one (section 3.5.3). Raises AmqpFault, BrokerError."""
        connection, directory = self._connection, self._connection.broker.directory
        if terminus.address:
            raise link_fault(PRECONDITION_FAILED, "a dynamic node has no address before it is created")
        policy = (terminus.dynamic_node_properties or {}).get(LIFETIME)
        if policy is None:
            policy = DeleteOnClose()
        if not isinstance(policy, POLICIES):
            raise link_fault(INVALID_FIELD, "the lifetime policy of the dynamic node is unknown")
        name = directory.fresh_queue_name(self._vhost)
        if TOPIC_CAPABILITIES & set(terminus.capabilities):
            if not isinstance(policy, DeleteOnClose):
                raise link_fault(NOT_IMPLEMENTED, "the only lifetime policy of dynamic topics is delete-on-close")
            return DynamicTopic(connection, name.replace("amq.", "topic.", 1))  # no client declares an exchange amq.…
        connection.door.check(Operation.DECLARE_QUEUE, queue=name)
        queue = directory.declare_queue(
            self._vhost,
            name,
            Declaration(exclusive=isinstance(policy, DeleteOnClose)),
            connection.owner,
            generated=True,
        )
        return DynamicQueue(connection, queue, policy)


class DynamicNode(Protocol):
    """A node that was created for a link, and that is deleted when the link is closed, or with the connection."""

    @property
    def address(self) -> str:
        """The address under which other links find the node."""
        ...

    @property
    def route(self) -> Destination:
        """The route to the node."""
        ...

    @property
    def properties(self) -> dict[Symbol, object]:
        """The properties that the attach reports."""
        ...

    def close(self) -> None:
        """The link is closed: delete the node, unless it is gone already, or its policy lets it outlive the link."""
        ...

    def discard(self) -> None:
        """Delete the node, because the link is refused."""
        ...


class DynamicQueue:
    """A queue that was created for a link. An exclusive one is deleted with the connection."""

    __slots__ = ("_connection", "_policy", "queue")

    def __init__(self, connection: Connection, queue: Queue, policy: Policy) -> None:
        self._connection = connection
        self._policy = policy
        self.queue = queue
        if not isinstance(policy, DeleteOnClose):
            NodeLifetime(connection.broker, queue, policy)

    @property
    def address(self) -> str:
        """The address under which other links find the node."""
        return queue_address(self.queue.name)

    @property
    def route(self) -> Destination:
        """The route to the node."""
        return Destination("", self.queue.name)

    @property
    def properties(self) -> dict[Symbol, object]:
        """The properties that the attach reports."""
        return {LIFETIME: self._policy}

    def close(self) -> None:
        """See `DynamicNode.close`."""
        if isinstance(self._policy, DeleteOnClose):
            self.discard()

    def discard(self) -> None:
        """See `DynamicNode.discard`."""
        if not self.queue.deleted:
            self._connection.broker.directory.delete_queue(self.queue)


class DynamicTopic:
    """An exchange that was created for a link: a temporary topic."""

    __slots__ = ("_connection", "_name")

    def __init__(self, connection: Connection, name: str) -> None:
        """Declare the exchange `name`. Raises BrokerError."""
        connection.door.check(Operation.DECLARE_EXCHANGE, exchange=name)
        connection.vhost.declare_exchange(name, "fanout")
        connection.dynamic_topics[self] = None
        self._connection = connection
        self._name = name

    @property
    def address(self) -> str:
        """The address under which other links find the node."""
        return exchange_address(self._name)

    @property
    def route(self) -> Destination:
        """The route to the node."""
        return Destination(self._name, None)

    @property
    def properties(self) -> dict[Symbol, object]:
        """The properties that the attach reports."""
        return {LIFETIME: DeleteOnClose()}

    def discard(self) -> None:
        """See `DynamicNode.discard`."""
        self.close()

    def close(self) -> None:
        """See `DynamicNode.close`."""
        if self._connection.dynamic_topics.pop(self, self) is None and self._name in self._connection.vhost.exchanges:
            self._connection.broker.directory.delete_exchange(self._connection.vhost, self._name)

"""A virtual host: its exchanges and queues by name, and the bindings between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Generic

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import type_name
from escrowmq.core.topology.equivalence import check_exchange_equivalent
from escrowmq.core.topology.exchange import NO_ARGUMENTS, Binding, BindingKey, Exchange, Q, binding_key
from escrowmq.core.topology.exchanges import KINDS
from escrowmq.core.topology.exchanges.default import DefaultExchange
from escrowmq.core.topology.names import SortedNames
from escrowmq.core.topology.routing import Router
from escrowmq.core.topology.unbinding import Inbound, Removal, Unbinding

RESERVED_PREFIX: Final = "amq."
PREDECLARED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.topic": "topic",
        "amq.headers": "headers",
        "amq.match": "headers",
    }
)


class VirtualHost(Generic[Q]):
    """The topology of one virtual host.

    The texts of errors are RabbitMQ's, because clients see them. Every method that changes something returns the
    changes for the journal. While `restoring`, reserved names are allowed, and nothing is deleted automatically,
    because automatic deletions have records of their own. `hidden` holds the queues that are in no list, by
    name, such as the one for delayed messages. `unbinding` removes the bindings of deleted queues and exchanges.
    """

    __slots__ = (
        "_inbound",
        "_names",
        "_router",
        "exchanges",
        "hidden",
        "leading_words",
        "name",
        "queues",
        "route",
        "route_each",
        "unbinding",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: dict[str, Q] = {}
        self.hidden: dict[str, Q] = {}
        self._names = SortedNames()  # of the queues
        self.exchanges: dict[str, Exchange[Q]] = {"": DefaultExchange(self.queues)}
        for exchange, kind in PREDECLARED.items():
            self.exchanges[exchange] = KINDS[kind](exchange, durable=True)
        # The bindings to each destination (whether it is an exchange, its name), so that its removal needs no search.
        self._inbound: Inbound[Q] = {}
        self.unbinding = Unbinding(self.exchanges, self._inbound, self._changed)
        self._router = Router(name, self.exchanges, self.unbinding.gone)
        # The router's method itself: a wrapper would cost a call for each message.
        self.route = self._router.route
        self.route_each = self._router.route_each
        self.leading_words = self._router.leading_words

    def _changed(self) -> None:
        self._router.changed()

    @property
    def restoring(self) -> bool:
        """Whether records are being applied."""
        return self.unbinding.restoring

    @restoring.setter
    def restoring(self, value: bool) -> None:
        self.unbinding.restoring = value

    # -- look

    @property
    def version(self) -> int:
        """A number that changes whenever a route may have changed."""
        return self._router.version

    @property
    def topology(self) -> int:
        """A number that changes whenever exchanges or bindings do, but not with queues that have no bindings."""
        return self._router.topology

    def reachable(self, exchange: str) -> list[Exchange[Q]]:
        """Return the exchanges that a message with any routing key may pass; see `Router.reachable`."""
        return self._router.reachable(exchange)

    def reached(self, exchange: str, routing_keys: Sequence[str]) -> list[Exchange[Q]]:
        """Return the exchanges that a message passes; see `Router.reached`."""
        return self._router.reached(exchange, routing_keys)

    def take_cost(self) -> int:
        """Return the cost of the walks over exchanges since the last call; see `Router.take_cost`."""
        return self._router.take_cost()

    def use_alternates(self, alternates: Callable[[str], str | None] | None, *, default: bool) -> None:
        """Take alternate exchanges from policies; see `Router.use_alternates`."""
        self._router.use_alternates(alternates, default=default)

    def alternate_of_policy(self, exchange: Exchange[Q]) -> str | None:
        """Return the name of the alternate exchange that a policy gives to an exchange; None if there is none."""
        return self._router.alternate_of_policy(exchange)

    def limits_changed(self) -> None:
        """Forget what is cached about queues beside routes, since some have other limits now."""
        self._router.changed()

    def needs_headers(self, exchange: str) -> bool:
        """Return whether `route` through `exchange` currently looks at the headers. Raises NOT_FOUND."""
        return self._router.needs_headers(exchange)

    def needs_content(self, exchange: str) -> bool:
        """Return whether the queues that get a message may depend on its content. Raises NOT_FOUND."""
        return self._router.needs_content(exchange)

    def exchange(self, name: str) -> Exchange[Q]:
        """Return the exchange of that name. Raises NOT_FOUND."""
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise BrokerError(Condition.NOT_FOUND, f"no exchange '{name}' in vhost '{self.name}'")
        return exchange

    def exchange_for_publish(self, name: str) -> Exchange[Q]:
        """Return the exchange for a client's publish. Raises NOT_FOUND, or ACCESS_REFUSED if it is internal."""
        exchange = self.exchange(name)
        if exchange.internal:
            raise BrokerError(
                Condition.ACCESS_REFUSED, f"cannot publish to internal exchange '{name}' in vhost '{self.name}'"
            )
        return exchange

    def queue(self, name: str) -> Q:
        """Return the queue of that name. Raises NOT_FOUND."""
        queue = self.queues.get(name)
        if queue is None:
            raise BrokerError(Condition.NOT_FOUND, f"no queue '{name}' in vhost '{self.name}'")
        return queue

    def every_queue(self) -> list[Q]:
        """Return all queues, and the hidden ones."""
        return [*self.queues.values(), *self.hidden.values()]

    def names_behind(self, name: str, most: int) -> list[str]:
        """Return the next names of queues behind `name`, in order, at most `most`."""
        return self._names.behind(name, most)

    def bindings(self) -> Iterator[Binding[Q]]:
        """Return all bindings except the implicit ones of the default exchange."""
        gone = self.unbinding.gone
        for exchange in self.exchanges.values():
            if gone:
                yield from [b for b in exchange.bindings.values() if b.destination not in gone]
            else:
                yield from exchange.bindings.values()

    def bindings_to(self, name: str, *, to_exchange: bool) -> list[Binding[Q]]:
        """Return the bindings of a queue or an exchange as destination, in the order in which they were made."""
        gone = self.unbinding.gone
        return [binding for binding in self._inbound.get((to_exchange, name), ()) if binding.source not in gone]

    # -- exchanges

    def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
        passive: bool = False,
    ) -> Exchange[Q] | None:
        """Return the exchange that was made, or None if it exists already (with `passive`, only the name counts).

        Raises ILLEGAL_STATE for an unknown type, ACCESS_REFUSED for the default exchange and for reserved names,
        NOT_FOUND with `passive`, and PRECONDITION_FAILED if the existing exchange differs.
        """
        if passive:
            self._refuse_default(name)
            self.exchange(name)
            return None
        make = KINDS.get(kind)
        if make is None:
            what = f"unknown exchange type '{kind}'" if kind else "invalid exchange type ''"
            raise BrokerError(Condition.ILLEGAL_STATE, what)
        self._refuse_default(name)
        existing = self.exchanges.get(name)
        requested: Exchange[Q] = make(
            name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments
        )
        if existing is not None:
            check_exchange_equivalent(self.name, existing, requested)
            return None
        self._refuse_reserved("exchange", name)
        alternate = arguments.get("alternate-exchange", "")
        if not isinstance(alternate, str):
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"invalid type '{type_name(alternate)}' for arg 'alternate-exchange' in exchange '{name}' "
                f"in vhost '{self.name}'",
            )
        self.exchanges[name] = requested
        self._router.exchange_added(requested)
        return requested

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> Removal[Q]:
        """Remove an exchange, if it exists, and the first piece of the bindings from and to it (`unbinding`).

        Raises ACCESS_REFUSED for the default exchange and the system's exchanges, and PRECONDITION_FAILED with
        `if_unused` if something is bound to the exchange.
        """
        self._refuse_default(name)
        if name.startswith(RESERVED_PREFIX) and not self.restoring:
            raise BrokerError(
                Condition.ACCESS_REFUSED, f"deletion of system exchange '{name}' in vhost '{self.name}' not allowed"
            )
        exchange = self.exchanges.get(name)
        if exchange is None:
            return Removal()
        if if_unused and not self.unbinding.gone.keys() >= exchange.destinations.keys():
            raise BrokerError(Condition.PRECONDITION_FAILED, f"exchange '{name}' in vhost '{self.name}' in use")
        self.unbinding.delete_exchange(exchange)
        return self._piece()

    # -- queues

    def check_queue_name(self, name: str) -> None:
        """Raises ACCESS_REFUSED if clients may not declare a queue of that name."""
        self._refuse_reserved("queue", name)

    def add_queue(self, queue: Q) -> None:
        """Add a queue and bind it to the default exchange. The caller has checked that the name is free."""
        self.queues[queue.name] = queue
        self._names.add(queue.name)
        self._router.queue_changed(queue.name)

    def remove_queue(self, name: str) -> Removal[Q]:
        """Remove a queue, and the first piece of its bindings (`unbinding`). Raises NOT_FOUND."""
        if self.hidden.pop(name, None) is not None:
            return Removal()
        queue = self.queue(name)
        del self.queues[name]
        self._names.remove(name)
        if not self.unbinding.delete_queue(queue):
            self._router.queue_changed(name)
            return Removal()
        return self._piece()

    def _piece(self) -> Removal[Q]:
        """Remove the first piece of what was deleted, or all of it while restoring."""
        removal = self.unbinding.piece()
        while self.restoring and self.unbinding:
            more = self.unbinding.piece()
            removal = Removal(removal.bindings + more.bindings, removal.exchanges + more.exchanges)
        return removal

    # -- bindings

    def bind_queue(
        self, source: str, queue: str, routing_key: str, arguments: Mapping[str, object] = NO_ARGUMENTS
    ) -> Binding[Q] | None:
        """Return the binding that was made, or None if it exists already.

        Raises ACCESS_REFUSED for the default exchange, NOT_FOUND, and PRECONDITION_FAILED for arguments that the
        exchange does not understand.
        """
        self._refuse_default(source)
        return self._bind(Binding(self.exchange(source), self.queue(queue), routing_key, arguments))

    def bind_exchange(
        self, source: str, destination: str, routing_key: str, arguments: Mapping[str, object] = NO_ARGUMENTS
    ) -> Binding[Q] | None:
        """Like `bind_queue`. An exchange can be bound to itself, and in cycles."""
        self._refuse_default(source)
        self._refuse_default(destination)
        binding = Binding(self.exchange(source), self.exchange(destination), routing_key, arguments)
        if self.exchange(destination).delays:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"exchange '{destination}' in vhost '{self.name}' delays messages; it cannot be bound to an exchange, "
                "because messages that arrive that way are not delayed",
            )
        return self._bind(binding)

    def is_bound(
        self, source: str, name: str, routing_key: str, arguments: Mapping[str, object], *, to_exchange: bool
    ) -> bool:
        """Whether this binding exists."""
        exchange = self.exchanges.get(source)
        key = binding_key(to_exchange, name, routing_key, arguments)
        return exchange is not None and self._binding(exchange, key) is not None

    def _binding(self, exchange: Exchange[Q], key: BindingKey) -> Binding[Q] | None:
        binding = exchange.bindings.get(key)
        return None if binding is None or binding.destination in self.unbinding.gone else binding

    def unbind_queue(
        self, source: str, queue: str, routing_key: str, arguments: Mapping[str, object] = NO_ARGUMENTS
    ) -> Removal[Q]:
        """Return the removed binding, if it existed, and its consequences. Raises ACCESS_REFUSED for the default
        exchange.
        """
        self._refuse_default(source)
        return self._unbind(source, to_exchange=False, name=queue, routing_key=routing_key, arguments=arguments)

    def unbind_exchange(
        self, source: str, destination: str, routing_key: str, arguments: Mapping[str, object] = NO_ARGUMENTS
    ) -> Removal[Q]:
        """Like `unbind_queue`."""
        self._refuse_default(source)
        self._refuse_default(destination)
        return self._unbind(source, to_exchange=True, name=destination, routing_key=routing_key, arguments=arguments)

    def _bind(self, binding: Binding[Q]) -> Binding[Q] | None:
        former = binding.source.bindings.get(binding.key)
        if former is not None and former.destination in self.unbinding.gone:
            binding.source.unbind(former.key)
        if not self.restoring and binding.key not in binding.source.bindings:
            binding.source.check_binding(binding)
        if not binding.source.bind(binding):
            return None
        self._inbound.setdefault(binding.key[:2], {})[binding] = None
        self._router.changed()
        return binding

    def _unbind(
        self, source: str, *, to_exchange: bool, name: str, routing_key: str, arguments: Mapping[str, object]
    ) -> Removal[Q]:
        exchange = self.exchanges.get(source)
        if exchange is None:
            return Removal()
        if exchange.owns_destinations and not self.restoring:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"'{name}' cannot be unbound from exchange '{source}' in vhost '{self.name}', to which it belongs",
            )
        binding = self._binding(exchange, binding_key(to_exchange, name, routing_key, arguments))
        if binding is None:
            return Removal()
        self.unbinding.remove(binding)
        self._changed()
        rest = self._piece()
        return Removal((binding, *rest.bindings), rest.exchanges)

    # -- refusals

    def _refuse_default(self, exchange: str) -> None:
        if not exchange:
            raise BrokerError(Condition.ACCESS_REFUSED, "operation not permitted on the default exchange")

    def _refuse_reserved(self, what: str, name: str) -> None:
        if name.startswith(RESERVED_PREFIX) and not self.restoring:
            raise BrokerError(
                Condition.ACCESS_REFUSED, f"{what} name '{name}' contains reserved prefix '{RESERVED_PREFIX}*'"
            )

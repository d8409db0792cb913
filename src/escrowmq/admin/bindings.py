"""Operations on bindings, which are named by their ends and by the key of their properties, as in RabbitMQ."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus

from escrowmq.admin.authority import Authority, checked_arguments, checked_name
from escrowmq.admin.operation import NothingFound, Operation
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.access.table import Operation as Right
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import canonical
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.topology.vhost import VirtualHost

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"


class BindingEnds(NamedTuple):
    """The ends of a binding, by name."""

    source: str
    destination: str
    to_exchange: bool


def properties_key(routing_key: str, arguments: Mapping[str, object]) -> str:
    """Return the name of a binding among those of its two ends: the escaped routing key, or `~` if it is empty, and a
    digest of the arguments, if there are any.
    """
    name = _escaped(routing_key) if routing_key else "~"
    if not arguments:
        return name
    digest = hashlib.blake2b(repr(canonical(arguments)).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{'' if name == '~' else name}~{digest}"


def _escaped(key: str) -> str:
    return quote_plus(key, errors="surrogatepass").replace("_", "%5F").replace("~", "%7E")


class BindingAdmin:
    """The operations by name are in `operations`. A change is on disk when its operation returns."""

    def __init__(self, process: BrokerProcess, authority: Authority) -> None:
        self._process = process
        self._directory = process.broker.directory
        self._authority = authority
        self._session = Session("operator")
        self.operations: Mapping[str, Operation] = {"binding.add": self.bind, "binding.delete": self.unbind}

    async def bind(
        self,
        vhost: str,
        source: str,
        destination: str,
        destination_type: str = QUEUE,
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        by: str = "",
    ) -> str:
        """Make a binding, unless it exists, and return the key of its properties. Raises BrokerError."""
        place, ends = self._authority.vhost(vhost, by), _ends(source, destination, destination_type)
        given = checked_arguments(arguments, self._process.arguments_size)
        checked_name(routing_key, "routing key")
        if ends.to_exchange:
            self._authority.check(
                place, by, Right.BIND_EXCHANGE, destination=destination, exchange=source, key=routing_key
            )
        else:
            self._authority.check(place, by, Right.BIND_QUEUE, queue=destination, exchange=source, key=routing_key)

        def change() -> None:
            self._check(place, ends)
            bind = self._directory.bind_exchange if ends.to_exchange else self._directory.bind_queue
            bind(place, source, destination, routing_key, given)

        await self._process.durably(change)
        return properties_key(routing_key, given)

    async def unbind(
        self,
        vhost: str,
        source: str,
        destination: str,
        properties_key: str,
        destination_type: str = QUEUE,
        by: str = "",
    ) -> None:
        """Remove a binding. Raises NothingFound, BrokerError."""
        place, ends = self._authority.vhost(vhost, by), _ends(source, destination, destination_type)
        if ends.to_exchange:
            self._authority.check(place, by, Right.UNBIND_EXCHANGE, destination=destination, exchange=source)
        else:
            self._authority.check(place, by, Right.UNBIND_QUEUE, queue=destination, exchange=source)

        def change() -> None:
            self._check(place, ends)
            key, arguments = self._find(place, ends, properties_key)
            unbind = self._directory.unbind_exchange if ends.to_exchange else self._directory.unbind_queue
            unbind(place, source, destination, key, arguments)

        await self._process.durably(change)

    def _check(self, place: VirtualHost[Queue], ends: BindingEnds) -> None:
        """Raises NOT_FOUND unless both ends exist, and RESOURCE_LOCKED for another connection's queue."""
        self._directory.vhost(place.name)
        place.exchange(ends.source)
        if ends.to_exchange:
            place.exchange(ends.destination)
        else:
            place.queue(ends.destination).check_access(self._session)

    def _find(self, place: VirtualHost[Queue], ends: BindingEnds, wanted: str) -> tuple[str, Mapping[str, object]]:
        if not ends.source:
            raise BrokerError(Condition.ACCESS_REFUSED, "operation not permitted on the default exchange")
        for binding in place.bindings_to(ends.destination, to_exchange=ends.to_exchange):
            if binding.source.name == ends.source and properties_key(binding.routing_key, binding.arguments) == wanted:
                return binding.routing_key, binding.arguments
        raise NothingFound(f"no binding {wanted!r} from exchange '{ends.source}' to '{ends.destination}'")


def _ends(source: str, destination: str, destination_type: str) -> BindingEnds:
    if destination_type not in {QUEUE, EXCHANGE}:
        raise BrokerError(
            Condition.INVALID_ARGUMENT, f"a binding leads to a {QUEUE} or an {EXCHANGE}, not to a '{destination_type}'"
        )
    return BindingEnds(source, destination, destination_type == EXCHANGE)

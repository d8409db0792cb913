"""The fields of the records that rebuild durable names: exchanges, queues and bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.exchange import Binding, Exchange, Q
from escrowmq.core.topology.vhost import PREDECLARED


class DeclaredQueue(Protocol):
    """The attributes of a queue that its declaration has."""

    @property
    def vhost(self) -> str: ...

    @property
    def ident(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def auto_delete(self) -> bool: ...

    @property
    def arguments(self) -> Mapping[str, Any]: ...


def topology_records(
    exchanges: list[tuple[str, list[Exchange[Q]]]],
    queues: Iterable[DeclaredQueue],
    bindings: list[tuple[str, list[Binding[Q]]]],
) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """Return the records of `exchanges` and `bindings`, by virtual host, and of `queues`."""
    for vhost, some in exchanges:
        for exchange in some:
            if exchange.durable and exchange.name and exchange.name not in PREDECLARED:
                yield Kind.EXCHANGE_DECLARED, exchange_fields(vhost, exchange)
    for queue in queues:
        yield Kind.QUEUE_DECLARED, queue_fields(queue)
    for vhost, found in bindings:
        for binding in found:
            if binding.durable:
                yield Kind.BOUND, binding_fields(vhost, binding)


def exchange_fields(vhost: str, exchange: Exchange[Q]) -> dict[str, Any]:
    """Return the fields of EXCHANGE_DECLARED."""
    return {
        "vhost": vhost,
        "name": exchange.name,
        "kind": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": dict(exchange.arguments),
    }


def queue_fields(queue: DeclaredQueue) -> dict[str, Any]:
    """Return the fields of QUEUE_DECLARED."""
    return {
        "vhost": queue.vhost,
        "id": queue.ident,
        "name": queue.name,
        "auto_delete": queue.auto_delete,
        "arguments": dict(queue.arguments),
    }


def binding_fields(vhost: str, binding: Binding[Q]) -> dict[str, Any]:
    """Return the fields of BOUND and UNBOUND."""
    return {
        "vhost": vhost,
        "source": binding.source.name,
        "destination": binding.destination.name,
        "to_exchange": binding.to_exchange,
        "key": binding.routing_key,
        "arguments": dict(binding.arguments),
    }

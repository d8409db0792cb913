"""Operations that list exchanges, bindings and consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from escrowmq.admin.bindings import properties_key
from escrowmq.admin.operation import Listing, Operation, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.policies import effective_row
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.policies.policy import EXCHANGE
from escrowmq.core.ports import ReceiverOrigin
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.credit import UNLIMITED, Replenishment
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.exchange import Binding
from escrowmq.core.topology.vhost import VirtualHost

NOWHERE: Final = ReceiverOrigin("", 0, "")
"""The origin of a consumer that has just lost its client."""


class TopologyAdmin:
    """The operations by name are in `operations`. They raise BrokerError for an unknown virtual host."""

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._broker = process.broker
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "exchange.list": self.list_exchanges,
            "binding.list": self.list_bindings,
            "consumer.list": self.list_consumers,
        }

    async def list_exchanges(self, vhost: str | None = None) -> Listing:
        """Return every exchange, or those of one virtual host."""
        return self._listing(vhost, self._exchanges)

    async def list_bindings(self, vhost: str | None = None) -> Listing:
        """Return every binding, or those of one virtual host, with the implicit ones of the default exchange."""
        return self._listing(vhost, _bindings)

    async def list_consumers(self, vhost: str | None = None) -> Listing:
        """Return every consumer of a queue, or those of one virtual host."""
        return self._listing(vhost, _consumers)

    def _listing(self, vhost: str | None, rows: Callable[[VirtualHost[Queue]], Iterator[Row | None]]) -> Listing:
        directory = self._broker.directory
        vhosts = list(directory.vhosts.values()) if vhost is None else [directory.vhost(vhost)]
        return Listing(self._pieces, (row for each in vhosts for row in rows(each)))

    def _exchanges(self, vhost: VirtualHost[Queue]) -> Iterator[Row | None]:
        policies = self._broker.directory.policies
        for exchange in list(vhost.exchanges.values()):
            effective = policies.effective(vhost.name, exchange.name, EXCHANGE) if exchange.name else None
            yield {
                "vhost": vhost.name,
                "name": exchange.name,
                "type": exchange.kind,
                "durable": exchange.durable,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": dict(exchange.arguments),
                **effective_row(effective),
            }


def _bindings(vhost: VirtualHost[Queue]) -> Iterator[Row | None]:
    for name in list(vhost.queues):
        yield _binding(vhost.name, "", name, "queue", name, {})
    found: list[Binding[Queue]] = list(vhost.bindings())
    for each in found:
        kind = "exchange" if each.to_exchange else "queue"
        yield _binding(
            vhost.name, each.source.name, each.destination.name, kind, each.routing_key, dict(each.arguments)
        )


def _binding(
    vhost: str, source: str, destination: str, kind: str, routing_key: str, arguments: dict[str, object]
) -> Row:
    return {
        "vhost": vhost,
        "source": source,
        "destination": destination,
        "destination_type": kind,
        "routing_key": routing_key,
        "arguments": arguments,
        "properties_key": properties_key(routing_key, arguments),
    }


def _consumers(vhost: VirtualHost[Queue]) -> Iterator[Row | None]:
    for queue in list(vhost.queues.values()):
        yield None
        for consumer in list(queue.consumers):
            yield _consumer(queue, consumer) if consumer.attached else None


def _consumer(queue: Queue, consumer: Consumer) -> Row:
    origin = NOWHERE if consumer.receiver is None else consumer.receiver.origin
    return {
        "vhost": queue.vhost,
        "queue": queue.name,
        "tag": consumer.tag,
        "label": consumer.label,
        "peer": origin.peer,
        "channel": origin.channel,
        "user": origin.user,
        "auto_settle": consumer.auto_settle,
        "exclusive": consumer.exclusive,
        "active": not queue.consumers.single or queue.consumers.active is consumer,
        "priority": consumer.priority,
        "prefetch": _prefetch(consumer),
    }


def _prefetch(consumer: Consumer) -> int:
    """Return how many deliveries may be unacknowledged, those of the consumer or else those of all that share its
    window; 0 if there is no limit, or if the receiver grants credit.
    """
    credit = consumer.credit
    own = credit.left + credit.used
    if credit.by is Replenishment.SETTLEMENT and own < UNLIMITED:
        return own
    return consumer.window.limit if consumer.window is not None else 0

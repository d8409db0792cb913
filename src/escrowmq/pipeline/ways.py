"""Where one message has to go on one topology: the core's router, with what publishing does besides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from escrowmq.core.conditions import BrokerError
from escrowmq.core.messages.delay import due_time
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.admission import admitted
from escrowmq.core.queues.deaths import circular
from escrowmq.core.topology.exchanges.partitioned import PartitionedExchange
from escrowmq.core.topology.vhost import VirtualHost
from escrowmq.pipeline.topology import DELAYED, AuditedQueue
from escrowmq.wire.formats import FORMATS

Host = VirtualHost[AuditedQueue]
NOWHERE: frozenset[int] = frozenset()


class RoutedMessage(NamedTuple):
    """A message that was published.

    Args:
        envelope: its envelope, which has its routing key.
        content: its content; empty if the ways of its exchange do not depend on it.
        came: when it arrived, in milliseconds since the epoch.
        at_once: whether it was routed when its record was written, and not some time before.
    """

    envelope: Envelope
    content: bytes
    came: int
    at_once: bool


class Way(NamedTuple):
    """The queues, by number, that a message is to be in, and those of them that it may be missing from."""

    queues: frozenset[int]
    optional: frozenset[int] = NOWHERE

    def astray(self, actual: frozenset[int]) -> frozenset[int]:
        """Return the queues among `actual` to which nothing leads."""
        return actual - self.queues

    def missing(self, actual: frozenset[int]) -> frozenset[int]:
        """Return the queues that are not in `actual`, and should be."""
        return self.queues - actual - self.optional

    def explains(self, actual: frozenset[int], living: frozenset[int]) -> bool:
        """Return whether a message may be in exactly these queues, of which only the `living` exist by now."""
        return not self.astray(actual) and not self.missing(actual) & living


def is_told(vhost: Host, exchange: str) -> bool:
    """Return whether the log shows all ways of messages through an exchange."""
    if exchange not in vhost.exchanges or is_bound_transiently(vhost, exchange):
        return False
    return all(each.alternate is None or each.alternate in vhost.exchanges for each in vhost.reachable(exchange))


def is_bound_transiently(vhost: Host, exchange: str) -> bool:
    """Return whether something that does not survive a restart may be bound on the way of messages through an exchange.
    The log does not tell for an exchange that has an alternate exchange from a policy: the broker has noted what is
    bound transiently only where that mattered before.
    """
    return any(
        each.bound_transiently or vhost.alternate_of_policy(each) is not None for each in vhost.reachable(exchange)
    )


def ways(vhost: Host, message: RoutedMessage, actual: frozenset[int]) -> Iterator[Way]:
    """Yield the ways that are open to a message, which is in the queues `actual`. There are several if the log does not
    show when it was routed.
    """
    envelope = message.envelope
    exchange = vhost.exchanges[envelope.exchange]
    headers = None
    delayed = vhost.hidden.get(DELAYED)
    is_delayed = delayed is not None and delayed.ident in actual
    if is_delayed or vhost.needs_headers(exchange.name):
        headers = FORMATS[envelope.protocol].headers(envelope, message.content)
        if is_delayed or exchange.delays:  # a message of AMQP 1.0 may be delayed on its way to any exchange
            waits = _waits(headers, message.came)
            if delayed is not None and (waits or not message.at_once):
                yield Way(frozenset((delayed.ident,)))
            if waits and message.at_once:
                return
    found = vhost.route(exchange.name, envelope.routing_key, headers, envelope.extra_keys)
    if vhost.needs_content(exchange.name):
        found = admitted(found, envelope, message.content)  # type: ignore[arg-type, assignment]
    queues = frozenset(queue.ident for queue in found)
    deaths = envelope.deaths
    yield Way(
        queues,
        frozenset(queue.ident for queue in found if queue.refuses or (deaths and circular(deaths, queue.name))),
    )
    if deaths and isinstance(exchange, PartitionedExchange):  # the dead letters of a consumer group
        for stream in exchange.streams:
            yield Way(frozenset((stream.ident,)))


def _waits(headers: object, came: int) -> bool:
    try:
        return due_time(headers, came) > came  # type: ignore[arg-type]
    except BrokerError:
        return False

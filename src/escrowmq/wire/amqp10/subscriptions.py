"""Subscriptions to topics that outlive their link, or that several links share.

The messages of such a subscription wait in a queue of its own. Its name follows from the name of the link, as Qpid JMS
chooses it: the text before `|` names the subscription, and the capabilities `shared` and `global` say who may use it. A
subscription that is not global belongs to the client's container.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.messages.envelope import Envelope
from escrowmq.wire.addresses import exchange_address
from escrowmq.wire.amqp10.codec.termini import Source
from escrowmq.wire.amqp10.codec.types import Symbol
from escrowmq.wire.amqp10.errors import INVALID_FIELD, RESOURCE_LOCKED, link_fault
from escrowmq.wire.amqp10.publication import PROTOCOL

if TYPE_CHECKING:
    from escrowmq.core.queues.admission import MessageFilter
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.amqp10.link import Link

NO_LOCAL: Final = "x-escrowmq-no-local"
"""The argument of a subscription's queue that names the container whose messages it does not get."""
SHARED: Final = "shared"
GLOBAL: Final = "global"
_NEVER: Final = "never"
_LONGEST: Final = 255


class Subscription(NamedTuple):
    """A subscription: the name of its queue, and whether it survives its links and a restart."""

    queue: str
    durable: bool


def subscription_of(link: Link, source: Source) -> Subscription | None:
    """Return the subscription that a link to a topic asks for; None for one that ends with the link.

    Raises AmqpFault if its name is too long.
    """
    capabilities = set(map(str, source.capabilities))
    durable = source.durable > 0 and source.expiry_policy == _NEVER
    if not durable and SHARED not in capabilities:
        return None
    name, _, suffix = link.name.partition("|")
    container = "" if GLOBAL in capabilities or suffix.startswith(GLOBAL) else link.session.connection.container
    queue = _queue_name(container, name, durable=durable)
    if len(queue.encode("utf-8", "replace")) > _LONGEST:
        raise link_fault(INVALID_FIELD, f"the names of container and subscription exceed {_LONGEST} bytes")
    return Subscription(queue, durable)


def _queue_name(container: str, name: str, *, durable: bool) -> str:
    return f"{'subscription' if durable else 'shared'}:{container}:{name}"


def remaining_source(link: Link) -> Source | None:
    """Return the source of a durable subscription that no link uses, for a client that wants to end it.

    Raises AmqpFault (resource-locked) if links use it.
    """
    connection = link.session.connection
    name, _, suffix = link.name.partition("|")
    container = "" if suffix.startswith(GLOBAL) else connection.container
    queue = connection.vhost.queues.get(_queue_name(container, name, durable=True))
    if queue is None:
        return None
    if queue.consumers:
        raise link_fault(RESOURCE_LOCKED, f"the subscription '{name}' is in use")
    capabilities = ["topic"]
    if suffix:
        capabilities += [SHARED, GLOBAL] if not container else [SHARED]
    return Source(topic_of(link, queue), durable=2, expiry_policy=_NEVER, capabilities=tuple(map(Symbol, capabilities)))


def own(envelope: Envelope, container: str) -> Envelope:
    """Return the envelope of a delayed message, which names the container of its publisher until it is routed."""
    return Envelope(
        envelope.exchange,
        envelope.routing_key,
        container.encode("utf-8", "replace"),
        protocol=envelope.protocol,
        durable=envelope.durable,
        priority=envelope.priority,
        ttl=envelope.ttl,
        extra_keys=envelope.extra_keys,
    )


def of_others(value: object) -> MessageFilter:
    """Return the filter in the argument `NO_LOCAL`, for messages that were delayed; `without_own` knows the others."""
    container = str(value).encode("utf-8", "replace")
    return lambda envelope, _content: envelope.protocol != PROTOCOL or envelope.header != container


def without_own(queues: tuple[Queue, ...], container: str) -> tuple[Queue, ...]:
    """Return the queues of a route that take messages of clients in `container`."""
    if any(NO_LOCAL in queue.arguments for queue in queues):
        return tuple([queue for queue in queues if queue.arguments.get(NO_LOCAL) != container])
    return queues


def topic_of(link: Link, queue: Queue) -> str | None:
    """Return the address of the exchange that feeds a subscription's queue."""
    bindings = link.session.connection.vhost.bindings_to(queue.name, to_exchange=False)
    return next((exchange_address(each.source.name) for each in bindings if each.source.name), None)

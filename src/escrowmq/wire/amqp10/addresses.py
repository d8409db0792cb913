"""Addresses of nodes: the forms of RabbitMQ 4, of RabbitMQ's older plugin, of other brokers, and plain names.

A prefix decides first. Without one, the capabilities of the terminus say whether the node is a queue or a topic.
Otherwise `nodes` looks for a queue, then for an exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final, NamedTuple

from escrowmq.wire.amqp10.errors import INVALID_FIELD, AmqpFault, link_fault

QUEUE_CAPABILITIES: Final = frozenset(("queue", "temporary-queue"))
TOPIC_CAPABILITIES: Final = frozenset(("topic", "temporary-topic"))
LONGEST_NAME: Final = 255
"""Bytes of the name of a queue or an exchange, and of a routing key, as in the other protocols."""


class NodeKind(Enum):
    """The kind of node that an address can mean."""

    QUEUE = auto()
    EXCHANGE = auto()
    TOPIC = auto()
    """An exchange of that name, whose messages have a subject as their routing key."""
    ANY = auto()
    """A queue or an exchange."""


class NodeAddress(NamedTuple):
    """A node that a client names. With `exact`, it must exist.

    `key` is the routing key of an exchange. None stands for the subject of each message.
    """

    kind: NodeKind
    name: str
    key: str | None = None
    exact: bool = True


def _decoded(segment: str, address: str) -> str:
    """Decode a percent-encoded segment of an address."""
    first, *others = segment.split("%")
    if not others:
        return segment
    data = bytearray(first.encode())
    try:
        for other in others:
            if len(other) < 2:
                raise ValueError
            data += bytes.fromhex(other[:2]) + other[2:].encode()
        return data.decode()
    except ValueError:
        raise _malformed(address, "its percent-encoding is invalid") from None


def _malformed(address: str, why: str) -> AmqpFault:
    return link_fault(INVALID_FIELD, f"address '{address}' is malformed: {why}")


def _queue_of_version_2(rest: str, address: str) -> NodeAddress:
    if "/" in rest:
        raise _malformed(address, "a slash within the name of a queue is written %2F")
    return NodeAddress(NodeKind.QUEUE, _decoded(rest, address))


def _exchange_of_version_2(rest: str, address: str) -> NodeAddress:
    name, _, key = rest.partition("/")
    if "/" in key:
        raise _malformed(address, "a slash within a routing key is written %2F")
    if not name:
        raise _malformed(address, "the default exchange has no address; name the queue")
    return NodeAddress(NodeKind.EXCHANGE, _decoded(name, address), _decoded(key, address))


def _exchange_of_version_1(rest: str, address: str) -> NodeAddress:
    name, slash, key = rest.partition("/")
    return NodeAddress(NodeKind.EXCHANGE, _decoded(name, address), _decoded(key, address) if slash else None)


def _topic_of_version_1(rest: str, address: str) -> NodeAddress:
    return NodeAddress(NodeKind.EXCHANGE, "amq.topic", _decoded(rest, address))


def _queue_of_version_1(rest: str, address: str) -> NodeAddress:
    return NodeAddress(NodeKind.QUEUE, _decoded(rest, address), exact=False)


def _existing_queue(rest: str, address: str) -> NodeAddress:
    return NodeAddress(NodeKind.QUEUE, _decoded(rest, address))


def _queue(rest: str, address: str) -> NodeAddress:
    return NodeAddress(NodeKind.QUEUE, rest, exact=False)


def _topic(rest: str, address: str) -> NodeAddress:
    return NodeAddress(NodeKind.TOPIC, rest, exact=False)


PREFIXES: Final[tuple[tuple[str, Callable[[str, str], NodeAddress]], ...]] = (
    ("/queues/", _queue_of_version_2),
    ("/exchanges/", _exchange_of_version_2),
    ("/exchange/", _exchange_of_version_1),
    ("/topic/", _topic_of_version_1),
    ("/queue/", _queue_of_version_1),
    ("/amq/queue/", _existing_queue),
    ("queue://", _queue),
    ("topic://", _topic),
    ("temp-queue://", _queue),
    ("temp-topic://", _topic),
)
"""In this order: RabbitMQ 4, the plugin of RabbitMQ 3, ActiveMQ and Solace."""


def parse(address: str, capabilities: Iterable[str] = ()) -> NodeAddress:
    """Return the node that `address` names. Raises AmqpFault (invalid-field) for a malformed address.

    A name that begins with a slash or a dollar sign is reserved for nodes of the broker itself, so it never creates a
    queue.
    """
    makers = ((prefix, make) for prefix, make in PREFIXES if address.startswith(prefix))
    found = next((make(address[len(prefix) :], address) for prefix, make in makers), None)
    if found is None:
        wanted = frozenset(capabilities)
        reserved = address.startswith(("/", "$"))
        if wanted & QUEUE_CAPABILITIES:
            found = NodeAddress(NodeKind.QUEUE, address, exact=reserved)
        elif wanted & TOPIC_CAPABILITIES:
            found = NodeAddress(NodeKind.TOPIC, address, exact=reserved)
        else:
            found = NodeAddress(NodeKind.ANY, address, exact=reserved)
    if not found.name:
        raise _malformed(address, "it names nothing")
    for text in (found.name, found.key or ""):
        if len(text.encode("utf-8", "replace")) > LONGEST_NAME:
            raise _malformed(address[:LONGEST_NAME], f"a name is longer than {LONGEST_NAME} bytes")
    return found

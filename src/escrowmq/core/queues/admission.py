"""Queues that take only some of the messages that are routed to them, such as those of subscribers with a selector.

The filter is an argument of the queue, so that it is durable. Only protocols understand filters: the runtime registers
a function for each argument that has one (`Broker.admissions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.queues.queue import Queue

MessageFilter: TypeAlias = "Callable[[Envelope, bytes], bool]"
"""Returns whether a queue takes a message. It must not raise."""
Admissions: TypeAlias = "dict[str, Callable[[object], MessageFilter]]"
"""By argument, a function that makes a filter of its value, and raises BrokerError for one that it cannot read."""


def filter_of(
    arguments: Mapping[str, object], admissions: Mapping[str, Callable[[object], MessageFilter]]
) -> MessageFilter | None:
    """Return the filter that the arguments of a queue ask for. Raises BrokerError."""
    found = [make(arguments[name]) for name, make in admissions.items() if name in arguments]
    if len(found) < 2:
        return found[0] if found else None
    return lambda envelope, content: all(admits(envelope, content) for admits in found)


def admitted(queues: tuple[Queue, ...], envelope: Envelope, content: bytes) -> tuple[Queue, ...]:
    """Return those of `queues` that take the message."""
    if all(queue.admits is None for queue in queues):
        return queues
    return tuple([queue for queue in queues if queue.admits is None or queue.admits(envelope, content)])

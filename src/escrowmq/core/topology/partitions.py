"""The streams of topics: declared, added and deleted together with their exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.arguments.queue import TYPE_ARGUMENT, queue_options
from escrowmq.core.topology.exchanges.partitioned import PartitionedExchange

if TYPE_CHECKING:
    from escrowmq.core.access.access import Access
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.topology.vhost import VirtualHost

RETENTION: Final = ("x-max-age", "x-max-length-bytes")
"""Arguments of a topic that its streams get."""


class NewStream(NamedTuple):
    """A stream that is not declared yet, with the records of its declaration and of its binding to its topic."""

    queue: Queue
    declared: bytes
    bound: bytes


def stream_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of the streams of a topic that was declared with `arguments`."""
    return {TYPE_ARGUMENT: "stream", **{name: arguments[name] for name in RETENTION if name in arguments}}


def check_new_streams(
    vhost: VirtualHost[Queue], exchange: PartitionedExchange[Queue], wanted: int, access: Access
) -> range:
    """Return the partitions that a topic needs to have `wanted` of them, all of which can be declared.

    Raises PRECONDITION_FAILED if a queue has the name of one, an argument for the streams is invalid, or the virtual
    host may not have that many queues.
    """
    missing = range(len(exchange.streams), wanted)
    arguments = stream_arguments(exchange.arguments)
    for partition in missing:
        name = exchange.stream_name(partition)
        if name in vhost.queues:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"exchange '{exchange.name}' in vhost '{vhost.name}' needs stream '{name}', but a queue has that name",
            )
    if missing:
        name = exchange.stream_name(missing[-1])
        access.check_queues(vhost.name, name, len(vhost.queues) + len(missing) - 1)
        vhost.check_queue_name(name)
        queue_options(vhost.name, name, arguments, durable=True, exclusive=False, auto_delete=False)
    return missing


def check_not_partition(vhost: VirtualHost[Queue], queue: Queue) -> None:
    """Raises PRECONDITION_FAILED if `queue` is a stream of a topic."""
    topic, _, partition = queue.name.rpartition("-")
    exchange = vhost.exchanges.get(topic)
    if (
        isinstance(exchange, PartitionedExchange)
        and partition.isdecimal()
        and exchange.has_stream(queue, int(partition))
    ):
        raise BrokerError(
            Condition.PRECONDITION_FAILED,
            f"queue '{queue.name}' in vhost '{queue.vhost}' is a stream of topic '{topic}'; delete the topic",
        )

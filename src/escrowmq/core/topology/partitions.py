"""The streams of topics: declared, added and deleted together with their exchange."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from escrowmq.core.budget import DECLARED
from escrowmq.core.conditions import BrokerError, Condition, check_growth
from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.kinds import Kind
from escrowmq.core.topology.arguments.queue import TYPE_ARGUMENT, queue_options
from escrowmq.core.topology.declaration import Declaration
from escrowmq.core.topology.exchange import NO_ARGUMENTS, Binding
from escrowmq.core.topology.exchanges.partitioned import PartitionedExchange
from escrowmq.core.topology.fields import binding_fields, queue_fields
from escrowmq.core.watch import note_in

if TYPE_CHECKING:
    from escrowmq.core.access.access import Access
    from escrowmq.core.budget import Budget
    from escrowmq.core.ports import Log
    from escrowmq.core.topology.arguments.queue import QueueOptions
    from escrowmq.core.topology.declaration import QueueMaker
    from escrowmq.core.topology.vhost import VirtualHost
    from escrowmq.core.watch import ChangeWatch

RETENTION: Final = ("x-max-age", "x-max-length-bytes")
"""Arguments of a topic that its streams get."""


class NewStream(NamedTuple):
    """A stream that is not declared yet, with the records of its declaration and of its binding to its topic."""

    queue: Queue
    declared: bytes
    bound: bytes


class StreamsHost(Protocol):
    """The part of the engine that is needed here."""

    log: Log
    requests: Budget
    scarcity: str
    watches: list[ChangeWatch[Queue]]


class TopicStreams:
    """Makes the streams of topics, and declares and binds them. `changes` tells how often topics got streams."""

    def __init__(self, engine: StreamsHost, access: Access, maker: QueueMaker) -> None:
        self._engine = engine
        self._access = access
        self._maker = maker
        self.changes = 0

    def new(
        self, vhost: VirtualHost[Queue], name: str, kind: str, arguments: Mapping[str, object]
    ) -> Generator[None, None, list[NewStream]]:
        """Make the streams that the declaration of an exchange will need, and yield whenever the turn's budget is used
        up. There are none if the exchange is no topic or the declaration will be refused.
        """
        made: list[NewStream] = []
        if kind != PartitionedExchange.kind or self._engine.scarcity:
            return made
        requests, existing = self._engine.requests, vhost.exchanges.get(name)
        try:
            wanted = PartitionedExchange[Queue](name, durable=True, arguments=arguments)
            exchange = existing if isinstance(existing, PartitionedExchange) else wanted
            missing = check_new_streams(vhost, exchange, wanted.wanted, self._access)
            declaration = Declaration(durable=True, arguments=stream_arguments(exchange.arguments))
            for partition in missing:
                options = made[-1].queue.declared if made else None  # all of them have the same
                made.append(self._make(vhost, exchange, partition, declaration, options))
                requests.left -= DECLARED
                if requests.left <= 0:
                    yield
        except BrokerError:
            return made
        except GeneratorExit:
            for stream in made:
                stream.queue.retire()
            raise
        return made

    def _make(
        self,
        vhost: VirtualHost[Queue],
        exchange: PartitionedExchange[Queue],
        partition: int,
        declaration: Declaration,
        options: QueueOptions | None,
    ) -> NewStream:
        queue = self._maker.make(vhost, exchange.stream_name(partition), declaration, None, options)
        binding = Binding(exchange, queue, str(partition), NO_ARGUMENTS)
        declared, bound = encode_change(**queue_fields(queue)), encode_change(**binding_fields(vhost.name, binding))
        return NewStream(queue, declared, bound)

    def add(
        self, vhost: VirtualHost[Queue], exchange: PartitionedExchange[Queue], wanted: int, made: dict[str, NewStream]
    ) -> None:
        """Declare and bind the streams that a topic needs to have `wanted` partitions. They become durable in one step,
        since everything that one call appends to the log is in one frame. Those of `made` that fit are used, by name.

        Raises LIMIT_EXCEEDED while memory or disk space is scarce, and what `check_new_streams` raises.
        """
        missing = check_new_streams(vhost, exchange, wanted, self._access)
        if missing:
            check_growth(self._engine.scarcity, f"partitions of topic '{exchange.name}' in vhost '{vhost.name}'")
        declaration = Declaration(durable=True, arguments=stream_arguments(exchange.arguments))
        self.changes += bool(missing)
        for partition in missing:
            stream = made.pop(exchange.stream_name(partition), None)
            if stream is None or stream.queue.arguments != declaration.arguments:
                stream = self._make(vhost, exchange, partition, declaration, None)
            queue = stream.queue
            vhost.add_queue(queue)
            vhost.bind_queue(exchange.name, queue.name, str(partition))
            self._engine.log.append(Kind.QUEUE_DECLARED, stream.declared)
            self._engine.log.append(Kind.BOUND, stream.bound)
            note_in(self._engine.watches, queue)


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

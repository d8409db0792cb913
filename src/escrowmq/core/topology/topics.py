"""Topics by name: exchanges of type `x-partitioned` with their streams."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.exchange import NO_ARGUMENTS
from escrowmq.core.topology.exchanges.partitioned import (
    DEFAULT_PARTITIONS,
    KIND,
    MESSAGE_TYPE_ARGUMENT,
    MESSAGE_TYPES,
    PARTITIONS_ARGUMENT,
    PartitionedExchange,
)

if TYPE_CHECKING:
    from escrowmq.core.budget import Budget
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.stream import StreamQueue
    from escrowmq.core.topology.directory import Directory
    from escrowmq.core.topology.partitions import NewStream
    from escrowmq.core.topology.vhost import VirtualHost


class Topic(NamedTuple):
    """A topic: its virtual host, and its exchange, which must not be used after it was deleted."""

    vhost: str
    exchange: PartitionedExchange[Queue]

    @property
    def name(self) -> str:
        return self.exchange.name

    @property
    def message_type(self) -> str:
        """The messages that clients may send to it: one of `MESSAGE_TYPES`. Protocols enforce it."""
        return self.exchange.message_type

    @property
    def streams(self) -> Sequence[StreamQueue]:
        """The streams, by number of the partition. A topic that grows gets more, at the end."""
        return cast("Sequence[StreamQueue]", self.exchange.streams)


class Topics:
    """The topics of all virtual hosts."""

    __slots__ = ("_directory", "_places", "_walked")

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._places: dict[int, tuple[str, str, int]] = {}  # by id of the stream: virtual host, topic, partition
        self._walked = -1  # the number of `Directory.stream_changes` at the last walk

    def declare(
        self,
        vhost: VirtualHost[Queue],
        name: str,
        partitions: int = DEFAULT_PARTITIONS,
        message_type: str = MESSAGE_TYPES[0],
        *,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
        streams: Sequence[NewStream] = (),
    ) -> Topic:
        """Return the topic. It is made if it does not exist, and grows if it has fewer partitions. It never shrinks.

        `streams` are those that `new_streams` has made, if any.

        `arguments` may have `x-max-age` and `x-max-length-bytes` for its streams. Raises PRECONDITION_FAILED if an
        exchange of that name is another one or has another message type, if a queue has the name of a stream, or if
        the virtual host has too many queues; LIMIT_EXCEEDED for a new topic while memory or disk space is scarce.
        """
        existing = self.find(vhost, name)
        if existing is not None and existing.message_type != message_type and message_type in MESSAGE_TYPES:
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"topic '{name}' in vhost '{vhost.name}' has type {existing.message_type}, which cannot be changed; "
                "delete it first",
            )
        wanted = _arguments(partitions, message_type, arguments)
        self._directory.declare_exchange(vhost, name, KIND, streams=streams, durable=True, arguments=wanted)
        found = self.find(vhost, name)
        assert found is not None
        return found

    def new_streams(
        self,
        vhost: VirtualHost[Queue],
        name: str,
        partitions: int,
        message_type: str,
        arguments: Mapping[str, object],
    ) -> Generator[None, None, list[NewStream]]:
        """Make the streams that `declare` will need, in pieces; see `Directory.new_streams`."""
        return self._directory.new_streams(vhost, name, KIND, _arguments(partitions, message_type, arguments))

    def find(self, vhost: VirtualHost[Queue], name: str) -> Topic | None:
        """Return the topic of that name, or None."""
        exchange = vhost.exchanges.get(name)
        return Topic(vhost.name, exchange) if isinstance(exchange, PartitionedExchange) else None

    def all(self, vhost: VirtualHost[Queue]) -> list[Topic]:
        """Return all topics of a virtual host."""
        found = [self.find(vhost, name) for name in vhost.exchanges]
        return [topic for topic in found if topic is not None]

    def of_stream(self, vhost: VirtualHost[Queue], ident: int, budget: Budget) -> tuple[Topic, int] | None:
        """Return the topic and the partition of the stream with the id `ident`; None if there is no such stream in the
        virtual host. Only the first call after topics got streams walks over all topics.
        """
        if ident not in self._places and self._walked != self._directory.stream_changes:
            self._find_streams(budget)
        name, topic, partition = self._places.get(ident, ("", "", 0))
        found = self.find(vhost, topic) if name == vhost.name else None
        there = found is not None and partition < len(found.streams) and found.streams[partition].ident == ident
        return (found, partition) if found is not None and there else None

    def _find_streams(self, budget: Budget) -> None:
        self._places.clear()
        for vhost in self._directory.vhosts.values():
            for topic in self.all(vhost):
                budget.left -= 1
                for partition, stream in enumerate(topic.streams):
                    self._places[stream.ident] = vhost.name, topic.name, partition
        self._walked = self._directory.stream_changes

    def delete(self, vhost: VirtualHost[Queue], name: str) -> None:
        """Delete a topic with its streams, if it exists."""
        if self.find(vhost, name) is not None:
            self._directory.delete_exchange(vhost, name)


def _arguments(partitions: int, message_type: str, arguments: Mapping[str, object]) -> dict[str, object]:
    return {PARTITIONS_ARGUMENT: partitions, MESSAGE_TYPE_ARGUMENT: message_type, **arguments}

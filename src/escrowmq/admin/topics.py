"""Operations on topics: list, show, create and delete them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from escrowmq.admin.operation import Listing, NothingFound, Operation, Row
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.ports import BrokerProcess
from escrowmq.core.queues.queue import Queue
from escrowmq.core.topology.topics import Topic
from escrowmq.core.topology.vhost import VirtualHost


class TopicAdmin:
    """The operations by name are in `operations`. They raise OperationRefused or BrokerError."""

    def __init__(self, process: BrokerProcess, pieces: Pieces) -> None:
        self._process = process
        self._broker = process.broker
        self._topics = process.broker.topics
        self._pieces = pieces
        self.operations: Mapping[str, Operation] = {
            "topic.list": self.list_topics,
            "topic.show": self.show,
            "topic.create": self.create,
            "topic.delete": self.delete,
        }

    async def list_topics(self, vhost: str | None = None) -> Listing:
        """Return every topic, or those of one virtual host. The size of a topic is None while it is unknown."""
        vhosts = self._broker.directory.vhosts.values() if vhost is None else [self._vhost(vhost)]
        return Listing(self._pieces, self._rows([topic for each in vhosts for topic in self._topics.all(each)]))

    async def show(self, vhost: str, name: str) -> list[Row]:
        """Return the streams of a topic, with the offsets of their messages."""
        return [
            {
                "partition": partition,
                "queue": stream.name,
                "first_offset": stream.begin - 1,
                "next_offset": stream.end - 1,
                "messages": stream.ready,
                "bytes": stream.size,
                "unavailable": stream.fault,
            }
            for partition, stream in enumerate(self._found(vhost, name).streams)
        ]

    async def create(
        self,
        vhost: str,
        name: str,
        partitions: int,
        message_type: str,
        max_age: str | None = None,
        max_bytes: int | None = None,
    ) -> Row:
        """Create a topic, or add partitions to it if it has fewer."""
        limits = {"x-max-age": max_age, "x-max-length-bytes": max_bytes}
        arguments = {argument: value for argument, value in limits.items() if value is not None}
        place = self._vhost(vhost)
        streams = await self._pieces.result(self._topics.new_streams(place, name, partitions, message_type, arguments))
        return self._row(
            await self._process.durably(
                lambda: self._topics.declare(
                    place, name, partitions, message_type, arguments=arguments, streams=streams
                )
            )
        )

    async def delete(self, vhost: str, name: str) -> None:
        """Delete a topic with its messages and the progress of its groups."""
        self._found(vhost, name)
        await self._process.durably(lambda: self._topics.delete(self._vhost(vhost), name))

    def _vhost(self, name: str) -> VirtualHost[Queue]:
        return self._broker.directory.vhost(name)

    def _found(self, vhost: str, name: str) -> Topic:
        topic = self._topics.find(self._vhost(vhost), name)
        if topic is None:
            raise NothingFound(f"no topic '{name}' in vhost '{vhost}'; `escrowmq topic list` shows those that exist")
        return topic

    def _rows(self, topics: list[Topic]) -> Iterator[Row]:
        return map(self._row, topics)

    def _row(self, topic: Topic) -> Row:
        return {
            "vhost": topic.vhost,
            "name": topic.name,
            "type": topic.message_type,
            "partitions": len(topic.streams),
            "messages": sum([stream.ready for stream in topic.streams]),
            "bytes": _total([stream.size for stream in topic.streams]),
        }


def _total(sizes: list[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None

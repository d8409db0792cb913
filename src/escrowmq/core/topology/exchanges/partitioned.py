"""Exchange of type `x-partitioned`: a topic. It divides messages among streams that belong to it, one per partition.

The partition is the header `x-partition` if the topic has that partition. Otherwise it follows from a checksum of the
header `x-partition-key`, or of the routing key if there is no such header, so equal keys share a stream, also after a
restart. The stream of partition `i` is bound with the routing key `i`. `Directory` declares the streams with the topic,
and deletes them with it. Messages with a delay wait first, as in an exchange of type `x-delayed-message`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar, Final
from zlib import crc32

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import is_integer, shown
from escrowmq.core.topology.exchange import NO_ARGUMENTS, Binding, Exchange, Q

KIND: Final = "x-partitioned"
PARTITIONS_ARGUMENT: Final = "x-partitions"
MESSAGE_TYPE_ARGUMENT: Final = "x-message-type"
PARTITION_HEADER: Final = "x-partition"
KEY_HEADER: Final = "x-partition-key"
DEFAULT_PARTITIONS: Final = 8
MOST_PARTITIONS: Final = 1024
MESSAGE_TYPES: Final = ("normal", "fifo", "delay", "transaction", "mixed", "unspecified")


class PartitionedExchange(Exchange[Q]):
    """A topic. Raises PRECONDITION_FAILED for wrong arguments, and if it is not durable, or is deleted automatically.

    `wanted` is the least number of partitions, `streams` are the partitions in order.
    """

    __slots__ = ("message_type", "streams", "wanted")

    kind: ClassVar[str] = KIND
    delays: ClassVar[bool] = True
    owns_destinations: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] = NO_ARGUMENTS,
    ) -> None:
        super().__init__(name, durable=durable, auto_delete=auto_delete, internal=internal, arguments=arguments)
        wanted = arguments.get(PARTITIONS_ARGUMENT, DEFAULT_PARTITIONS)
        message_type = arguments.get(MESSAGE_TYPE_ARGUMENT, MESSAGE_TYPES[0])
        if not durable or auto_delete:
            raise self._refused("a topic must be durable, and must not be deleted automatically")
        if not is_integer(wanted) or not 1 <= wanted <= MOST_PARTITIONS:
            raise self._refused(
                f"argument '{PARTITIONS_ARGUMENT}' is {shown(wanted)}, and must be from 1 to {MOST_PARTITIONS}"
            )
        if not isinstance(message_type, str) or message_type not in MESSAGE_TYPES:
            raise self._refused(
                f"argument '{MESSAGE_TYPE_ARGUMENT}' is {shown(message_type)}, and must be one of "
                f"{', '.join(MESSAGE_TYPES)}"
            )
        self.wanted = int(wanted)
        self.message_type = message_type
        self.streams: list[Q] = []

    def _refused(self, why: str) -> BrokerError:
        return BrokerError(Condition.PRECONDITION_FAILED, f"invalid exchange '{self.name}' of type '{KIND}': {why}")

    @property
    def needs_headers(self) -> bool:
        """Return True: the partition and the delay are in the headers."""
        return True

    def stream_name(self, partition: int) -> str:
        """Return the name of the stream of a partition."""
        return f"{self.name}-{partition}"

    def has_stream(self, queue: Q, partition: int) -> bool:
        """Return whether `queue` is the stream of that partition."""
        return partition < len(self.streams) and self.streams[partition] is queue

    def match(self, routing_key: str, headers: Mapping[str, object] | None) -> Collection[Q | Exchange[Q]]:
        streams = self.streams
        if not streams:
            return ()
        partition = headers.get(PARTITION_HEADER) if headers else None
        if not is_integer(partition) or not 0 <= partition < len(streams):
            key = headers.get(KEY_HEADER) if headers else None
            partition = partition_of(key if isinstance(key, str) else routing_key, len(streams))
        return (streams[partition],)

    def _index(self, binding: Binding[Q]) -> None:
        """Add the stream of the next partition. Other bindings are refused: the topic's messages are in its streams."""
        partition = len(self.streams)
        stream = binding.destination
        if (
            isinstance(stream, Exchange)
            or binding.arguments
            or binding.routing_key != str(partition)
            or stream.name != self.stream_name(partition)
        ):
            raise BrokerError(
                Condition.PRECONDITION_FAILED,
                f"'{stream.name}' cannot be bound to exchange '{self.name}', which is a topic; consume its streams "
                f"'{self.stream_name(0)}' and following",
            )
        self.streams.append(stream)

    def _unindex(self, binding: Binding[Q]) -> None:
        if self.streams[-1] is binding.destination:
            self.streams.pop()
        else:
            self.streams.remove(binding.destination)  # type: ignore[arg-type]


def partition_of(key: str, partitions: int) -> int:
    """Return the partition for messages with this key. It must never change, since it decides what stays in order."""
    return crc32(key.encode("utf-8", "surrogatepass")) % partitions

"""Topics as clients of RocketMQ see them: looked up, created automatically, and checked against a message's type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.groups.options import GroupOptions
from escrowmq.wire.rocketmq.names import dead_letter_topic, group_fault, group_of, retry_topic, topic_fault

if TYPE_CHECKING:
    from escrowmq.core.access.door import Door
    from escrowmq.core.broker import Broker
    from escrowmq.core.groups.group import Group
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.stream import StreamQueue
    from escrowmq.core.topology.topics import Topic
    from escrowmq.core.topology.vhost import VirtualHost

TRANSACTION: Final = "transaction"
MIXED: Final = "mixed"
"""The type of topics that take every message. Those that an operator of classic clients creates have it."""
UNSPECIFIED: Final = "unspecified"
"""The type of topics that are created automatically by a message of another type than TRANSACTION: they take every
message but transactional ones.
"""
MADE: Final = 100
"""Units of work that a new group costs, with its two topics."""
KINDS: Final = ("normal", "fifo", "delay", TRANSACTION)
"""The types of messages."""


class Catalogue:
    """The topics and groups of one virtual host, for one user."""

    __slots__ = ("_broker", "_door", "vhost")

    def __init__(self, broker: Broker, vhost: VirtualHost[Queue], door: Door) -> None:
        self._broker = broker
        self._door = door
        self.vhost = vhost

    def topic(self, name: str) -> Topic:
        """Return a topic. Raises NOT_FOUND."""
        found = self._broker.topics.find(self.vhost, name)
        if found is None:
            raise BrokerError(Condition.NOT_FOUND, f"topic '{name}' does not exist in vhost '{self.vhost.name}'")
        return found

    def find(self, name: str) -> Topic | None:
        """Return a topic, or None."""
        return self._broker.topics.find(self.vhost, name)

    def seen(self, name: str) -> Topic | None:
        """Return a topic of which the user may know, or None. Raises ACCESS_REFUSED for other names."""
        self.check_see(name)
        return self.find(name)

    def all(self) -> list[Topic]:
        """Return all topics of which the user may know."""
        return [topic for topic in self._broker.topics.all(self.vhost) if self.sees(topic.name)]

    def check_see(self, topic: str) -> None:
        """Check that the user may know of a topic. The group's own topics are covered by its name, too."""
        group = group_of(topic)
        if group is None or not self._door.allows(Operation.DESCRIBE_GROUP, queue=group):
            self._door.check(Operation.DESCRIBE_TOPIC, exchange=topic)

    def sees(self, topic: str) -> bool:
        """Return whether the user may know of a topic."""
        try:
            self.check_see(topic)
        except BrokerError:
            return False
        return True

    def create(self, name: str, partitions: int, message_type: str = MIXED) -> Topic:
        """Create a topic, or let it grow. Raises BrokerError."""
        fault = topic_fault(name)
        if fault:
            raise BrokerError(Condition.INVALID_ARGUMENT, fault)
        self._door.check(Operation.DECLARE_TOPIC, exchange=name)
        return self._broker.topics.declare(self.vhost, name, partitions, message_type)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self._door.check(Operation.DELETE_TOPIC, exchange=name)
        self._broker.topics.delete(self.vhost, name)

    def stream(self, name: str, number: int) -> StreamQueue:
        """Return queue `number` of a topic. Raises NOT_FOUND for a missing topic, INVALID_ARGUMENT for a number that it
        does not have.
        """
        streams = self.topic(name).streams
        if not 0 <= number < len(streams):
            raise BrokerError(Condition.INVALID_ARGUMENT, f"topic '{name}' has no queue {number}")
        return streams[number]

    def numbered(self, ident: int) -> tuple[Topic, int, StreamQueue] | None:
        """Return topic, number and stream for the stream with the id `ident`; None if it is gone."""
        found = self._broker.topics.of_stream(self.vhost, ident, self._broker.engine.requests)
        return None if found is None else (*found, found[0].streams[found[1]])

    # -- groups

    def group(self, name: str) -> Group | None:
        """Return a consumer group, or None."""
        return self._broker.groups.find(self.vhost.name, name)

    def groups(self) -> list[Group]:
        """Return all consumer groups."""
        return list(self._broker.groups.all(self.vhost.name))

    def ensure_group(self, name: str, options: GroupOptions | None = None) -> Group:
        """Return a consumer group, which is created with its retry topic if it does not exist. Raises BrokerError."""
        found = self.group(name)
        if found is not None and options is None:
            return found
        fault = group_fault(name)
        if fault:
            raise BrokerError(Condition.INVALID_ARGUMENT, fault)
        self._door.check(Operation.DECLARE_GROUP, queue=name)
        if found is None:
            self._broker.engine.requests.left -= MADE
        self._broker.topics.declare(self.vhost, retry_topic(name), 1, MIXED)
        self._broker.topics.declare(self.vhost, dead_letter_topic(name), 1, MIXED)
        options = options or GroupOptions(dead_letter_topic=dead_letter_topic(name))
        return self._broker.groups.declare(self.vhost.name, name, options, user=self._door.user)

    def check_consume(self, group: str, topic: str) -> None:
        """Check that the user may consume a topic for a group. The group's own topics are covered by its name."""
        if group_of(topic) == group:
            self._door.check(Operation.SETTLE_GROUP, queue=group)
        else:
            self._door.check(Operation.CONSUME_GROUP, exchange=topic, queue=group)


def takes(message_type: str, kind: str) -> bool:
    """Return whether a topic of type `message_type` takes messages of type `kind` (HALF-7)."""
    return message_type in {kind, MIXED} or (message_type == UNSPECIFIED and kind != TRANSACTION)


def type_fault(message_type: str, kind: str) -> str:
    """Return the reason why a topic refuses a message for its type, in the words of RocketMQ's proxy; empty if the
    topic takes the message.
    """
    if takes(message_type, kind):
        return ""
    return (
        f"TopicMessageType validate failed, the expected type is {message_type.upper()}, but actual type is "
        f"{kind.upper()}"
    )

"""The topics in which RocketMQ keeps transactions, as views of the half messages for operators (HALF-10).

The half topic has the undecided half messages, the operation topic the decisions that are still known, and the parking
topic the messages that only an operator decides (HALF-6). Each has one queue, in which a message's offset is the number
of its half message. Views can be listed, described and read; nobody can send to them or delete them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from escrowmq.core.access.table import Operation
from escrowmq.core.budget import EXAMINED
from escrowmq.core.conditions import BrokerError
from escrowmq.core.half.state import HalfState
from escrowmq.wire.rocketmq import ids, properties
from escrowmq.wire.rocketmq.content import MessageContent
from escrowmq.wire.rocketmq.names import HALF_TOPIC, OPERATION_TOPIC, PARKING_TOPIC
from escrowmq.wire.rocketmq.remoting.messages import StoredAt, content_for, encode_stored, without_transaction

if TYPE_CHECKING:
    from escrowmq.core.half.message import HalfMessage
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection

STATES: Final[Mapping[str, frozenset[HalfState]]] = MappingProxyType(
    {
        HALF_TOPIC: frozenset({HalfState.PENDING}),
        OPERATION_TOPIC: frozenset({HalfState.COMMITTED, HalfState.ROLLED_BACK}),
        PARKING_TOPIC: frozenset({HalfState.PARKED}),
    }
)
"""The states of the half messages in each view."""
MOST_EXAMINED: Final = 4096
"""Half messages that one call examines."""
_DECIDED_TAG: Final = "d"
_DECISION: Final = "TRANSACTION_STATE"


class HalfView:
    """One view, for the user of a connection, who sees the half messages of topics that the user may read.

    It has the positions of a stream: an offset is a position minus 1.
    """

    def __init__(self, connection: RemotingConnection, name: str) -> None:
        self._connection = connection
        self._states = STATES[name]
        self.name = name

    @property
    def begin(self) -> int:
        """The position of the first half message that is known, in any state."""
        first = next(self._each(0), None)
        return self.end if first is None else first.number + 1

    @property
    def end(self) -> int:
        """The position after the last half message."""
        queue = self._connection.broker.half.queue(self._connection.login.vhost_name)
        return 1 if queue is None else queue.next_position + 1

    def position_at(self, time: int) -> int:
        """Return the position of the first half message that was stored at a time or later."""
        positions = range(self.begin, self.end)
        return positions.start + bisect_left(positions, time, key=self._born)

    def _born(self, position: int) -> int:
        half = next(self._each(position - 2), None)
        return 0 if half is None else half.born

    def read(self, position: int, most: int, group: str) -> tuple[list[bytes], int]:
        """Return at most `most` messages from a position on, as clients receive them, and the position after them. A
        message that is decided or cannot be read meanwhile is left out.
        """
        found: list[bytes] = []
        allows = self._connection.login.door.allows
        examined = 0
        for half in self._each(position - 2):
            if len(found) >= most or examined >= MOST_EXAMINED:
                break
            examined += 1
            position = half.number + 2
            if half.state in self._states and allows(Operation.CONSUME_GROUP, exchange=half.topic, queue=group):
                try:
                    found.append(shown(self._connection, half))
                except BrokerError:
                    continue
        else:
            position = self.end
        self._connection.engine.requests.left -= examined // EXAMINED + len(found)
        return found, position

    def _each(self, above: int) -> Iterator[HalfMessage]:
        return self._connection.broker.half.each(self._connection.login.vhost_name, max(above, 0))


def view_of(connection: RemotingConnection, topic: str) -> HalfView | None:
    """Return the view with this name, or None."""
    return HalfView(connection, topic) if topic in STATES else None


def shown(connection: RemotingConnection, half: HalfMessage) -> bytes:
    """Return a half message, or its decision, as its view has it. Raises BrokerError if it cannot be read."""
    host, port = connection.address
    topic = next(name for name, states in STATES.items() if half.state in states)
    stored_ms = half.due if half.state.decided else half.born
    place = StoredAt(topic, 0, half.number, ids.half_offset(half.number), stored_ms, host, port)
    return encode_stored(_decision(half) if half.state.decided else _message(half), place)


def _message(half: HalfMessage) -> MessageContent:
    content = without_transaction(content_for(half.envelope, half.content))
    found = properties.parse(content.properties)
    found[properties.REAL_TOPIC] = half.topic
    found[properties.REAL_QUEUE] = str(max(content.queue, 0))
    if half.checks:
        found[properties.CHECKS] = str(half.checks)
    return content._replace(properties=properties.render(found))


def _decision(half: HalfMessage) -> MessageContent:
    found = {
        properties.TAGS: _DECIDED_TAG,
        properties.UNIQUE_KEY: half.message_id,
        properties.PRODUCER_GROUP: half.group,
        properties.REAL_TOPIC: half.topic,
        _DECISION: half.state.name,
    }
    return MessageContent(properties.render(found), f"{half.number},".encode(), born_ms=half.born)

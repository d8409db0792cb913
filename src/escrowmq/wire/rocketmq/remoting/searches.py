"""Searches for messages by key. There is no index: the newest messages of the topic are examined, in pieces."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.conditions import BrokerError
from escrowmq.wire.rocketmq import ids, properties
from escrowmq.wire.rocketmq.filters import stored_properties
from escrowmq.wire.rocketmq.remoting.codes import ResultCode
from escrowmq.wire.rocketmq.remoting.errors import RESULTS, RequestFault
from escrowmq.wire.rocketmq.remoting.fields import number
from escrowmq.wire.rocketmq.remoting.frames import Command
from escrowmq.wire.rocketmq.remoting.messages import StoredAt, content_for, encode_stored

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.stream import StreamQueue
    from escrowmq.core.topology.topics import Topic
    from escrowmq.wire.rocketmq.remoting.connection import RemotingConnection

MOST_EXAMINED: Final = 131_072
"""Messages that one search examines. Older ones are not found."""
PIECE: Final = 512
"""Messages that one turn examines."""
MOST_FOUND: Final = 64
MOST_BYTES: Final = 4 << 20
MOST_SEARCHES: Final = 4
"""Searches of one connection at a time."""
LONGEST_KEY: Final = 1024
_FOREVER: Final = (1 << 63) - 1


class _SearchRange(NamedTuple):
    """The messages of one queue that are still to be examined: from the position `begin` to before `end`."""

    queue: int
    stream: StreamQueue
    begin: int
    end: int


class KeySearch:
    """One search, from the newest message to older ones, in all queues of a topic in turn. The answer has the oldest
    message first.
    """

    def __init__(
        self, connection: RemotingConnection, request: Command, topic: Topic, key: str, *, unique: bool
    ) -> None:
        """`unique` searches for the id that the producer gave the message, and not for one of its keys."""
        fields = request.fields
        if not 0 < len(key) <= LONGEST_KEY:
            raise RequestFault(ResultCode.INVALID_PARAMETER, f"a key has 1 to {LONGEST_KEY} characters")
        if connection.searches >= MOST_SEARCHES:
            raise RequestFault(ResultCode.SYSTEM_BUSY, f"a client has at most {MOST_SEARCHES} searches at a time")
        self._connection = connection
        self._request = request
        self._topic = topic.name
        self._most = min(max(number(fields, "maxNum", MOST_FOUND), 1), MOST_FOUND)
        self._octets = key.encode("utf-8", "surrogateescape")
        self._has_key = _has_unique_key(key) if unique else _has_key(key)
        self._left = MOST_EXAMINED
        self._found: list[tuple[int, bytes]] = []
        self._size = 0
        begin, end = number(fields, "beginTimestamp", 0), number(fields, "endTimestamp", _FOREVER)
        self._parts = [
            _SearchRange(
                queue, stream, stream.position_at(begin), stream.position_at(end + 1) if end < _FOREVER else stream.end
            )
            for queue, stream in enumerate(topic.streams)
        ]

    def start(self) -> None:
        """Begin. The first piece is examined in this turn."""
        self._connection.searches += 1
        self._go_on()

    def _go_on(self) -> None:
        connection = self._connection
        if connection.is_closed:
            return
        try:
            is_done = self._examine_piece()
        except BrokerError as error:
            self._answer(Command(RESULTS[error.condition], remark=error.text))
            return
        if is_done:
            self._answer(self._result())
        else:
            connection.engine.deadlines.set(connection.engine.now + 1, self._go_on)

    def _answer(self, response: Command) -> None:
        self._connection.searches -= 1
        self._connection.respond(self._request, response)

    def _examine_piece(self) -> bool:
        """Examine the newest messages of the next queue. Return whether the search is at its end."""
        parts = self._parts
        while parts:
            part = parts.pop(0)
            begin = max(part.begin, part.stream.begin)
            if part.end <= begin or part.stream.deleted:
                continue
            start = max(part.end - PIECE, begin)
            self._examine(part, start)
            parts.append(part._replace(end=start))
            break
        return not parts or self._left <= 0 or len(self._found) >= self._most or self._size >= MOST_BYTES

    def _examine(self, part: _SearchRange, start: int) -> None:
        position, entries = start, []
        while position < part.end:
            read = part.stream.read(position, part.end - position)
            if not read:
                break
            entries += read
            position = read[-1].position + 1
        self._left -= part.end - start
        for entry in reversed(entries):
            if len(self._found) >= self._most or self._size >= MOST_BYTES:
                return
            if entry.position < part.end and self._octets in entry.content and self._has_key(_properties(entry)):
                found = self._encoded(part, entry)
                self._found.append((entry.run.time, found))
                self._size += len(found)

    def _encoded(self, part: _SearchRange, entry: Entry) -> bytes:
        place = ids.place_offset(ids.StreamPlace(part.stream.ident, entry.position))
        at = StoredAt(self._topic, part.queue, entry.position - 1, place, entry.run.time, *self._connection.address)
        return encode_stored(content_for(entry.run.envelope, entry.content), at)

    def _result(self) -> Command:
        fields = {"indexLastUpdateTimestamp": str(self._connection.engine.now), "indexLastUpdatePhyoffset": "0"}
        if self._found:
            self._found.reverse()
            self._found.sort(key=itemgetter(0))
            return Command(ResultCode.SUCCESS, fields, b"".join([message for _, message in self._found]))
        text = "can not find message, maybe time range not correct"
        if self._left <= 0:
            text += f"; the newest {MOST_EXAMINED} messages of the time range were examined"
        return Command(ResultCode.QUERY_NOT_FOUND, fields, remark=text)


def _properties(entry: Entry) -> dict[str, str]:
    return stored_properties(entry.run.envelope, entry.content)


def _has_unique_key(key: str) -> Callable[[dict[str, str]], bool]:
    return lambda found: found.get(properties.UNIQUE_KEY) == key


def _has_key(key: str) -> Callable[[dict[str, str]], bool]:
    """The filter for messages with a key, of which a message has several with spaces between them, or with this id."""
    return lambda found: key in found.get(properties.KEYS, "").split() or found.get(properties.UNIQUE_KEY) == key

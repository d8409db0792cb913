"""Where the messages of a block with keyed contents go: routes are found once for all keys that surely share one.

Many exchanges read only the first words of a routing key, for example a topic exchange with the pattern `orders.#`.
Keys that are equal as far as they are read have the same *stem*, and so the same route.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from escrowmq.core.budget import ROUTED
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp091.blocks import BlockError

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.amqp091.channel import Channel

ALONE: Final = 0
"""The number of the route of messages that have to be published on their own."""
_MOST_KEYS: Final = 64  # routing keys whose routes are found in one piece
_MOST_QUEUES: Final = 1000  # queues to which the keys of a piece lead, about
_WORD: Final = 2  # queues that cost as much as comparing one more word of a key with patterns
_STEMS: Final = 16  # keys whose stems cost one unit of the budget
_DOT: Final = b"."


class BlockRoutes:
    """The routes of the routing keys in a block. `versions` are those of topology and access rules at that time."""

    def __init__(self, channel: Channel, exchange: str) -> None:
        self.versions = (-1, -1)
        self.queues: list[tuple[Queue, ...] | None] = [None]  # by the number of the route; the first one is `ALONE`
        self._channel = channel
        self._exchange = exchange
        self._words: int | None = None  # how many words of a key are read
        self._numbers: dict[Hashable, int] = {}  # of the routes, by stem

    def find(self, keys: Collection[Sequence[bytes]]) -> Iterator[None]:
        """Find the queues to which each routing key leads, in pieces. Each sequence has keys of one length.

        There is no route for messages that have to be published on their own: they may be refused or dropped, a limit
        counts their bodies, or their content determines the route.

        Raises:
            BlockError: a routing key is not UTF-8.
        """
        channel, exchange = self._channel, self._exchange
        vhost = channel.vhost
        try:
            b"\0".join(chain.from_iterable(keys)).decode()
        except UnicodeDecodeError as error:
            raise BlockError(f"a routing key is not UTF-8: {error}") from None
        self.versions = (vhost.version, channel.broker.access.version)
        try:
            some = next(filter(None, keys), None)
            if some is not None and channel.door.allows_any_key(exchange, some[0].decode()):
                self._words = vhost.leading_words(exchange)
            vhost.exchange_for_publish(exchange)
            if not exchange or vhost.needs_content(exchange):
                return
            names: dict[Hashable, bytes] = {}
            for each in keys:
                names.update(zip(_stems(each, self._words), each, strict=True))
            if self._words is not None:
                channel.broker.engine.requests.left -= sum(map(len, keys)) // _STEMS
            yield from self._route([(stem, key.decode()) for stem, key in names.items()])
        except BrokerError:
            self._numbers.clear()  # the first message that may not be published is refused when it is

    def _route(self, names: list[tuple[Hashable, str]]) -> Iterator[None]:
        channel, exchange, vhost = self._channel, self._exchange, self._channel.vhost
        requests = channel.broker.engine.requests
        known: dict[tuple[Queue, ...], int] = {}
        at, size = 0, 1
        while at < len(names):
            piece = names[at : at + size]
            channel.door.check_publish_each(exchange, [name for _, name in piece])
            found = vhost.route_each(exchange, piece)
            for stem, queues in found.items():
                number = known.get(queues)
                if number is None:
                    number = known[queues] = self._number(queues)
                self._numbers[stem] = number
            words = sum([name.count(".") for _, name in piece])
            cost = max(sum(map(len, found.values())), len(piece), _WORD * words)
            requests.left -= -(-cost // ROUTED) + vhost.take_cost()
            at += len(piece)
            size = max(1, min(2 * size, _MOST_KEYS, _MOST_QUEUES * len(piece) // cost))
            yield

    def _number(self, queues: tuple[Queue, ...]) -> int:
        if not queues or any(map(_limited, queues)):
            return ALONE
        self.queues.append(queues)
        return len(self.queues) - 1

    def of(self, keys: Sequence[bytes]) -> list[int]:
        """Return the number of the route of each key. All keys have one length."""
        return list(map(self._numbers.get, _stems(keys, self._words), repeat(ALONE)))


def _stems(keys: Sequence[bytes], words: int | None) -> Iterable[Hashable]:
    """Return what a route depends on for each of these keys, which have one length: the first words, and the number
    of all words.
    """
    if words is None or not keys or not keys[0]:  # the empty key has no words
        return keys
    counts = map(bytes.count, keys, repeat(_DOT))
    if not words:
        return counts
    if words == 1:
        return zip(map(itemgetter(0), map(bytes.partition, keys, repeat(_DOT))), counts, strict=True)
    return [(*key.split(_DOT, words)[:words], count) for key, count in zip(keys, counts, strict=True)]


def _limited(queue: Queue) -> bool:
    return queue.options.max_length_bytes is not None

"""Publishing the messages of a block (`escrow.publish`) in the transaction of a channel.

Routes are found once for each distinct routing key. Messages that need more, such as those whose headers determine
their route, are published one by one, as `basic.publish` would.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.budget import ROUTED
from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.block_layouts import Checked, check
from escrowmq.wire.amqp091.blocks import BlockError, MessageBlock, decode
from escrowmq.wire.amqp091.keyed import KEYED, packed_part
from escrowmq.wire.amqp091.packed import unpack
from escrowmq.wire.outbox import LARGE

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.wire.amqp091.channel import Channel
    from escrowmq.wire.amqp091.publication import Form
    from escrowmq.wire.amqp091.publishing import PublishReader
    from escrowmq.wire.amqp091.shape import Values

_CHECKED: Final = 4  # messages of a layout that cost one unit of the budget
_LAYOUT: Final = 3
_APART: Final = 3  # a message that is decoded in full
_MOST_KEYS: Final = 64  # routing keys whose routes are found in one piece
_MOST_QUEUES: Final = 1000  # queues to which the keys of a piece lead, about
_WORD: Final = 2  # queues that cost as much as comparing one more word of a key with patterns
_ALONE: Final = 0  # the number of the route of messages that have to be published on their own


class _Way(NamedTuple):
    """The common destination of messages: their values, and the queues of their routing key (None if packed)."""

    values: Values
    queues: tuple[Queue, ...] | None


def publish_block(
    reader: PublishReader, channel: Channel, method: spec.EscrowPublish, data: bytes
) -> Iterator[bool | None]:
    """Publish a block, in pieces.

    Raises:
        BrokerError: INVALID_ARGUMENT for a malformed block, of which nothing is published; the errors of
            `basic.publish` for one of its messages.
        SyntaxFault: a property list is malformed.
    """
    requests = channel.broker.engine.requests
    publisher = _Publisher(reader, channel, method)
    try:
        block = decode(data)
        groups: list[Checked] = []
        for rows in block.layouts:
            groups += check(block, rows, reader.most_header, min(reader.most_body, LARGE - 1))
            requests.left -= _LAYOUT + len(rows) // _CHECKED
            if requests.left <= 0:
                yield None
        if block.form == KEYED:
            for _ in publisher.route({key for group in groups for key in group.keys}):
                if requests.left <= 0:
                    yield None
        ways = publisher.ways(block, groups)
    except BlockError as error:
        raise BrokerError(Condition.INVALID_ARGUMENT, f"malformed block: {error}") from None
    contents = [data[start:stop] for start, stop in zip(block.starts, block.stops, strict=True)]
    begin = 0
    for _, run in groupby(ways, id):
        way, end = ways[begin], begin + sum(1 for _ in run)
        for _ in publisher.publish(block.form, way, contents[begin:end]):
            if requests.left <= 0:
                yield None
        begin = end


class _Publisher:
    """Publishes the messages of one block."""

    def __init__(self, reader: PublishReader, channel: Channel, method: spec.EscrowPublish) -> None:
        self._reader = reader
        self._channel = channel
        self._method = method
        self._branch = channel.branch
        self._versions = (-1, -1)  # of topology and access rules, for which the ways are known
        self._routes: list[tuple[Queue, ...] | None] = [None]  # the first one is `_ALONE`
        self._numbers: dict[bytes, int] = {}  # of the routes, by routing key

    def _ended(self) -> bool:
        """Whether the transaction has ended between two pieces, and with it what it has published."""
        return self._channel.branch is not self._branch or self._channel.closing

    def route(self, keys: set[bytes]) -> Iterator[None]:
        """Find the queues to which each routing key leads, in pieces.

        There is no route for messages that have to be published on their own: they may be refused or dropped, a limit
        counts their bodies, or their content determines the route.

        Raises:
            BlockError: a routing key is not UTF-8.
        """
        channel, exchange = self._channel, self._method.exchange
        vhost, requests = channel.vhost, channel.broker.engine.requests
        try:
            names = [(key, key.decode()) for key in keys]
        except UnicodeDecodeError as error:
            raise BlockError(f"a routing key is not UTF-8: {error}") from None
        self._versions = (vhost.version, channel.broker.access.version)
        known: dict[tuple[Queue, ...], int] = {}
        at, size = 0, 1
        try:
            while at < len(names):
                piece = names[at : at + size]
                channel.door.check_publish_each(exchange, [name for _, name in piece])
                vhost.exchange_for_publish(exchange)
                if not exchange or vhost.needs_content(exchange):
                    return
                found = vhost.route_each(exchange, piece)
                for key, queues in found.items():
                    number = known.get(queues)
                    if number is None:
                        number = known[queues] = self._number(queues)
                    self._numbers[key] = number
                words = sum([name.count(".") for _, name in piece])
                cost = max(sum(map(len, found.values())), len(piece), _WORD * words)
                requests.left -= -(-cost // ROUTED) + vhost.take_cost()
                at += len(piece)
                size = max(1, min(2 * size, _MOST_KEYS, _MOST_QUEUES * len(piece) // cost))
                yield
        except BrokerError:
            self._numbers.clear()  # the first message that may not be published is refused when it is

    def _number(self, queues: tuple[Queue, ...]) -> int:
        if not queues or any(map(_limited, queues)):
            return _ALONE
        self._routes.append(queues)
        return len(self._routes) - 1

    def ways(self, block: MessageBlock, groups: list[Checked]) -> list[_Way | None]:
        """Return the way of each message, None if it has to be published on its own. Equal ways are the same object."""
        numbers, routes = self._numbers, self._routes
        known: dict[tuple[Values, int], _Way] = {}
        found: list[_Way | None] = [None] * len(block.starts)
        for rows, values, keys in groups:
            if values is None:
                continue
            if block.form != KEYED:
                way = known.setdefault((values, _ALONE), _Way(values, None))
                for row in rows:
                    found[row] = way
                continue
            for row, key in zip(rows, keys, strict=True):
                number = numbers.get(key, _ALONE)
                if number != _ALONE:
                    place = values, number
                    if place not in known:
                        known[place] = _Way(values, routes[number])
                    found[row] = known[place]
        return found

    def publish(self, form: int, way: _Way | None, contents: list[bytes]) -> Iterator[None]:
        """Publish a run of messages, in pieces."""
        if self._ended():
            return
        run = None if way is None else self._run_form(form, way, contents[0])
        if run is not None:
            self._reader.publish(self._channel, run, contents)
            yield
            return
        for content in contents:
            if self._ended():
                return
            self._channel.broker.engine.requests.left -= _APART
            self._publish_alone(form, content)
            yield

    def _run_form(self, form: int, way: _Way, content: bytes) -> Form | None:
        """Return the form of a run, or None if its messages have to be published one by one."""
        channel, forms = self._channel, self._reader.forms
        versions = channel.vhost.version, channel.broker.access.version
        try:
            address = forms.address(channel.number, self._basic(form, content))
            if form != KEYED:
                run = forms.packed(address, way.values)
                channel.resolve(run)
                return None if run.apart else run
            run = forms.keyed(address, way.values)
        except BrokerError:
            return None
        if way.queues is None or versions != self._versions:
            return None
        run.queues, (run.version, run.allowed) = way.queues, versions
        return run

    def _publish_alone(self, form: int, content: bytes) -> None:
        props, body = unpack(packed_part(content) if form == KEYED else content)
        found = self._reader.find_form(self._channel, self._basic(form, content), props)
        if found is not None:
            self._reader.publish(self._channel, found, [body])

    def _basic(self, form: int, content: bytes) -> bytes:
        """Return the payload of the `basic.publish` that would publish this content."""
        key = self._method.routing_key if form != KEYED else content[1 : 1 + content[0]].decode()
        return spec.BasicPublish(self._method.exchange, key).encode()


def _limited(queue: Queue) -> bool:
    return queue.options.max_length_bytes is not None

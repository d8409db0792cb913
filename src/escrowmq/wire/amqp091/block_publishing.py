"""Publishing the messages of a block (`escrow.publish`) in the transaction of a channel.

Messages that need more, such as those whose headers determine
their route, are published one by one, as `basic.publish` would.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.wire.amqp091 import spec
from escrowmq.wire.amqp091.block_layouts import Checked, check
from escrowmq.wire.amqp091.block_routes import ALONE, BlockRoutes
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
            for _ in publisher.routes.find([group.keys for group in groups]):
                if requests.left <= 0:
                    yield None
        ways = publisher.ways(block, groups)
    except BlockError as error:
        raise BrokerError(Condition.INVALID_ARGUMENT, f"malformed block: {error}") from None
    contents = [data[start:stop] for start, stop in zip(block.starts, block.stops, strict=True)]
    for way, begin, end in _runs(ways):
        for _ in publisher.publish(block.form, way, contents if end - begin == len(ways) else contents[begin:end]):
            if requests.left <= 0:
                yield None


def _runs(ways: list[_Way | None]) -> Iterator[tuple[_Way | None, int, int]]:
    """Yield each run of messages with the same way: the way, its first message, and the one after its last."""
    if ways.count(ways[0]) == len(ways):
        yield ways[0], 0, len(ways)
        return
    begin = 0
    for _, run in groupby(ways, id):
        end = begin + sum(1 for _ in run)
        yield ways[begin], begin, end
        begin = end


class _Publisher:
    """Publishes the messages of one block."""

    def __init__(self, reader: PublishReader, channel: Channel, method: spec.EscrowPublish) -> None:
        self._reader = reader
        self._channel = channel
        self._method = method
        self._branch = channel.branch
        self.routes = BlockRoutes(channel, method.exchange)

    def _ended(self) -> bool:
        """Whether the transaction has ended between two pieces, and with it what it has published."""
        return self._channel.branch is not self._branch or self._channel.closing

    def ways(self, block: MessageBlock, groups: list[Checked]) -> list[_Way | None]:
        """Return the way of each message, None if it has to be published on its own. Equal ways are the same object."""
        known: dict[tuple[Values, int], _Way] = {}
        found: list[_Way | None] = [None] * len(block.starts)
        for rows, values, keys in groups:
            if values is None:
                continue
            numbers = self.routes.of(keys) if block.form == KEYED else [ALONE]
            if numbers.count(numbers[0]) == len(numbers):
                if numbers[0] == ALONE and block.form == KEYED:
                    continue
                way = known.setdefault((values, numbers[0]), _Way(values, self.routes.queues[numbers[0]]))
                if len(rows) == len(found):
                    return [way] * len(found)
                for row in rows:
                    found[row] = way
                continue
            for row, number in zip(rows, numbers, strict=True):
                if number != ALONE:
                    place = values, number
                    if place not in known:
                        known[place] = _Way(values, self.routes.queues[number])
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
        if way.queues is None or versions != self.routes.versions:
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

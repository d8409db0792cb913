"""Routing keys and properties for the messages of a bulk publish: one for all messages, or one for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from escrowmq.client.encoding import HEADS, Encoder, Heads
from escrowmq.client.errors import ProgrammingError
from escrowmq.wire.amqp091.properties import NO_PROPERTIES, Properties

SomeProperties = Properties | bytes | None
"""Properties, the same in wire format (`Properties.encode()`), or None for a message without properties."""


class _Heads(dict[str, Heads]):
    """The heads of messages with equal properties, by routing key."""

    def __init__(self, make: Callable[[str], Heads]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, routing_key: str) -> Heads:
        if len(self) >= HEADS:
            self.clear()
        heads = self[routing_key] = self._make(routing_key)
        return heads


class Addresses:
    """Supplies the encoded heads of the messages of one bulk publish, in order.

    `routing_key` and `properties` are either one value for all messages or an iterable with one value for each message.
    """

    def __init__(
        self,
        encoder: Encoder,
        exchange: str,
        routing_key: str | Iterable[str],
        properties: SomeProperties | Iterable[SomeProperties],
        mandatory: bool,
    ) -> None:
        self._encoder = encoder
        self._exchange = exchange
        self._mandatory = mandatory
        self._keys: Iterator[str] | str = routing_key if isinstance(routing_key, str) else iter(routing_key)
        self._props: Iterator[SomeProperties] | bytes = (
            octets(properties) if isinstance(properties, SomeProperties) else iter(properties)
        )
        props = self._props
        self._by_key = _Heads(lambda key: self._heads(key, props)) if isinstance(props, bytes) else None

    def next(self, count: int) -> Heads | list[Heads]:
        """Return the heads of the next `count` messages: one if all messages share it, otherwise a list of `count`.

        Raises:
            ProgrammingError: An iterable ended too early, or a key or properties cannot be encoded.
        """
        keys, props = self._keys, self._props
        if isinstance(keys, str):
            if isinstance(props, bytes):
                return self._heads(keys, props)
            names = [keys] * count
        else:
            names = _taken(keys, count, "routing keys")
            if self._by_key is not None:
                return self._keyed(names, self._by_key)
        given: list[Any] = [props] * count if isinstance(props, bytes) else _taken(props, count, "properties")
        encoded: dict[int, bytes] = {}  # by id(): each object is encoded once; `given` keeps them all alive
        found: dict[tuple[str, int], Heads] = {}
        heads = []
        for key, identity, each in zip(names, map(id, given), given, strict=True):
            head = found.get((key, identity))
            if head is None:
                if identity not in encoded:
                    encoded[identity] = octets(each)
                head = found[key, identity] = self._heads(key, encoded[identity])
            heads.append(head)
        return heads[0] if len(found) == 1 else heads

    @staticmethod
    def _keyed(names: list[str], by_key: _Heads) -> Heads | list[Heads]:
        if names.count(names[0]) == len(names):
            names = names[:1]
        try:
            heads = list(map(by_key.__getitem__, names))
        except TypeError as error:
            raise ProgrammingError(f"the message cannot be published: {error}") from error
        return heads[0] if len(heads) == 1 else heads

    def finish(self) -> None:
        """Check that no routing keys or properties are left over after the last message.

        Raises:
            ProgrammingError: There are more routing keys or properties than bodies.
        """
        for left, what in ((self._keys, "routing keys"), (self._props, "properties")):
            if not isinstance(left, str | bytes) and list(islice(left, 1)):
                raise ProgrammingError(f"more {what} than bodies were given")

    def _heads(self, routing_key: str, props: bytes) -> Heads:
        try:
            return self._encoder.heads(self._exchange, routing_key, props, self._mandatory)
        except (ValueError, TypeError, AttributeError) as error:
            raise ProgrammingError(f"the message cannot be published: {error}") from error


def octets(properties: SomeProperties) -> bytes:
    """Return properties in wire format. Raises ProgrammingError if they cannot be encoded."""
    if properties is None:
        return NO_PROPERTIES
    if isinstance(properties, bytes):
        return properties
    try:
        return properties.encode()
    except (ValueError, TypeError, AttributeError) as error:
        raise ProgrammingError(f"the properties cannot be encoded: {error}") from error


def _taken(items: Iterator[Any], count: int, what: str) -> list[Any]:
    taken = list(islice(items, count))
    if len(taken) < count:
        raise ProgrammingError(f"fewer {what} than bodies were given")
    return taken

"""Where the messages of a bulk publish go, and with what properties: the same for all, or one for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from escrowmq.client.encoding import Encoder, Heads
from escrowmq.client.errors import ProgrammingError
from escrowmq.wire.amqp091.properties import NO_PROPERTIES, Properties

SomeProperties = Properties | bytes | None
"""Properties, or as they are on the wire (`Properties.encode()`), or none."""


class Addresses:
    """Finds the heads of publishes. Raises ProgrammingError for what cannot be encoded."""

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

    def next(self, count: int) -> Heads | list[Heads]:
        """For the next `count` messages: one for all if they are alike, else one for each."""
        keys, props = self._keys, self._props
        if isinstance(keys, str):
            if isinstance(props, bytes):
                return self._heads(keys, props)
            names = [keys] * count
        else:
            names = _taken(keys, count, "routing keys")
        given: list[Any] = [props] * count if isinstance(props, bytes) else _taken(props, count, "properties")
        encoded: dict[int, bytes] = {}  # what is the same object is encoded once; all of them live as long as this
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

    def finish(self) -> None:
        """The last message is sent. Raises ProgrammingError if there are keys or properties left."""
        for left, what in ((self._keys, "routing keys"), (self._props, "properties")):
            if not isinstance(left, str | bytes) and list(islice(left, 1)):
                raise ProgrammingError(f"there are more {what} than bodies")

    def _heads(self, routing_key: str, props: bytes) -> Heads:
        try:
            return self._encoder.heads(self._exchange, routing_key, props, self._mandatory)
        except (ValueError, TypeError, AttributeError) as error:
            raise ProgrammingError(f"cannot be published: {error}") from error


def octets(properties: SomeProperties) -> bytes:
    """Properties as they are on the wire. Raises ProgrammingError."""
    if properties is None:
        return NO_PROPERTIES
    if isinstance(properties, bytes):
        return properties
    try:
        return properties.encode()
    except (ValueError, TypeError, AttributeError) as error:
        raise ProgrammingError(f"properties cannot be encoded: {error}") from error


def _taken(items: Iterator[Any], count: int, what: str) -> list[Any]:
    taken = list(islice(items, count))
    if len(taken) < count:
        raise ProgrammingError(f"there are fewer {what} than bodies")
    return taken

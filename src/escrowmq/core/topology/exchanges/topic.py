"""Topic exchange: the routing key of the binding is a pattern of words, with `*` for one and `#` for any number."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from escrowmq.core.topology.exchange import NO_ARGUMENTS, Binding, Exchange, Q
from escrowmq.core.topology.exchanges.trie import Trie


class TopicExchange(Exchange[Q]):
    """Stores its patterns in a trie."""

    __slots__ = ("_patterns",)

    kind: ClassVar[str] = "topic"

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
        self._patterns: Trie[Q | Exchange[Q]] = Trie()

    def match(self, routing_key: str, headers: Mapping[str, object] | None) -> Collection[Q | Exchange[Q]]:
        del headers
        return self._patterns.match(routing_key)

    @property
    def leading_words(self) -> int | None:
        return self._patterns.leading_words

    def _index(self, binding: Binding[Q]) -> None:
        self._patterns.add(binding.routing_key, binding.key, binding.destination)

    def _unindex(self, binding: Binding[Q]) -> None:
        self._patterns.remove(binding.routing_key, binding.key)

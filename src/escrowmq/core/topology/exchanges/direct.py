"""Direct exchange: the routing key of the message must equal the routing key of the binding."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from escrowmq.core.topology.exchange import NO_ARGUMENTS, Binding, BindingKey, Exchange, Q


class DirectExchange(Exchange[Q]):
    """Looks the routing key up."""

    __slots__ = ("_by_key",)

    kind: ClassVar[str] = "direct"

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
        self._by_key: dict[str, dict[BindingKey, Q | Exchange[Q]]] = {}

    def match(self, routing_key: str, headers: Mapping[str, object] | None) -> Collection[Q | Exchange[Q]]:
        del headers
        found = self._by_key.get(routing_key)
        return found.values() if found is not None else ()

    def _index(self, binding: Binding[Q]) -> None:
        self._by_key.setdefault(binding.routing_key, {})[binding.key] = binding.destination

    def _unindex(self, binding: Binding[Q]) -> None:
        same_key = self._by_key[binding.routing_key]
        del same_key[binding.key]
        if not same_key:
            del self._by_key[binding.routing_key]

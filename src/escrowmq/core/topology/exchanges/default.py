"""The default exchange: every queue is bound to it by its name, and no other bindings are possible."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from escrowmq.core.topology.exchange import Binding, Exchange, Q


class DefaultExchange(Exchange[Q]):
    """Looks the routing key up among the names of queues."""

    __slots__ = ("_queues",)

    kind: ClassVar[str] = "direct"

    def __init__(self, queues: Mapping[str, Q]) -> None:
        super().__init__("", durable=True)
        self._queues = queues

    def match(self, routing_key: str, headers: Mapping[str, object] | None) -> Collection[Q | Exchange[Q]]:
        del headers
        queue = self._queues.get(routing_key)
        return (queue,) if queue is not None else ()

    def _index(self, binding: Binding[Q]) -> None:
        raise AssertionError(f"{binding!r}: the default exchange takes no bindings")

    def _unindex(self, binding: Binding[Q]) -> None:
        raise AssertionError(f"{binding!r}: the default exchange takes no bindings")

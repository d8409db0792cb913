"""Fanout exchange: every binding gets every message."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from escrowmq.core.topology.exchange import Binding, Exchange, Q


class FanoutExchange(Exchange[Q]):
    """Ignores the routing key and the headers."""

    __slots__ = ()

    kind: ClassVar[str] = "fanout"
    reads_key: ClassVar[bool] = False

    def match(self, routing_key: str, headers: Mapping[str, object] | None) -> Collection[Q | Exchange[Q]]:
        del routing_key, headers
        return self.destinations

    @property
    def leading_words(self) -> int | None:
        return 0

    def _index(self, binding: Binding[Q]) -> None:
        """The destinations are the index."""

    def _unindex(self, binding: Binding[Q]) -> None:
        """The destinations are the index."""

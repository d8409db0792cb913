"""The kinds of exchange, by the names that declarations use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from escrowmq.core.exchange import Exchange
from escrowmq.core.exchanges.direct import DirectExchange
from escrowmq.core.exchanges.fanout import FanoutExchange
from escrowmq.core.exchanges.headers import HeadersExchange
from escrowmq.core.exchanges.topic import TopicExchange

KINDS: Final[Mapping[str, type[Exchange[Any]]]] = MappingProxyType(
    {kind.kind: kind for kind in (DirectExchange, FanoutExchange, TopicExchange, HeadersExchange)}
)

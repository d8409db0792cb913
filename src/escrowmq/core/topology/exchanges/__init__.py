"""The types of exchange, by the names that declarations use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from escrowmq.core.topology.exchange import Exchange
from escrowmq.core.topology.exchanges.consistent_hash import ConsistentHashExchange
from escrowmq.core.topology.exchanges.delayed import DelayedExchange
from escrowmq.core.topology.exchanges.direct import DirectExchange
from escrowmq.core.topology.exchanges.fanout import FanoutExchange
from escrowmq.core.topology.exchanges.headers import HeadersExchange
from escrowmq.core.topology.exchanges.partitioned import PartitionedExchange
from escrowmq.core.topology.exchanges.topic import TopicExchange

KINDS: Final[Mapping[str, type[Exchange[Any]]]] = MappingProxyType(
    {
        kind.kind: kind
        for kind in (
            DirectExchange,
            FanoutExchange,
            TopicExchange,
            HeadersExchange,
            DelayedExchange,
            ConsistentHashExchange,
            PartitionedExchange,
        )
    }
)

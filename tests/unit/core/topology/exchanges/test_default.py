"""The default exchange."""

from __future__ import annotations

import pytest

from escrowmq.core.topology.exchange import Binding
from escrowmq.core.topology.exchanges.default import DefaultExchange
from tests.unit.core.named_queue import NamedQueue


def test_every_existing_queue_is_bound_by_its_name() -> None:
    queues: dict[str, NamedQueue] = {}
    exchange = DefaultExchange(queues)
    assert not list(exchange.match("q", None))
    queue = queues["q"] = NamedQueue("q")
    assert list(exchange.match("q", None)) == [queue]
    del queues["q"]
    assert not list(exchange.match("q", None))


def test_other_bindings_are_refused() -> None:
    exchange: DefaultExchange[NamedQueue] = DefaultExchange({})
    with pytest.raises(AssertionError):
        exchange.bind(Binding(exchange, NamedQueue("q"), "q", {}))

"""Fanout exchanges."""

from __future__ import annotations

from escrowmq.core.exchange import Binding
from escrowmq.core.exchanges.fanout import FanoutExchange
from tests.unit.core.queues import NamedQueue


def test_every_binding_gets_every_message() -> None:
    exchange = FanoutExchange[NamedQueue]("x")
    queues = [NamedQueue(name) for name in "ab"]
    for queue in queues:
        exchange.bind(Binding(exchange, queue, queue.name, {}))
    assert list(exchange.match("anything", None)) == queues
    assert not exchange.reads_key

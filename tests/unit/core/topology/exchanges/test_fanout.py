"""Fanout exchanges."""

from __future__ import annotations

from escrowmq.core.topology.exchange import Binding
from escrowmq.core.topology.exchanges.fanout import FanoutExchange
from tests.unit.core.named_queue import NamedQueue


def test_every_binding_gets_every_message() -> None:
    exchange = FanoutExchange[NamedQueue]("x")
    queues = [NamedQueue(name) for name in "ab"]
    for queue in queues:
        exchange.bind(Binding(exchange, queue, queue.name, {}))
    assert list(exchange.match("anything", None)) == queues
    assert not exchange.reads_key

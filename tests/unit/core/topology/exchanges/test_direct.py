"""Direct exchanges."""

from __future__ import annotations

from escrowmq.core.topology.exchange import Binding
from escrowmq.core.topology.exchanges.direct import DirectExchange
from tests.unit.core.named_queue import NamedQueue


def test_the_whole_routing_key_is_compared() -> None:
    exchange = DirectExchange[NamedQueue]("x")
    a, b, both = NamedQueue("a"), NamedQueue("b"), NamedQueue("both")
    for queue, key in ((a, "a.*"), (b, ""), (both, "a.*"), (both, "")):
        exchange.bind(Binding(exchange, queue, key, {}))
    assert list(exchange.match("a.*", None)) == [a, both]
    assert list(exchange.match("", {"x": 1})) == [b, both]
    assert not list(exchange.match("a.b", None))
    assert not exchange.needs_headers

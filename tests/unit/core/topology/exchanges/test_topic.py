"""Topic exchanges, compared with RabbitMQ's routing."""

from __future__ import annotations

from escrowmq.core.topology.exchange import Binding
from escrowmq.core.topology.exchanges.topic import TopicExchange
from tests.unit.core.named_queue import NamedQueue
from tests.unit.core.recorded import recorded


def test_messages_are_routed_as_by_rabbitmq() -> None:
    content = recorded("topic")
    exchange = TopicExchange[NamedQueue]("x")
    for pattern, _ in content["rows"]:
        exchange.bind(Binding(exchange, NamedQueue(pattern), pattern, {}))
    expected: dict[str, set[str]] = {key: set() for key in content["keys"]}
    for pattern, matched in content["rows"]:
        for index in matched:
            expected[content["keys"][index]].add(pattern)
    assert {key: {queue.name for queue in exchange.match(key, None)} for key in expected} == expected

"""Exchanges of type `x-delayed-message`: their argument, and routing like another type."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.equivalence import check_exchange_equivalent
from escrowmq.core.topology.exchange import Binding
from escrowmq.core.topology.exchanges.delayed import DelayedExchange
from tests.unit.core.named_queue import NamedQueue


def made(kind: str) -> DelayedExchange[NamedQueue]:
    return DelayedExchange("x", arguments={"x-delayed-type": kind})


@pytest.mark.parametrize("arguments", [{}, {"x-delayed-type": "odd"}, {"x-delayed-type": 5}, {"x-delayed-type": ""}])
def test_the_argument_must_name_a_type(arguments: dict[str, Any]) -> None:
    with pytest.raises(BrokerError, match="x-delayed-type") as caught:
        DelayedExchange("x", arguments=arguments)
    assert caught.value.condition is Condition.PRECONDITION_FAILED


def test_delaying_exchanges_are_not_nested() -> None:
    with pytest.raises(BrokerError, match="direct, fanout, headers, topic"):
        made("x-delayed-message")


@pytest.mark.parametrize(
    ("kind", "key", "headers", "matches"),
    [
        ("direct", "a.b", {}, False),
        ("direct", "a.*", {}, True),
        ("topic", "a.b", {}, True),
        ("fanout", "other", {}, True),
        ("headers", "other", {"colour": "blue"}, True),
        ("headers", "other", {"colour": "red"}, False),
    ],
)
def test_it_routes_like_the_type_that_it_names(kind: str, key: str, headers: dict[str, str], matches: bool) -> None:
    exchange = made(kind)
    queue = NamedQueue("q")
    binding = Binding(exchange, queue, "a.*", {"colour": "blue"})
    assert exchange.bind(binding)
    assert not exchange.bind(binding)
    assert exchange.needs_headers
    assert (list(exchange.match(key, headers)) == [queue]) is matches
    exchange.unbind(binding.key)
    assert list(exchange.match(key, headers)) == []


def test_another_type_is_another_exchange() -> None:
    check_exchange_equivalent("/", made("topic"), made("topic"))
    with pytest.raises(BrokerError, match="x-delayed-type"):
        check_exchange_equivalent("/", made("topic"), made("direct"))


@pytest.mark.rule("FAIR-1")
def test_the_type_that_it_routes_like_has_its_limits_and_counts_its_steps() -> None:
    exchange = made("headers")
    with pytest.raises(BrokerError, match="the limit is 32"):
        exchange.check_binding(Binding(exchange, NamedQueue("q"), "", {f"h{i}": i for i in range(33)}))
    exchange.bind(Binding(exchange, NamedQueue("q"), "", {"a": 1}))
    assert list(exchange.match("", {"a": 1}))
    assert exchange.steps > 0

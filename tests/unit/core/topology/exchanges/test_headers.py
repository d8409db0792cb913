"""Headers exchanges, compared with RabbitMQ's routing."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.exchange import Binding
from escrowmq.core.topology.exchanges.headers import HeadersExchange
from tests.unit.core.named_queue import NamedQueue
from tests.unit.core.recorded import recorded

RECORDED = recorded("headers")


@pytest.mark.parametrize("row", RECORDED["rows"], ids=str)
def test_messages_are_routed_as_by_rabbitmq(row: tuple[dict[str, Any], list[int]]) -> None:
    arguments, expected = row
    exchange = HeadersExchange[NamedQueue]("x")
    exchange.bind(Binding(exchange, NamedQueue("q"), "", arguments))
    matched = [i for i, headers in enumerate(RECORDED["messages"]) if list(exchange.match("any", headers))]
    assert matched == expected


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("some", 'Invalid x-match field value <<"some">>; expected all, any, all-with-x, or any-with-x'),
        (1, "Invalid x-match field type signedint (value 1); expected longstr"),
    ],
)
def test_an_invalid_mode_is_refused(mode: object, text: str) -> None:
    exchange = HeadersExchange[NamedQueue]("x")
    with pytest.raises(BrokerError) as refused:
        exchange.bind(Binding(exchange, NamedQueue("q"), "", {"x-match": mode}))
    assert (refused.value.condition, refused.value.text) == (Condition.PRECONDITION_FAILED, text)
    assert not exchange.bindings


def test_headers_are_needed_only_while_bindings_exist() -> None:
    exchange = HeadersExchange[NamedQueue]("x")
    binding = Binding(exchange, NamedQueue("q"), "", {"a": 1})
    needed = [exchange.needs_headers]
    exchange.bind(binding)
    needed.append(exchange.needs_headers)
    exchange.unbind(binding.key)
    needed.append(exchange.needs_headers)
    assert needed == [False, True, False]

"""Headers exchanges, compared with RabbitMQ's routing."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.messages.values import canonical_table
from escrowmq.core.topology.exchange import Binding
from escrowmq.core.topology.exchanges import headers
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


@pytest.mark.rule("FAIR-1")
def test_only_bindings_with_a_field_of_the_message_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[headers._Pattern] = []
    matches = headers._Pattern.matches

    def counted(self: headers._Pattern, seen: dict[str, Hashable]) -> bool:
        compared.append(self)
        return matches(self, seen)

    monkeypatch.setattr(headers._Pattern, "matches", counted)
    exchange = HeadersExchange[NamedQueue]("x")
    for i in range(1000):
        exchange.bind(Binding(exchange, NamedQueue(f"all {i}"), "", {"kind": "order", "number": i}))
        exchange.bind(Binding(exchange, NamedQueue(f"any {i}"), "", {"x-match": "any", "number": i, "other": i}))
    found = exchange.match("", {"kind": "order", "number": 7, "more": "x"})
    assert [queue.name for queue in found] == ["all 7", "any 7"]
    assert len(compared) < 5


@given(data=st.data())
def test_the_index_finds_what_comparing_with_each_binding_finds(data: st.DataObject) -> None:
    fields = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from([None, 1, "1", 2]), max_size=3)
    exchange = HeadersExchange[NamedQueue]("x")
    bindings = [
        Binding(exchange, NamedQueue(f"q{i}"), "", {"x-match": mode, **table})
        for i, (mode, table) in enumerate(
            data.draw(st.lists(st.tuples(st.sampled_from(["all", "any"]), fields), max_size=8))
        )
    ]
    for binding in bindings:
        exchange.bind(binding)
    for binding in bindings[::3]:
        exchange.unbind(binding.key)
    table = data.draw(fields)
    seen = canonical_table(table)
    expected = [
        binding.destination.name
        for i, binding in enumerate(bindings)
        if i % 3 and headers._pattern(binding.arguments).matches(seen)
    ]
    assert sorted(queue.name for queue in exchange.match("", table)) == expected
    for binding in bindings:
        exchange.unbind(binding.key)
    assert not exchange._by_field
    assert not exchange._unconditional

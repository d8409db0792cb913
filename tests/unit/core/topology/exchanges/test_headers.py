"""Headers exchanges, compared with RabbitMQ's routing."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
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


def bound(*tables: Mapping[str, object]) -> HeadersExchange[NamedQueue]:
    """Return an exchange with a queue `0`, `1` and so on bound with each of the arguments."""
    exchange = HeadersExchange[NamedQueue]("x")
    for i, arguments in enumerate(tables):
        exchange.bind(Binding(exchange, NamedQueue(str(i)), "", arguments))
    return exchange


def names(exchange: HeadersExchange[NamedQueue], table: dict[str, object]) -> list[str]:
    return [target.name for target in exchange.match("", table)]


@pytest.mark.rule("FAIR-1")
def test_only_bindings_with_a_field_of_the_message_are_compared() -> None:
    exchange = bound(
        *[{"kind": "order", "number": i} for i in range(1000)],
        *[{"x-match": "any", "number": i, "other": i} for i in range(1000)],
    )
    assert names(exchange, {"kind": "order", "number": 7, "more": "x"}) == ["1007", "7"]
    assert exchange.steps < 10


@pytest.mark.rule("FAIR-1")
def test_a_header_that_one_binding_names_alone_takes_one_step_of_python_code() -> None:
    count = 1000
    exchange = bound(*[{f"h{i}": i} for i in range(count)])
    message = {f"h{i}": i for i in range(count)}
    calls = 0

    def counted(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(counted)
    try:
        found = exchange.match("", message)
    finally:
        sys.setprofile(None)
    assert len(found) == count
    assert calls < 2 * count + 100, "the call that makes a value comparable, and its return"


@pytest.mark.rule("FAIR-1")
def test_bindings_with_equal_arguments_are_compared_once() -> None:
    exchange = bound(*[{f"h{j}": "v" for j in range(20)}] * 1000)
    assert names(exchange, {f"h{j}": "v" for j in range(19)}) == []
    assert exchange.steps < 30
    assert len(names(exchange, {f"h{j}": "v" for j in range(20)})) == 1000


@pytest.mark.rule("FAIR-1")
def test_a_step_is_counted_for_each_comparison() -> None:
    """The bindings differ, so each is compared; the more fields they have, the more steps that takes."""
    few = bound(*[{"a": i % 10, "b": i // 10} for i in range(100)])
    assert names(few, {"a": 3, "b": 4}) == ["43"]
    assert 10 <= few.steps < 30
    many = bound(*[{f"h{j}": 1 for j in range(50) if j != i} for i in range(50)])
    assert names(many, {f"h{j}": 1 for j in range(48)}) == []
    assert many.steps > 48 * 6


@pytest.mark.rule("FAIR-1")
def test_the_fields_of_a_binding_are_limited() -> None:
    exchange = HeadersExchange[NamedQueue]("x")
    table = {"x-match": "any"} | {f"h{j}": j for j in range(headers.MOST_FIELDS)}
    exchange.check_binding(Binding(exchange, NamedQueue("q"), "", table))
    with pytest.raises(BrokerError) as refused:
        exchange.check_binding(Binding(exchange, NamedQueue("q"), "", {**table, "more": 1}))
    assert (refused.value.condition, refused.value.text) == (
        Condition.PRECONDITION_FAILED,
        "a binding of headers exchange 'x' names 33 headers; the limit is 32",
    )


@pytest.mark.rule("FAIR-1")
def test_the_bindings_that_are_compared_for_one_header_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "MOST_ALIKE", 1)
    exchange = bound({"a": 1, "own": 1}, {"b": 1, "own": 2})
    for admitted in ({"a": 1}, {"a": 1, "b": 1, "rare": 1}, {}, {"x-match": "any", "a": 1, "b": 1}):
        exchange.check_binding(Binding(exchange, NamedQueue("q"), "", admitted))
    with pytest.raises(BrokerError) as refused:
        exchange.check_binding(Binding(exchange, NamedQueue("q"), "", {"a": 1, "b": 1}))
    assert (refused.value.condition, refused.value.text) == (
        Condition.PRECONDITION_FAILED,
        (
            "headers exchange 'x' compares 1 bindings, the limit, for each header of this binding; "
            "add a header with a value that fewer bindings have"
        ),
    )


@pytest.mark.rule("FAIR-1")
def test_the_bindings_that_one_message_can_be_compared_with_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "MOST_STEPS", 6)
    exchange = bound({"a": 1}, {"b": 1}, {"c": 1}, {"a": 1, "b": 1}, {"b": 1, "c": 1})
    some = {"x-match": "any", "a": 1, "b": 1}
    exchange.check_binding(Binding(exchange, NamedQueue("q"), "", some))
    exchange.bind(Binding(exchange, NamedQueue("q"), "", some))
    for admitted in (some, {"a": 1}, {}, {"a": 1, "rare": 1}, {"x-match": "any", "rare": 1}):
        exchange.check_binding(Binding(exchange, NamedQueue("q"), "", admitted))
    for arguments in ({"a": 1, "c": 1}, {"x-match": "any", "a": 1, "rare": 1}):
        with pytest.raises(BrokerError, match="whose headers are also those of other bindings") as refused:
            exchange.check_binding(Binding(exchange, NamedQueue("q"), "", arguments))
        assert refused.value.condition is Condition.PRECONDITION_FAILED
    exchange.match("", {"a": 1, "b": 1, "c": 1})
    assert exchange.steps >= 6, "the limit is that of the steps that are charged"
    exchange.unbind(Binding(exchange, NamedQueue("q"), "", some).key)
    exchange.check_binding(Binding(exchange, NamedQueue("q"), "", {"a": 1, "c": 1}))


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
    assert exchange._shared == sum(field.shared_weight for field in exchange._fields.values())
    table = data.draw(fields)
    seen = canonical_table(table)
    expected = [binding.destination.name for i, binding in enumerate(bindings) if i % 3 and agrees(binding, seen)]
    assert sorted(queue.name for queue in exchange.match("", table)) == expected
    for binding in bindings:
        exchange.unbind(binding.key)
    assert not exchange._fields
    assert not exchange._patterns
    assert not exchange._unconditional
    assert not exchange._shared


def agrees(binding: Binding[NamedQueue], seen: dict[str, Hashable]) -> bool:
    every, fields = headers._pattern(binding.arguments)
    found = [name in seen and wanted in (seen[name], headers._PRESENT) for name, wanted in fields]
    return all(found) if every else any(found)

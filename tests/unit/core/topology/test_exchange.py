"""The behaviour that all types of exchange share."""

from __future__ import annotations

import pytest

from escrowmq.core.topology.exchange import Binding, Exchange, binding_key
from escrowmq.core.topology.exchanges import KINDS
from escrowmq.core.topology.exchanges.direct import DirectExchange
from tests.unit.core.named_queue import NamedQueue


@pytest.fixture(params=sorted(set(KINDS) - {"x-partitioned"}))  # which binds only streams of its own
def exchange(request: pytest.FixtureRequest) -> Exchange[NamedQueue]:
    return KINDS[request.param]("x", arguments={"x-delayed-type": "headers"})


def test_a_binding_exists_once(exchange: Exchange[NamedQueue]) -> None:
    queue = NamedQueue("q")
    first = Binding(exchange, queue, "1", {"a": [1]})
    assert exchange.bind(first)
    assert not exchange.bind(Binding(exchange, queue, "1", {"a": [1]}))
    assert list(exchange.bindings.values()) == [first]


def test_bindings_are_distinguished_by_destination_key_and_arguments(exchange: Exchange[NamedQueue]) -> None:
    queue, other, same_name = NamedQueue("q"), NamedQueue("p"), DirectExchange[NamedQueue]("q")
    for destination in (queue, other, same_name):
        for key in ("1", "2"):
            for arguments in ({}, {"a": 1}, {"a": True}):
                assert exchange.bind(Binding(exchange, destination, key, arguments))
    assert len(exchange.bindings) == 18


def test_an_unbound_destination_gets_no_messages(exchange: Exchange[NamedQueue]) -> None:
    queue = NamedQueue("q")
    one, other = Binding(exchange, queue, "1", {}), Binding(exchange, queue, "1", {"b": 1})
    exchange.bind(one)
    exchange.bind(other)
    assert exchange.unbind(binding_key(False, "q", "1", {})) is one
    assert exchange.unbind(one.key) is None
    assert list(exchange.match("1", {"b": 1})) == [queue]
    assert exchange.unbind(other.key) is other
    assert not exchange.bindings
    assert not list(exchange.match("1", {"b": 1}))


@pytest.mark.parametrize(("source", "destination"), [(True, True), (True, False), (False, True), (False, False)])
def test_a_binding_is_durable_if_both_ends_are(source: bool, destination: bool) -> None:
    exchange = DirectExchange[NamedQueue]("x", durable=source)
    assert Binding(exchange, NamedQueue("q", destination), "", {}).durable is (source and destination)


def test_the_alternate_exchange_is_an_argument() -> None:
    assert DirectExchange[NamedQueue]("x").alternate is None
    assert DirectExchange[NamedQueue]("x", arguments={"alternate-exchange": ""}).alternate == ""


def test_the_types_of_exchange() -> None:
    assert set(KINDS) == {
        "direct",
        "fanout",
        "topic",
        "headers",
        "x-consistent-hash",
        "x-delayed-message",
        "x-partitioned",
    }
    assert repr(KINDS["topic"]("x")) == "<TopicExchange 'x'>"

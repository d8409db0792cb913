"""Exchanges of type `x-consistent-hash`: weights, the choice of a destination, and what a change moves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.exchange import Binding, Exchange
from escrowmq.core.topology.exchanges.consistent_hash import MOST_DESTINATIONS, ConsistentHashExchange
from escrowmq.core.topology.exchanges.fanout import FanoutExchange
from tests.unit.core.named_queue import NamedQueue

KEYS = [f"order-{i}" for i in range(4000)]


def made(weights: dict[str, str], arguments: dict[str, Any] | None = None) -> ConsistentHashExchange[NamedQueue]:
    exchange: ConsistentHashExchange[NamedQueue] = ConsistentHashExchange("x", arguments=arguments or {})
    for name, weight in weights.items():
        exchange.bind(Binding(exchange, NamedQueue(name), weight, {}))
    return exchange


def chosen(exchange: Exchange[NamedQueue], key: str, headers: dict[str, object] | None = None) -> str:
    (found,) = exchange.match(key, headers)
    return found.name


def test_each_message_goes_to_one_destination_and_equal_keys_to_the_same() -> None:
    exchange = made({"a": "1", "b": "1", "c": "1"})
    assert {chosen(exchange, "key") for _ in range(10)} == {chosen(exchange, "key")}
    shares = Counter(chosen(exchange, key) for key in KEYS)
    assert all(1200 < shares[name] < 1470 for name in "abc"), shares


def test_a_destination_gets_keys_in_proportion_to_its_weight() -> None:
    shares = Counter(chosen(made({"a": "1", "b": "3"}), key) for key in KEYS)
    assert 880 < shares["a"] < 1120, shares


def test_weights_of_several_bindings_of_a_queue_add_up() -> None:
    exchange = made({"b": "1"})
    queue = NamedQueue("a")
    for weight in ("1", "2"):
        exchange.bind(Binding(exchange, queue, weight, {}))
    assert 2880 < Counter(chosen(exchange, key) for key in KEYS)["a"] < 3120
    exchange.unbind(Binding(exchange, queue, "2", {}).key)
    assert 1880 < Counter(chosen(exchange, key) for key in KEYS)["a"] < 2120


def test_the_order_of_the_bindings_does_not_matter() -> None:
    one, other = made({"a": "2", "b": "1", "c": "5"}), made({"c": "5", "a": "2", "b": "1"})
    assert [chosen(one, key) for key in KEYS] == [chosen(other, key) for key in KEYS]


def test_only_keys_of_the_removed_destination_move() -> None:
    exchange = made({"a": "1", "b": "1", "c": "1"})
    before = {key: chosen(exchange, key) for key in KEYS}
    (binding,) = [each for each in exchange.bindings.values() if each.destination.name == "b"]
    exchange.unbind(binding.key)
    assert all(chosen(exchange, key) == name for key, name in before.items() if name != "b")
    exchange.bind(binding)
    assert {key: chosen(exchange, key) for key in KEYS} == before


def test_a_header_is_hashed_instead_of_the_routing_key() -> None:
    exchange = made({"a": "1", "b": "1", "c": "1"}, {"hash-header": "customer"})
    assert exchange.needs_headers
    assert len({chosen(exchange, key, {"customer": "7"}) for key in KEYS}) == 1
    assert len({chosen(exchange, "key", {"customer": i}) for i in range(100)}) == 3
    assert chosen(exchange, "k", None) == chosen(exchange, "l", {}) == chosen(exchange, "m", {"customer": ""})


def test_without_bindings_nothing_matches_and_a_single_one_gets_all() -> None:
    assert not made({}).match("key", None)
    assert {chosen(made({"a": "1"}), key) for key in KEYS[:10]} == {"a"}


def test_an_exchange_and_a_queue_of_one_name_are_two_destinations() -> None:
    exchange = made({"a": "1"})
    exchange.bind(Binding(exchange, FanoutExchange[NamedQueue]("a"), "1", {}))
    shares = Counter(isinstance(target, Exchange) for key in KEYS for target in exchange.match(key, None))
    assert 1880 < shares[True] < 2120


def test_a_match_counts_the_scores_that_it_computes() -> None:
    exchange = made({str(i): "1" for i in range(50)})
    exchange.match("key", None)
    assert exchange.steps == 50


def test_the_number_of_destinations_is_limited() -> None:
    exchange = made({str(i): "1" for i in range(MOST_DESTINATIONS)})
    (known, *_) = [each.destination for each in exchange.bindings.values()]
    exchange.check_binding(Binding(exchange, known, "2", {}))
    with pytest.raises(BrokerError, match="1000 destinations") as caught:
        exchange.check_binding(Binding(exchange, NamedQueue("one more"), "1", {}))
    assert caught.value.condition is Condition.PRECONDITION_FAILED


@pytest.mark.parametrize("weight", ["", "0", "-1", "1.5", "a", "²", "1000001", "9" * 255])
def test_a_binding_key_that_is_no_weight_is_refused(weight: str) -> None:
    exchange = made({"a": "1"})
    with pytest.raises(BrokerError, match="from 1 to 1000000") as caught:
        exchange.bind(Binding(exchange, NamedQueue("b"), weight, {}))
    assert caught.value.condition is Condition.PRECONDITION_FAILED
    assert len(exchange.bindings) == 1


@pytest.mark.parametrize("arguments", [{"hash-header": 5}, {"hash-property": "message_id"}])
def test_wrong_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(BrokerError, match="hash-") as caught:
        made({}, arguments)
    assert caught.value.condition is Condition.PRECONDITION_FAILED

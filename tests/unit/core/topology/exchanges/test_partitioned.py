"""Exchanges of type `x-partitioned`: their arguments, and the partition of a message."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.topology.exchange import Binding
from escrowmq.core.topology.exchanges.partitioned import PartitionedExchange, partition_of
from tests.unit.core.named_queue import NamedQueue


def made(partitions: int = 4) -> PartitionedExchange[NamedQueue]:
    exchange: PartitionedExchange[NamedQueue] = PartitionedExchange(
        "t", durable=True, arguments={"x-partitions": partitions}
    )
    for i in range(partitions):
        exchange.bind(Binding(exchange, NamedQueue(f"t-{i}"), str(i), {}))
    return exchange


def matched(exchange: PartitionedExchange[NamedQueue], key: str, headers: dict[str, object] | None) -> list[str]:
    return [found.name for found in exchange.match(key, headers)]


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-partitions": 0},
        {"x-partitions": 1025},
        {"x-partitions": "8"},
        {"x-partitions": True},
        {"x-message-type": "odd"},
        {"x-message-type": 5},
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(BrokerError, match="x-") as caught:
        PartitionedExchange("t", durable=True, arguments=arguments)
    assert caught.value.condition is Condition.PRECONDITION_FAILED


@pytest.mark.parametrize(("durable", "auto_delete"), [(False, False), (True, True)])
def test_a_topic_must_be_durable_and_permanent(durable: bool, auto_delete: bool) -> None:
    with pytest.raises(BrokerError, match="durable"):
        PartitionedExchange("t", durable=durable, auto_delete=auto_delete)


def test_the_default_is_eight_partitions_for_normal_messages() -> None:
    exchange: PartitionedExchange[NamedQueue] = PartitionedExchange("t", durable=True)
    assert (exchange.wanted, exchange.message_type) == (8, "normal")


def test_the_header_names_the_partition() -> None:
    assert matched(made(), "any", {"x-partition": 3}) == ["t-3"]


@pytest.mark.parametrize("partition", [4, -1, "2", True, None, 1.0])
def test_a_partition_that_does_not_exist_is_ignored(partition: object) -> None:
    assert matched(made(), "key", {"x-partition": partition}) == matched(made(), "key", {})


def test_equal_keys_share_a_partition() -> None:
    exchange = made()
    for key in ("a", "b", "c", "", "ü", "\udc80"):
        by_routing_key = matched(exchange, key, None)
        assert by_routing_key == matched(exchange, "other", {"x-partition-key": key})
        assert len(by_routing_key) == 1


def test_the_partition_of_a_key_never_changes() -> None:
    assert [partition_of(key, 8) for key in ("", "a", "order-1", "order-2")] == [0, 3, 7, 5]


def test_a_topic_without_streams_matches_nothing() -> None:
    exchange: PartitionedExchange[NamedQueue] = PartitionedExchange("t", durable=True)
    assert matched(exchange, "key", {}) == []


@pytest.mark.parametrize(
    ("name", "key", "arguments"), [("q", "2", {}), ("t-2", "3", {}), ("t-3", "3", {}), ("t-2", "2", {"x": 1})]
)
def test_only_the_stream_of_the_next_partition_can_be_bound(name: str, key: str, arguments: dict[str, Any]) -> None:
    exchange = made(2)
    with pytest.raises(BrokerError, match="is a topic"):
        exchange.bind(Binding(exchange, NamedQueue(name), key, arguments))
    assert len(exchange.streams) == 2


def test_an_exchange_cannot_be_bound_to_a_topic() -> None:
    exchange = made(2)
    with pytest.raises(BrokerError, match="is a topic"):
        exchange.bind(Binding(exchange, made(1), "2", {}))

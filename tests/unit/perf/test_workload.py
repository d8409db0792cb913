"""Scenarios, changes to them, and contradictory options."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.perf.errors import WrongUsage
from escrowmq.perf.workload import DEFAULT_DURATION, SCENARIOS, workload_of


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_valid_and_ends(name: str) -> None:
    workload = workload_of(name, {})
    assert workload.count is not None or workload.duration is not None


def test_without_an_end_it_runs_for_ten_seconds() -> None:
    assert workload_of(None, {}).duration == DEFAULT_DURATION


def test_a_count_alone_sets_no_duration() -> None:
    assert workload_of(None, {"count": 5}).duration is None


def test_a_duration_replaces_the_count_of_a_named_load() -> None:
    workload = workload_of("backlog", {"duration": 2.0})
    assert (workload.count, workload.duration) == (None, 2.0)


def test_options_change_a_scenario() -> None:
    assert workload_of("confirms", {"size": 8}).size == 8


def test_an_unknown_name_is_refused_with_a_list_of_the_known_ones() -> None:
    with pytest.raises(WrongUsage, match="unknown scenario 'x'; the scenarios are transient, acked"):
        workload_of("x", {})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"size": 10**9}, "--size"),
        ({"size": 10, "spread": 11}, "--size-spread"),
        ({"size": 40, "spread": 33, "latency": True}, "8 bytes"),
        ({"producers": 0, "consumers": 0}, "nothing to do"),
        ({"batch": 32}, "--batch needs"),
        ({"name_server": "h:1"}, "--name-server needs"),
        ({"protocol": "rocketmq"}, "--confirms or --tx-size 1"),
        ({"protocol": "rocketmq", "tx_size": 2}, "--confirms or --tx-size 1"),
        ({"protocol": "rocketmq", "confirms": True, "channels": 2}, "--channels"),
        ({"protocol": "rocketmq", "confirms": True, "priorities": 2}, "--priorities"),
        ({"protocol": "rocketmq", "confirms": True, "size": 0}, "from 1 to 262144 bytes"),
        ({"protocol": "rocketmq", "confirms": True, "consumers": 2}, "a queue of its own"),
        ({"protocol": "rocketmq-grpc", "confirms": True, "batch": 2}, "--batch excludes"),
        ({"producers": 0}, "--queue"),
        ({"producers": 0, "queue": "q", "count": 5}, "--count needs producers"),
        ({"producers": 0, "queue": "q", "duration": 5.0}, "--duration needs producers"),
        ({"producers": 0, "queue": "q", "rate": 5.0}, "--rate needs producers"),
        ({"count": 0}, "nothing to publish"),
        ({"size": 7, "latency": True}, "8 bytes"),
        ({"size": 7, "rate": 5.0}, "8 bytes"),
        ({"prefetch": 10, "ack_every": 11}, "--ack-every"),
        ({"confirms": True, "tx_size": 1}, "exclude"),
        ({"xa": "two-phase"}, "needs --tx-size"),
        ({"fanout": 2, "queues": 2}, "exclude"),
        ({"keys": 10, "bindings": 11}, "--bindings 11 is more than --keys 10"),
        ({"bindings": 11}, "--bindings has no effect without --keys"),
        ({"keys": 10, "bindings": 5, "fanout": 2}, "excludes --fanout"),
        ({"get": 1, "rate": 5.0}, "--get excludes"),
        ({"get": 1, "subscriptions": 2}, "--get excludes"),
        ({"rpc": 1, "confirms": True}, "--rpc excludes"),
        ({"rpc": 1, "consumers": 0}, "--rpc needs"),
        ({"queues": 2, "queue": "q" * 250}, "too long"),
    ],
)
def test_contradictory_options_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WrongUsage, match=complaint):
        workload_of(None, changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"protocol": "amqp091", "mode": "explicit"}, "--mode explicit needs --protocol amqp010"),
        ({"protocol": "amqp10", "mode": "completion"}, "--mode completion needs --protocol amqp010"),
        ({"protocol": "amqp010", "mode": "first", "confirms": True}, "--mode first needs --protocol amqp10"),
        ({"protocol": "amqp010", "mode": "explicit"}, "--mode needs --confirms"),
        ({"protocol": "amqp010", "get": 1}, "excludes --rpc and --get"),
    ],
)
def test_a_mode_belongs_to_one_protocol(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(WrongUsage, match=text):
        workload_of(None, changes)


@pytest.mark.parametrize(
    ("changes", "bindings"),
    [({"keys": 100}, 100), ({"keys": 10_000}, 1000), ({"keys": 100, "bindings": 7}, 7)],
)
def test_there_are_a_thousand_bindings_or_as_many_as_keys(changes: dict[str, Any], bindings: int) -> None:
    assert workload_of(None, changes).regions == bindings

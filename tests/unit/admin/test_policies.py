"""Operations on policies, operator policies and global parameters."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.pieces import Pieces
from escrowmq.admin.policies import PolicyAdmin
from escrowmq.admin.queues import QueueAdmin
from escrowmq.admin.topology import TopologyAdmin
from escrowmq.admin.transactions import TransactionAdmin
from escrowmq.core.conditions import BrokerError
from escrowmq.core.queues.queue import Session
from escrowmq.core.topology.declaration import Declaration
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


class Bench:
    """A broker with the operations on policies, queues and exchanges."""

    def __init__(self) -> None:
        process = FakeProcess(pair()[0])
        self.directory = process.broker.directory
        pieces = Pieces()
        transactions = TransactionAdmin(process, pieces)
        self.operations = {
            **PolicyAdmin(process, pieces).operations,
            **QueueAdmin(process.broker, transactions, pieces).operations,
            **TopologyAdmin(process, pieces).operations,
        }

    def do(self, operation: str, **arguments: Any) -> Any:
        return perform(self.operations, operation, **arguments)

    def queue(self, name: str) -> None:
        self.directory.declare_queue(self.directory.vhost("/"), name, Declaration(durable=True), Session("test"))


GIVEN: dict[str, Any] = {"vhost": "/", "name": "p", "pattern": "^q", "definition": {"max-length": 3}}


@pytest.mark.parametrize(("kind", "apply_to"), [("policy", "all"), ("operator_policy", "queues")])
def test_policies_are_set_listed_and_cleared(kind: str, apply_to: str) -> None:
    bench = Bench()
    assert bench.do(f"{kind}.set", **GIVEN)
    assert not bench.do(f"{kind}.set", **GIVEN, priority=3)
    row = {**GIVEN, "priority": 3, "apply_to": apply_to}
    assert bench.do(f"{kind}.list") == bench.do(f"{kind}.list", vhost="/") == [row]
    bench.do(f"{kind}.clear", vhost="/", name="p")
    assert bench.do(f"{kind}.list") == []
    with pytest.raises(BrokerError, match="no such vhost"):
        bench.do(f"{kind}.list", vhost="no")
    with pytest.raises(BrokerError, match="policy 'p' in vhost '/'"):
        bench.do(f"{kind}.clear", vhost="/", name="p")


@pytest.mark.rule("FAIR-1")
def test_a_change_is_answered_when_all_queues_follow_it() -> None:
    bench = Bench()
    for number in range(1500):
        bench.queue(f"q{number}")
    bench.do("policy.set", **GIVEN)
    assert {queue.options.max_length for queue in bench.directory.vhost("/").queues.values()} == {3}
    bench.do("policy.clear", vhost="/", name="p")
    assert {queue.options.max_length for queue in bench.directory.vhost("/").queues.values()} == {None}


def test_lists_show_the_policies_in_effect() -> None:
    bench = Bench()
    bench.queue("q")
    bench.do("policy.set", **GIVEN)
    bench.do("operator_policy.set", vhost="/", name="o", pattern="", definition={"max-length": 2, "expires": 9})
    bench.do("policy.set", vhost="/", name="x", pattern="topic", definition={"alternate-exchange": "amq.fanout"})
    (queue,) = bench.do("queue.list")
    assert (queue["policy"], queue["operator_policy"]) == ("p", "o")
    assert queue["effective_policy_definition"] == {"max-length": 2, "expires": 9}
    shown = {row["name"]: row["effective_policy_definition"] for row in bench.do("exchange.list")}
    assert shown["amq.topic"] == {"alternate-exchange": "amq.fanout"}
    assert shown[""] == shown["amq.direct"] == {}


def test_global_parameters_are_set_listed_and_cleared() -> None:
    bench = Bench()
    assert bench.do("parameter.set", name="a", value={"b": [1]})
    assert not bench.do("parameter.set", name="a", value=None)
    assert bench.do("parameter.list") == [{"name": "a", "value": None}]
    bench.do("parameter.clear", name="a")
    assert bench.do("parameter.list") == []


def test_values_that_are_nested_too_deeply_and_long_names_are_refused() -> None:
    bench = Bench()
    deep: list[Any] = []
    for _ in range(40):
        deep = [deep]
    with pytest.raises(OperationRefused, match="nested"):
        bench.do("parameter.set", name="a", value=deep)
    with pytest.raises(BrokerError, match="255 bytes"):
        bench.do("policy.set", **GIVEN | {"name": "x" * 256})

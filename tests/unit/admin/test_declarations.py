"""Operations that declare and delete queues and exchanges."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.authority import Authority
from escrowmq.admin.bindings import BindingAdmin
from escrowmq.admin.declarations import DeclarationAdmin
from escrowmq.admin.pieces import Pieces
from escrowmq.core.conditions import BrokerError, Condition
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


class Bench:
    """A broker with a message in the queue `q`, and the user `u`, who may use only what is named `mine`."""

    def __init__(self) -> None:
        self.server, self.client = pair()
        self.client.declare(1, "q")
        self.client.publish(1, "q", b"message")
        self.broker = self.server.broker
        self.vhost = self.broker.directory.vhost("/")
        self.broker.access.add_user("u", "hash", ("management",))
        self.broker.access.set_permission("u", "/", "mine", "mine", "mine")
        self.operations = DeclarationAdmin(FakeProcess(self.server), Authority(self.broker), Pieces()).operations

    def do(self, operation: str, name: str, **arguments: Any) -> Any:
        return perform(self.operations, operation, vhost="/", name=name, **arguments)

    def refusal(self, operation: str, name: str, **arguments: Any) -> Condition:
        with pytest.raises(BrokerError) as refused:
            self.do(operation, name, **arguments)
        return refused.value.condition


def test_a_queue_is_declared_once() -> None:
    bench = Bench()
    given = {"durable": True, "arguments": {"x-max-length": 5}, "by": "u"}
    assert bench.do("queue.declare", "mine", **given) is True
    assert bench.do("queue.declare", "mine", **given) is False
    assert bench.vhost.queues["mine"].options.max_length == 5
    assert bench.refusal("queue.declare", "mine", durable=False) is Condition.PRECONDITION_FAILED


def test_an_exchange_is_declared_once_and_a_topic_gets_its_streams() -> None:
    bench = Bench()
    assert bench.do("exchange.declare", "mine", type="fanout", by="u") is True
    assert bench.do("exchange.declare", "mine", type="fanout", by="u") is False
    assert bench.refusal("exchange.declare", "mine", type="topic") is Condition.PRECONDITION_FAILED
    assert bench.refusal("exchange.declare", "amq.mine") is Condition.ACCESS_REFUSED
    before = len(bench.vhost.queues)
    assert bench.do("exchange.declare", "t", type="x-partitioned", arguments={"x-partitions": 3})
    assert len(bench.vhost.queues) == before + 3


def test_a_queue_is_purged_and_deleted() -> None:
    bench = Bench()
    assert bench.refusal("queue.delete", "q", if_empty=True) is Condition.PRECONDITION_FAILED
    assert bench.do("queue.purge", "q") == 1
    assert bench.do("queue.delete", "q", if_empty=True) == 0
    assert bench.refusal("queue.delete", "q") is Condition.NOT_FOUND


def test_an_exchange_is_deleted() -> None:
    bench = Bench()
    bench.do("exchange.declare", "x")
    bench.do("exchange.delete", "x", if_unused=True)
    assert bench.refusal("exchange.delete", "x") is Condition.NOT_FOUND
    assert bench.refusal("exchange.delete", "") is Condition.ACCESS_REFUSED
    assert bench.refusal("exchange.delete", "amq.topic") is Condition.ACCESS_REFUSED


def test_the_queue_of_a_connection_is_locked_and_a_stream_is_not_purged() -> None:
    bench = Bench()
    bench.client.declare(1, "own", exclusive=True, durable=False)
    for operation in ("queue.delete", "queue.purge"):
        assert bench.refusal(operation, "own") is Condition.RESOURCE_LOCKED
    bench.do("queue.declare", "s", arguments={"x-queue-type": "stream"})
    assert bench.refusal("queue.purge", "s") is Condition.NOT_IMPLEMENTED


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize(
    ("operation", "given"),
    [
        ("queue.declare", {}),
        ("queue.delete", {}),
        ("queue.purge", {}),
        ("exchange.declare", {}),
        ("exchange.delete", {}),
    ],
)
def test_the_user_who_asks_needs_permissions(operation: str, given: dict[str, Any]) -> None:
    assert Bench().refusal(operation, "q", by="u", **given) is Condition.ACCESS_REFUSED


@pytest.mark.rule("SEC-3")
def test_further_exchanges_need_permissions_too() -> None:
    dead, alternate = {"x-dead-letter-exchange": "amq.topic"}, {"alternate-exchange": "amq.topic"}
    assert Bench().refusal("queue.declare", "mine", by="u", arguments=dead) is Condition.ACCESS_REFUSED
    assert Bench().refusal("exchange.declare", "mine", by="u", arguments=alternate) is Condition.ACCESS_REFUSED


def test_a_queue_without_a_name_is_refused() -> None:
    assert Bench().refusal("queue.declare", "") is Condition.INVALID_ARGUMENT


@pytest.mark.rule("FAIR-3")
@pytest.mark.parametrize(
    ("operation", "names"),
    [
        ("queue.declare", {"name": "mine"}),
        ("exchange.declare", {"name": "mine"}),
        ("binding.add", {"source": "amq.fanout", "destination": "q"}),
    ],
)
def test_arguments_have_the_size_limit_of_clients(operation: str, names: dict[str, str]) -> None:
    bench = Bench()
    process = FakeProcess(bench.server)
    operations = {**bench.operations, **BindingAdmin(process, Authority(bench.broker)).operations}
    with pytest.raises(BrokerError, match="the arguments take 20011 bytes, which is more than 16384 bytes") as refused:
        perform(operations, operation, vhost="/", arguments={"x": "y" * 19_999}, **names)
    assert refused.value.condition is Condition.PRECONDITION_FAILED
    perform(operations, operation, vhost="/", arguments={"x": "y" * 16_000}, **names)

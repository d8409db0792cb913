"""Operations on bindings, and the names of bindings."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.authority import Authority
from escrowmq.admin.bindings import BindingAdmin, properties_key
from escrowmq.admin.operation import NothingFound
from escrowmq.core.conditions import BrokerError, Condition
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


class Bench:
    """A broker with the queue `q` and the user `u`, who may use only what is named `mine`."""

    def __init__(self) -> None:
        self.server, client = pair()
        client.declare(1, "q")
        self.broker = self.server.broker
        self.broker.access.add_user("u", "hash", ("management",))
        self.broker.access.set_permission("u", "/", "mine", "mine", "mine")
        process = FakeProcess(self.server)
        self.operations = BindingAdmin(process, Authority(self.broker)).operations

    def do(self, operation: str, source: str = "amq.topic", destination: str = "q", **arguments: Any) -> Any:
        return perform(self.operations, operation, vhost="/", source=source, destination=destination, **arguments)

    def keys(self, *, to_exchange: bool = False) -> list[str]:
        vhost = self.broker.directory.vhost("/")
        name = "amq.fanout" if to_exchange else "q"
        return [binding.routing_key for binding in vhost.bindings_to(name, to_exchange=to_exchange)]


def test_a_binding_is_named_by_key_and_arguments() -> None:
    assert properties_key("k", {}) == "k"
    assert properties_key("", {}) == "~"
    assert properties_key("a.#", {}) == "a.%23"
    assert properties_key("~", {}) == "%7E"
    assert properties_key("a_b c", {}) == "a%5Fb+c"
    assert properties_key("", {"a": 1}).startswith("~")
    assert properties_key("k", {"a": 1, "b": 2}) == properties_key("k", {"b": 2, "a": 1})
    assert properties_key("k", {"a": 1}) not in {properties_key("k", {"a": 2}), properties_key("l", {"a": 1}), "k"}


@pytest.mark.parametrize("arguments", [{}, {"a": 1}])
def test_a_binding_is_made_and_removed_by_its_name(arguments: dict[str, Any]) -> None:
    bench = Bench()
    bench.do("binding.add", routing_key="other")
    key = bench.do("binding.add", routing_key="a.#", arguments=arguments)
    assert key == bench.do("binding.add", routing_key="a.#", arguments=arguments)
    assert bench.keys() == ["other", "a.#"]
    bench.do("binding.delete", properties_key=key)
    assert bench.keys() == ["other"]
    with pytest.raises(NothingFound):
        bench.do("binding.delete", properties_key=key)


def test_exchanges_are_bound_to_each_other() -> None:
    bench = Bench()
    key = bench.do("binding.add", destination="amq.fanout", destination_type="exchange", routing_key="k")
    assert bench.keys(to_exchange=True) == ["k"]
    bench.do("binding.delete", destination="amq.fanout", destination_type="exchange", properties_key=key)
    assert bench.keys(to_exchange=True) == []


@pytest.mark.rule("SEC-1")
@pytest.mark.parametrize("operation", ["binding.add", "binding.delete"])
@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_the_user_who_asks_needs_permissions(operation: str, kind: str) -> None:
    bench = Bench()
    given = {"properties_key": "~"} if operation == "binding.delete" else {}
    destination = "q" if kind == "queue" else "amq.fanout"
    with pytest.raises(BrokerError) as refusal:
        bench.do(operation, destination=destination, destination_type=kind, by="u", **given)
    assert refusal.value.condition is Condition.ACCESS_REFUSED


@pytest.mark.parametrize(
    ("ends", "condition"),
    [
        ({"source": "none"}, Condition.NOT_FOUND),
        ({"destination": "none"}, Condition.NOT_FOUND),
        ({"source": ""}, Condition.ACCESS_REFUSED),
        ({"destination_type": "stream"}, Condition.INVALID_ARGUMENT),
    ],
)
def test_ends_that_cannot_be_bound_are_refused(ends: dict[str, str], condition: Condition) -> None:
    for operation, given in (("binding.add", {}), ("binding.delete", {"properties_key": "~"})):
        with pytest.raises(BrokerError) as refusal:
            Bench().do(operation, **ends, **given)
        assert refusal.value.condition is condition

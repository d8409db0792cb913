"""Lists of exchanges, bindings and consumers."""

from __future__ import annotations

import pytest

from escrowmq.admin.service import AdminService
from escrowmq.core.conditions import BrokerError
from escrowmq.wire.amqp091 import spec
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


def test_exchanges_bindings_and_consumers_are_listed() -> None:
    server, client = pair()
    client.declare(1, "q")
    client.send(1, spec.QueueBind("q", "amq.direct", "k"))
    client.send(1, spec.BasicConsume("q", "t", no_ack=True, no_wait=True))
    operations = AdminService(FakeProcess(server)).operations
    assert {"", "amq.topic"} <= {row["name"] for row in perform(operations, "exchange.list", vhost="/")}
    bindings = perform(operations, "binding.list")
    assert [(row["source"], row["destination"], row["routing_key"]) for row in bindings] == [
        ("", "q", "q"),
        ("amq.direct", "q", "k"),
    ]
    (consumer,) = perform(operations, "consumer.list")
    assert (consumer["queue"], consumer["tag"], consumer["auto_settle"]) == ("q", "t", True)
    peer = str(client.port.endpoint.describe()["peer"])
    assert (consumer["peer"], consumer["channel"], consumer["user"]) == (peer, 1, "guest")


def test_the_prefetch_limit_of_a_consumer_is_its_own_or_else_that_of_its_channel() -> None:
    server, client = pair()
    client.declare(1, "q")
    client.publish(1, "q", b"1", b"2")
    client.send(1, spec.BasicQos(0, 5, True), spec.BasicConsume("q", "shared", no_wait=True))
    client.send(1, spec.BasicQos(0, 7, False), spec.BasicConsume("q", "own", no_wait=True))
    client.send(1, spec.BasicConsume("q", "settled at once", no_ack=True, no_wait=True))
    rows = perform(AdminService(FakeProcess(server)).operations, "consumer.list")
    assert {row["tag"]: row["prefetch"] for row in rows} == {"shared": 5, "own": 7, "settled at once": 0}


@pytest.mark.parametrize("operation", ["exchange.list", "binding.list", "consumer.list"])
def test_an_unknown_virtual_host_is_refused(operation: str) -> None:
    with pytest.raises(BrokerError, match="no such vhost"):
        perform(AdminService(FakeProcess(pair()[0])).operations, operation, vhost="w")

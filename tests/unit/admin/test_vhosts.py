"""Operations on virtual hosts."""

from __future__ import annotations

import pytest

from escrowmq.admin.connections import ConnectionAdmin
from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.vhosts import VhostAdmin
from escrowmq.core.conditions import BrokerError
from tests.unit.admin.processes import CountingPieces, FakeConnection, FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


class Bench:
    """A broker with the virtual host `/`; pieces of ten steps."""

    def __init__(self) -> None:
        self.server, self.client = pair()
        self.process = FakeProcess(self.server)
        self.pieces = CountingPieces(10)
        self.operations = VhostAdmin(self.process, ConnectionAdmin(self.process, self.pieces), self.pieces).operations
        self.vhosts = self.server.broker.directory.vhosts


def test_a_virtual_host_is_added_and_listed() -> None:
    bench = Bench()
    perform(bench.operations, "vhost.add", name="orders")
    bench.client.declare(1, "q")
    assert perform(bench.operations, "vhost.list") == [{"name": "/", "queues": 1}, {"name": "orders", "queues": 0}]
    with pytest.raises(OperationRefused, match="vhost 'orders' already exists"):
        perform(bench.operations, "vhost.add", name="orders")


def test_the_queues_of_a_virtual_host_are_deleted_in_pieces_before_it() -> None:
    bench = Bench()
    for number in range(40):
        bench.client.declare(1, f"q{number}")
    perform(bench.operations, "vhost.delete", name="/")
    assert bench.vhosts == {}
    assert bench.pieces.count == 6, "one for no connections, four with ten queues each, and one for the end"
    assert bench.process.turns == 40


def test_connections_of_a_deleted_virtual_host_are_closed_also_those_that_come_meanwhile() -> None:
    bench = Bench()
    perform(bench.operations, "vhost.add", name="orders")
    here, elsewhere, late = FakeConnection("a:1"), FakeConnection("b:2", vhost="orders"), FakeConnection("c:3")
    bench.client.declare(1, "q")
    bench.process.connections = {here: None, elsewhere: None}
    bench.process.begin = lambda: bench.process.connections.setdefault(late)  # type: ignore[method-assign]
    perform(bench.operations, "vhost.delete", name="/")
    assert (set(here.reasons), elsewhere.reasons, late.reasons) == (
        {"vhost '/' was deleted"},
        [],
        ["vhost '/' was deleted"],
    )


def test_an_unknown_virtual_host_is_refused() -> None:
    with pytest.raises(BrokerError, match="no such vhost 'w'"):
        perform(Bench().operations, "vhost.delete", name="w")

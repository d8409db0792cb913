"""Operations on permissions and topic permissions."""

from __future__ import annotations

import pytest

from escrowmq.admin.connections import ConnectionAdmin
from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.permissions import MOST_NAMES, PermissionAdmin
from escrowmq.core.conditions import BrokerError
from tests.unit.admin.processes import CountingPieces, FakeConnection, FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


class Bench:
    """A broker with the users `guest` and `bob`."""

    def __init__(self) -> None:
        self.process = process = FakeProcess(pair()[0])
        process.broker.access.add_user("bob", "")
        self.connections = [FakeConnection("a:1", user="bob"), FakeConnection("b:2", user="guest")]
        process.connections = dict.fromkeys(self.connections)
        self.pieces = CountingPieces(10)
        connections = ConnectionAdmin(process, self.pieces)
        self.operations = PermissionAdmin(process, connections, self.pieces).operations

    def listed(self, operation: str, **filters: str) -> list[tuple[str, ...]]:
        return [tuple(row.values()) for row in perform(self.operations, operation, **filters)]


def test_permissions_are_set_listed_and_cleared() -> None:
    bench = Bench()
    perform(bench.operations, "permission.set", user="bob", vhost="/", configure="^a", write="^b", read="^c")
    assert bench.listed("permission.list", user="bob") == [("bob", "/", "^a", "^b", "^c")]
    assert len(bench.listed("permission.list", vhost="/")) == 2
    perform(bench.operations, "permission.clear", user="bob", vhost="/")
    assert bench.listed("permission.list", user="bob") == []


def test_topic_permissions_are_set_listed_and_cleared() -> None:
    bench = Bench()
    for exchange in ("amq.topic", "t"):
        perform(
            bench.operations, "topic_permission.set", user="bob", vhost="/", exchange=exchange, write="^b", read="^c"
        )
    assert bench.listed("topic_permission.list") == [
        ("bob", "/", "amq.topic", "^b", "^c"),
        ("bob", "/", "t", "^b", "^c"),
    ]
    perform(bench.operations, "topic_permission.clear", user="bob", vhost="/", exchange="t")
    assert bench.listed("topic_permission.list", user="bob", vhost="/") == [("bob", "/", "amq.topic", "^b", "^c")]
    perform(bench.operations, "topic_permission.clear", user="bob", vhost="/")
    assert bench.listed("topic_permission.list") == []


@pytest.mark.parametrize("operation", ["permission.list", "topic_permission.list"])
@pytest.mark.parametrize("filters", [{"user": "nobody"}, {"vhost": "w"}])
def test_a_filter_for_an_unknown_name_is_refused(operation: str, filters: dict[str, str]) -> None:
    with pytest.raises(BrokerError, match="no such"):
        Bench().listed(operation, **filters)


@pytest.mark.rule("SEC-3")
def test_connections_of_the_user_are_told_of_each_change() -> None:
    bench = Bench()
    perform(bench.operations, "permission.set", user="bob", vhost="/", configure="", write="", read="")
    perform(bench.operations, "permission.clear", user="bob", vhost="/")
    assert [connection.checks for connection in bench.connections] == [2, 0]


@pytest.mark.rule("FAIR-1")
def test_the_links_of_a_connection_are_checked_in_pieces() -> None:
    bench = Bench()
    bench.connections[0].links = 35
    perform(bench.operations, "permission.set", user="bob", vhost="/", configure="", write="", read="")
    assert bench.connections[0].checks == 35
    assert bench.pieces.count == 4 + 1


def test_the_check_of_a_connection_ends_with_it() -> None:
    bench = Bench()
    connection = bench.connections[0]
    connection.links = 35
    bench.process.begin = lambda: bench.process.connections.pop(connection, None)  # type: ignore[method-assign]
    perform(bench.operations, "permission.set", user="bob", vhost="/", configure="", write="", read="")
    assert connection.checks <= 1


def test_what_a_user_may_read_is_told_for_many_names() -> None:
    bench = Bench()
    bench.process.broker.access.set_permission("bob", "/", "", "", "^a")
    queues = [["/", "a1"], ["/", "b"], ["w", "a1"]]
    assert perform(bench.operations, "permission.readable", user="bob", queues=queues) == [True, False, False]
    with pytest.raises(OperationRefused, match="limit"):
        perform(bench.operations, "permission.readable", user="bob", queues=[["/", "a"]] * (MOST_NAMES + 1))

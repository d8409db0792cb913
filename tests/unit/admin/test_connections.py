"""The list of connections, and closing some of them, both in pieces."""

from __future__ import annotations

import asyncio

import pytest

from escrowmq.admin.connections import ConnectionAdmin, connection_row
from escrowmq.admin.operation import OperationRefused
from tests.unit.admin.processes import CountingPieces, FakeConnection, FakeProcess, done, perform
from tests.unit.wire.amqp091.clients import pair

CONNECTIONS = 40


class Bench:
    """Forty connections; pieces of ten steps."""

    def __init__(self) -> None:
        self.process = FakeProcess(pair()[0])
        self.connections = [FakeConnection(f"127.0.0.1:{1000 + number}") for number in range(CONNECTIONS)]
        self.process.connections = dict.fromkeys(self.connections)
        self.pieces = CountingPieces(10)
        self.admin = ConnectionAdmin(self.process, self.pieces)


def test_a_connection_is_listed_with_its_figures() -> None:
    bench = Bench()
    bench.connections[0].unsent = 7
    bench.connections[0].held_back_by = ["alarm"]
    bench.connections[0].opened_ms = bench.process.broker.engine.now - 3500
    assert perform(bench.admin.operations, "connection.list")[0] == {
        "user": "guest",
        "vhost": "/",
        "peer": "127.0.0.1:1000",
        "local": "[::1]:5672",
        "opened_ms": bench.connections[0].opened_ms,
        "seconds": 3,
        "unsent_bytes": 7,
        "held_back_by": ["alarm"],
    }


def test_connections_are_listed_in_pieces_and_those_that_have_closed_are_left_out() -> None:
    bench = Bench()

    async def pieces() -> list[int]:
        found = []
        async for piece in (await bench.admin.list_connections()).pieces():
            found.append(len(piece))
            bench.process.connections.pop(bench.connections[-1], None)
        return found

    assert asyncio.run(pieces()) == [10, 10, 10, 9]


def test_changes_of_connections_leave_out_what_has_lists_of_its_own() -> None:
    bench = Bench()
    head, *rows = perform(bench.admin.operations, "connection.changes")
    assert len(rows) == CONNECTIONS
    bench.connections[3].unsent = 7
    bench.connections[4].details = {"links": [{"credit": 1}], "clients": []}
    del bench.process.connections[bench.connections[5]]
    for connection in bench.connections[3:6]:
        bench.process.changed(connection)
    _, gone, changed = perform(bench.admin.operations, "connection.changes", run=head["run"], look=head["look"])
    assert gone == {"gone": [bench.connections[5].ident]}
    assert changed == {"ident": bench.connections[3].ident, "variable": ({"user": "guest", "vhost": "/"}, 7, [])}
    row = perform(bench.admin.operations, "connection.list")[3]
    fixed = next(each["fixed"] for each in rows if each["ident"] == bench.connections[3].ident)
    assert connection_row(fixed, changed["variable"]) | {"seconds": row["seconds"]} == row


def test_one_connection_is_closed_by_its_address() -> None:
    bench = Bench()
    perform(bench.admin.operations, "connection.close", peer="127.0.0.1:1005", reason="maintenance")
    assert [each.reasons for each in bench.connections if each.reasons] == [["maintenance"]]
    assert bench.connections[5].reasons
    with pytest.raises(OperationRefused, match=r"no connection from 127\.0\.0\.1:1"):
        perform(bench.admin.operations, "connection.close", peer="127.0.0.1:1")


def test_many_connections_are_closed_in_pieces_each_in_a_turn() -> None:
    bench = Bench()
    assert done(bench.admin.close_those(lambda connection: connection.user == "guest", "bye")) == CONNECTIONS
    assert all(each.reasons == ["bye"] for each in bench.connections)
    assert bench.process.turns == CONNECTIONS
    assert bench.pieces.count == CONNECTIONS // 10 + 1

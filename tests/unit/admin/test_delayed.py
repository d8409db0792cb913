"""The operators' view of delayed messages."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.admin.contents import MOST
from escrowmq.admin.delayed import DelayedAdmin
from escrowmq.admin.operation import OperationRefused
from escrowmq.admin.pieces import Pieces
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.wire.amqp091.properties import Properties
from tests.unit.admin.processes import FakeProcess, perform
from tests.unit.wire.amqp091.clients import pair


class Bench:
    """A broker whose exchange `later` delays."""

    def __init__(self) -> None:
        self.server, self.client = pair()
        self.directory = self.server.broker.directory
        self.directory.declare_exchange(
            self.directory.vhost("/"),
            "later",
            "x-delayed-message",
            durable=True,
            arguments={"x-delayed-type": "direct"},
        )
        self.admin = DelayedAdmin(FakeProcess(self.server), Pieces())

    def send(self, seconds: int, body: bytes) -> None:
        header = Properties(delivery_mode=2, headers={"x-delay": 1000 * seconds}).encode()
        self.client.publish(1, "k", body, exchange="later", header=header)

    def do(self, operation: str, **arguments: Any) -> Any:
        return perform(self.admin.operations, operation, **arguments)


def test_without_delayed_messages_there_are_no_rows() -> None:
    bench = Bench()
    assert bench.do("delayed.list") == []
    assert bench.do("delayed.peek", vhost="/") == []


def test_those_that_are_due_first_are_shown_first_and_stay() -> None:
    bench = Bench()
    for seconds in (7200, 600, 60):
        bench.send(seconds, b"%d" % seconds)
    now = bench.server.broker.engine.now
    (row,) = bench.do("delayed.list")
    assert (row["vhost"], row["messages"], row["unavailable"]) == ("/", 3, "")
    assert now < row["next_due_ms"] <= now + 60_000
    rows = bench.do("delayed.peek", vhost="/", count=2)
    assert [(row["body"], row["due_ms"] - now) for row in rows] == [("60", 60_000), ("600", 600_000)]
    assert bench.do("delayed.peek", vhost="/", count=2) == rows
    assert (rows[0]["exchange"], rows[0]["routing_key"]) == ("later", "k")
    assert bench.do("delayed.list")[0]["messages"] == 3


@pytest.mark.parametrize("count", [0, MOST + 1])
def test_the_number_is_bounded(count: int) -> None:
    with pytest.raises(OperationRefused, match=f"1 to {MOST}"):
        Bench().do("delayed.peek", vhost="/", count=count)


def test_messages_that_cannot_be_read_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.send(60, b"x")

    def fails(*_: object) -> None:
        raise LogUnreadable("the disk is broken")

    monkeypatch.setattr(type(bench.server.broker.engine.pager), "load", fails)
    with pytest.raises(OperationRefused, match="delayed messages of vhost '/' cannot be read"):
        bench.do("delayed.peek", vhost="/")

"""Bulk reading from the real process, which is killed at every step (PIPE-1, PIPE-3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import escrowmq.client
from escrowmq.admin.socket.client import ask
from escrowmq.client.connection import Connection
from escrowmq.client.escrow import Escrow, HoldState, Settle
from escrowmq.core.branches.xid import Xid
from escrowmq.wire.amqp091 import spec
from tests.broker import BrokerProcess, running_broker

GROUP = "etl"
PERSISTENT = escrowmq.client.BasicProperties(delivery_mode=2)
pytestmark = [pytest.mark.rule("PIPE-1"), pytest.mark.rule("PIPE-3")]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path) as broker:
        yield broker


def connect(broker: BrokerProcess) -> Connection:
    return escrowmq.client.connect(broker.url)


def fill(connection: Connection, count: int) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.queue_declare("out", durable=True)
    channel.confirm_delivery()
    channel.publish_many("", "q", [b"%d" % i for i in range(count)], PERSISTENT)
    channel.close()


def again(broker: BrokerProcess) -> Connection:
    """Kill and restart the broker."""
    broker.kill()
    broker.start()
    return connect(broker)


def bodies(connection: Connection, first: int, end: int) -> list[bytes]:
    blocks = Escrow(connection).blocks("q", GROUP, first, end)
    return [message.body for block in blocks for message in block.bulk.messages()]


def begin(connection: Connection, *methods: object) -> None:
    """Send a request without waiting for the answer."""
    channel = connection.channel()
    for method in methods:
        channel.begin(method)  # type: ignore[arg-type]


def counts(broker: BrokerProcess) -> tuple[int, int]:
    """Return the numbers of ready and of reserved messages."""
    (row,) = [row for row in ask(broker.data_dir, "queue.list") if row["name"] == "q"]
    return row["ready"], row["held"]


def test_answered_requests_are_in_effect_after_a_kill(broker: BrokerProcess) -> None:
    connection = connect(broker)
    fill(connection, 10)
    assert Escrow(connection).hold("q", GROUP, 6) == HoldState(1, 7, 6, 1)
    connection = again(broker)
    assert bodies(connection, 1, 7) == [b"%d" % i for i in range(6)]
    assert Escrow(connection).hold("q", GROUP, until=7) == HoldState(1, 7, 0, 1)
    assert counts(broker) == (4, 6)
    Escrow(connection).settle(Settle("q", GROUP, 4))
    connection = again(broker)
    assert Escrow(connection).hold("q", GROUP) == HoldState(4, 7, 0, 4)
    assert bodies(connection, 4, 7) == [b"3", b"4", b"5"]
    assert Escrow(connection).release("q", GROUP) == 3
    connection = again(broker)
    assert counts(broker) == (7, 0)
    assert Escrow(connection).hold("q", GROUP, 1) == HoldState(7, 8, 1, 4)
    assert bodies(connection, 7, 8) == [b"3"]
    connection.close()


@pytest.mark.parametrize("round_", range(3))
def test_an_unanswered_request_took_effect_as_a_whole_or_not_at_all(broker: BrokerProcess, round_: int) -> None:
    connection = connect(broker)
    fill(connection, 10)
    begin(connection, spec.EscrowHold("q", GROUP, 6))
    connection = again(broker)
    state = Escrow(connection).hold("q", GROUP, until=7)
    assert (state.first, state.end, state.settled) == (1, 7, 1)
    assert bodies(connection, 1, 7) == [b"%d" % i for i in range(6)]
    begin(connection, spec.EscrowSettle("q", GROUP, 4))
    connection = again(broker)
    state = Escrow(connection).hold("q", GROUP)
    assert state.first == state.settled in (1, 4)
    assert bodies(connection, state.first, 7) == [b"%d" % i for i in range(state.first - 1, 6)]
    begin(connection, spec.EscrowRelease("q", GROUP))
    connection = again(broker)
    ready, held = counts(broker)
    assert ready + held == 11 - state.first
    assert held in (0, 7 - state.first)
    connection.close()


def test_a_prepared_settlement_waits_for_its_decision(broker: BrokerProcess) -> None:
    connection = connect(broker)
    fill(connection, 6)
    escrow = Escrow(connection)
    escrow.hold("q", GROUP, 6)
    winner, loser = Xid(1, b"query:0", b"0"), Xid(1, b"query:0", b"0.lost")
    for xid in (winner, loser):
        assert escrow.enlist(xid, [Settle("q", GROUP, 7)], 60)
        channel = escrow.start(xid, 60, join=True)
        channel.basic_publish("", "out", b"sum", PERSISTENT)
        escrow.end(xid)
        assert escrow.prepare(xid)
    connection = again(broker)
    escrow = Escrow(connection)
    assert escrow.hold("q", GROUP) == HoldState(1, 7, 0, 1)
    with pytest.raises(escrowmq.client.ResourceLocked):
        escrow.release("q", GROUP)
    escrow.decide(1, b"query:0", [b"0"], "query", 0)
    connection = again(broker)
    escrow = Escrow(connection)
    assert escrow.progress("query") == 0
    assert escrow.hold("q", GROUP) == HoldState(7, 7, 0, 7)
    assert counts(broker) == (0, 0)
    assert connection.channel().queue_declare("out", passive=True).method.message_count == 1
    escrow.decide(1, b"query:0", [b"0"], "query", 0)
    connection.close()


def test_an_operator_sees_and_releases_it(broker: BrokerProcess) -> None:
    connection = connect(broker)
    fill(connection, 3)
    Escrow(connection).hold("q", GROUP, 2)
    (row,) = ask(broker.data_dir, "hold.list")
    assert (row["queue"], row["group"], row["held"]) == ("q", GROUP, 2)
    assert ask(broker.data_dir, "hold.release", vhost="/", queue="q", group=GROUP) == 2
    assert counts(broker) == (3, 0)
    connection.close()

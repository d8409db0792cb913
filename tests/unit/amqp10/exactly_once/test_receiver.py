"""Queue to table: every message is processed once, wherever the connection or the process ends."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.amqp10 import Backoff, ConnectionLost, DeliveryLost, ExactlyOnceReceiver, LinkStolen, Message
from tests.harness.amqp10_broker import Cut, ResumingBroker

FAST = Backoff(0.001, 0.01)
WANTED = list(range(10))


@pytest.fixture
def broker() -> Iterator[ResumingBroker]:
    broker = ResumingBroker()
    broker.queue("q").extend(Message(number).encode() for number in WANTED)
    yield broker
    broker.close()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("CREATE TABLE done (id INTEGER)")
    connection.commit()
    yield connection
    connection.close()


def fails() -> Iterator[tuple[int]]:
    """Rows of which the second cannot be computed."""
    yield (99,)
    raise ArithmeticError("99")


def done(table: sqlite3.Connection) -> list[int]:
    return sorted(number for (number,) in table.execute("SELECT id FROM done"))


def consume(receiver: ExactlyOnceReceiver, table: sqlite3.Connection) -> None:
    """Process messages, two at a time, until all are in the table."""
    while len(set(done(table))) < len(WANTED):
        deliveries = receiver.receive_many(2, timeout=5)
        with receiver.process(*deliveries) as connection:
            connection.executemany("INSERT INTO done VALUES (?)", [(delivery.body,) for delivery in deliveries])


def test_a_failed_processing_returns_the_message(
    broker: ResumingBroker, table: sqlite3.Connection, tmp_path: Path
) -> None:
    with ExactlyOnceReceiver(broker.url, "q", name="in", database=tmp_path / "x.db", credit=1) as receiver:
        delivery = receiver.receive()
        with pytest.raises(ArithmeticError, match="99"), receiver.process(delivery) as connection:
            connection.executemany("INSERT INTO done VALUES (?)", fails())
        consume(receiver, table)
    assert done(table) == WANTED


def test_the_record_may_be_in_a_transaction_of_the_users_connection(
    broker: ResumingBroker, table: sqlite3.Connection, tmp_path: Path
) -> None:
    with ExactlyOnceReceiver(broker.url, "q", name="in", database=tmp_path / "x.db", credit=1) as receiver:
        delivery = receiver.receive()
        table.execute("INSERT INTO done VALUES (?)", (delivery.body,))
        receiver.record([delivery], table)
        table.commit()
        receiver.confirm([delivery])
        consume(receiver, table)
    assert done(table) == WANTED


@pytest.mark.rule("SET-3")
@pytest.mark.rule("SET-11")
@pytest.mark.parametrize("reconnects", [True, False], ids=["same process", "next process"])
@pytest.mark.parametrize("place", range(40))
def test_a_cut_at_any_frame_neither_loses_nor_doubles(
    broker: ResumingBroker, table: sqlite3.Connection, tmp_path: Path, place: int, reconnects: bool
) -> None:
    frames = 0

    def on_frame(direction: str, performative: object) -> None:
        nonlocal frames
        frames += 1
        if frames == place + 4:
            raise Cut

    broker.on_frame = on_frame

    def attempt() -> bool:
        try:
            again = FAST if reconnects else False
            path = tmp_path / "x.db"
            with ExactlyOnceReceiver(broker.url, "q", name="in", database=path, credit=3, reconnect=again) as receiver:
                consume(receiver, table)
        except (ConnectionLost, DeliveryLost):
            assert not reconnects, "the receiver must reconnect by itself"
            return False
        return True

    while not attempt():
        pass
    broker.on_frame = lambda *_: None
    assert done(table) == WANTED
    receiver = ExactlyOnceReceiver(broker.url, "q", name="in", database=tmp_path / "x.db")
    assert receiver.receive_many(1, timeout=0.05) == []
    receiver.close()
    assert not any(kept.given for kept in broker.kept.values())
    assert table.execute("SELECT count(*) FROM escrowmq_inbox").fetchone() == (0,)


def test_an_earlier_run_cannot_commit_any_more(
    broker: ResumingBroker, table: sqlite3.Connection, tmp_path: Path
) -> None:
    first = ExactlyOnceReceiver(broker.url, "q", name="in", database=tmp_path / "x.db", credit=1)
    delivery = first.receive()
    second = ExactlyOnceReceiver(broker.url, "q", name="in", database=tmp_path / "x.db", credit=1)
    with pytest.raises(LinkStolen), first.process(delivery) as connection:
        connection.execute("INSERT INTO done VALUES (0)")
    first.connection.abort()
    consume(second, table)
    second.close()
    assert done(table) == WANTED

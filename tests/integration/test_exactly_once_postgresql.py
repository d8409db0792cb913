"""Exactly once with the state of the links in PostgreSQL, whose driver has another parameter style than SQLite."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from escrowmq.amqp10 import ExactlyOnceReceiver, ExactlyOnceSender, LinkStolen, Message
from tests.harness.amqp10_broker import ResumingBroker
from tests.xa.postgres import PostgreSQL, needs_postgresql

pytestmark = needs_postgresql


@pytest.fixture(scope="module")
def dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with PostgreSQL(tmp_path_factory.mktemp("postgresql")) as server:
        yield server.url("shop")


@pytest.fixture
def broker() -> Iterator[ResumingBroker]:
    broker = ResumingBroker()
    yield broker
    broker.close()


def test_table_to_queue_to_table(broker: ResumingBroker, dsn: str) -> None:
    with psycopg.connect(dsn) as user:
        user.execute("CREATE TABLE orders (id int); CREATE TABLE shipments (id int)")
    with (
        psycopg.connect(dsn) as user,
        ExactlyOnceSender(broker.url, "q", name="out", database=lambda: psycopg.connect(dsn)) as sender,
    ):
        for number in range(10):
            user.execute("INSERT INTO orders VALUES (%s)", (number,))
            sender.put(Message(number), user)
        user.commit()
        assert sender.flush() == 10
        sender.put(Message(99), user)
        user.rollback()
        assert sender.flush() == 0
    with ExactlyOnceReceiver(broker.url, "q", name="in", database=lambda: psycopg.connect(dsn)) as receiver:
        deliveries = [receiver.receive() for _ in range(10)]
        assert [delivery.body for delivery in deliveries] == list(range(10))
        with receiver.process(*deliveries) as connection:
            for delivery in deliveries:
                connection.execute("INSERT INTO shipments VALUES (%s)", (delivery.body,))
        assert receiver.receive_many(1, timeout=0.2) == []
    with psycopg.connect(dsn) as user:
        assert user.execute("SELECT count(*) FROM shipments").fetchone() == (10,)
        assert user.execute("SELECT count(*) FROM escrowmq_inbox").fetchone() == (0,)
        assert user.execute("SELECT count(*) FROM escrowmq_outbox").fetchone() == (0,)


def test_an_earlier_run_is_fenced(broker: ResumingBroker, dsn: str) -> None:
    first = ExactlyOnceSender(broker.url, "q", name="fenced", database=lambda: psycopg.connect(dsn))
    with ExactlyOnceSender(broker.url, "q", name="fenced", database=lambda: psycopg.connect(dsn)) as second:
        second.put(Message("x"))
        with pytest.raises(LinkStolen):
            first.flush()
        assert second.flush() == 1
    first.close()

"""The transaction manager with real participants: PostgreSQL and EscrowMQ brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from escrowmq.client import Connection, connect
from escrowmq.xa import BranchState, HeuristicError, RolledBack, TransactionManager
from tests.broker import BrokerProcess, running_broker
from tests.xa.postgres import PostgreSQL, needs_postgresql

pytestmark = needs_postgresql


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgreSQL]:
    with PostgreSQL(tmp_path_factory.mktemp("postgresql")) as server:
        for database in ("bank", "shop"):
            with server.connect(database) as connection:
                connection.execute("CREATE TABLE t (v int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED)")
        yield server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def manager(server: PostgreSQL, broker: BrokerProcess, tmp_path: Path) -> Iterator[TransactionManager]:
    for database in ("bank", "shop"):
        with server.connect(database) as connection:
            connection.execute("TRUNCATE t")
    with connect(broker.url) as queue, queue.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.queue_purge("q")
    participants: dict[str, Callable[[], Any]] = {
        "bank": lambda: server.connect("bank"),
        "shop": lambda: server.connect("shop"),
        "queue": lambda: connect(broker.url),
    }
    with TransactionManager("test", tmp_path / "decisions.db", participants) as manager:
        yield manager


def rows(server: PostgreSQL, database: str) -> list[int]:
    with server.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone() == (0,)
        return [v for (v,) in connection.execute("SELECT v FROM t ORDER BY v").fetchall()]


def count(broker: BrokerProcess) -> int:
    with connect(broker.url) as connection, connection.channel() as channel:
        assert connection.tpc_recover() == []
        return channel.message_count("q")


def insert(connection: psycopg.Connection[Any], value: int) -> None:
    connection.execute("INSERT INTO t VALUES (%s)", (value,))


def publish(connection: Connection, body: bytes = b"x") -> None:
    with connection.channel() as channel:
        channel.basic_publish("", "q", body)


def test_two_databases_of_one_server(server: PostgreSQL, manager: TransactionManager) -> None:
    """Each database lists the other's branches as in doubt too; recovery completes each in its own database."""
    with manager.transaction("bank", "shop") as tx:
        insert(tx["bank"], 1)
        insert(tx["shop"], 1)
        tx.prepare()
        assert manager.recover().complete, "recovery does not touch a transaction in progress"
    assert rows(server, "bank") == rows(server, "shop") == [1]


def test_two_databases_and_a_broker(server: PostgreSQL, broker: BrokerProcess, manager: TransactionManager) -> None:
    for value in range(3):
        with manager.transaction("bank", "shop", "queue") as tx:
            insert(tx["bank"], value)
            insert(tx["shop"], value)
            publish(tx["queue"])
            if value == 1:
                tx.rollback()
    assert rows(server, "bank") == rows(server, "shop") == [0, 2]
    assert count(broker) == 2


def swallow(tx: Any) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        tx["bank"].execute("SELECT * FROM nothing")


def test_a_failed_statement_that_was_swallowed_is_no_commit(
    server: PostgreSQL, broker: BrokerProcess, manager: TransactionManager
) -> None:
    """In this case PostgreSQL answers PREPARE TRANSACTION with a rollback, which psycopg treats as success."""
    tx = manager.transaction("bank", "queue")
    insert(tx["bank"], 1)
    publish(tx["queue"])
    swallow(tx)
    with pytest.raises(RolledBack, match="bank did not prepare: Refused: a statement has failed in this transaction"):
        tx.commit()
    alone = manager.transaction("bank")
    insert(alone["bank"], 1)
    swallow(alone)
    with pytest.raises(RolledBack, match="bank did not commit"):
        alone.commit()
    assert rows(server, "bank") == []
    assert count(broker) == 0


@pytest.mark.parametrize("names", [("bank",), ("bank", "queue")])
def test_a_constraint_that_is_checked_at_the_end(
    server: PostgreSQL, broker: BrokerProcess, manager: TransactionManager, names: tuple[str, ...]
) -> None:
    tx = manager.transaction(*names)
    insert(tx["bank"], 1)
    insert(tx["bank"], 1)
    if "queue" in names:
        publish(tx["queue"])
    with pytest.raises(RolledBack, match=r"duplicate key.*bank: rolled back") as caught:
        tx.commit()
    assert isinstance(caught.value.__cause__, psycopg.errors.UniqueViolation)
    assert rows(server, "bank") == []
    assert count(broker) == 0


def test_without_prepared_transactions(server: PostgreSQL, tmp_path: Path) -> None:
    with PostgreSQL(tmp_path, max_prepared_transactions=0) as other:
        participants = {"one": lambda: other.connect("bank"), "two": lambda: server.connect("bank")}
        with TransactionManager("test", tmp_path / "log.db", participants) as manager:
            tx = manager.transaction("one", "two")
            with pytest.raises(RolledBack, match=r"prepared transactions are disabled|max_prepared_transactions"):
                tx.commit()


def test_a_read_only_vote_of_the_broker(server: PostgreSQL, broker: BrokerProcess, manager: TransactionManager) -> None:
    for value in range(2):
        with manager.transaction("bank", "queue") as tx:
            insert(tx["bank"], value)
        assert tx.states == {"bank": BranchState.COMMITTED, "queue": BranchState.READ_ONLY}
    with manager.transaction("bank", "queue") as tx:
        insert(tx["bank"], 2)
        publish(tx["queue"])
    assert rows(server, "bank") == [0, 1, 2]
    assert count(broker) == 1


def test_the_broker_rolls_back_after_the_timeout(
    server: PostgreSQL, broker: BrokerProcess, manager: TransactionManager
) -> None:
    tx = manager.transaction("bank", "queue", timeout=4)
    insert(tx["bank"], 1)
    publish(tx["queue"])
    assert tx["queue"].tpc_recover() == []
    tx["queue"].sleep(4.2)
    with pytest.raises(RolledBack):
        tx.commit()
    assert rows(server, "bank") == []
    assert count(broker) == 0


@pytest.mark.rule("DTX-11")
def test_a_branch_rolled_back_by_hand_in_postgresql(
    server: PostgreSQL, broker: BrokerProcess, manager: TransactionManager
) -> None:
    tx = manager.transaction("bank", "queue")
    insert(tx["bank"], 1)
    publish(tx["queue"])
    tx.prepare()
    with server.connect("bank", autocommit=True) as hand:
        row = hand.execute("SELECT gid FROM pg_prepared_xacts").fetchone()
        assert row is not None
        hand.execute(psycopg.sql.SQL("ROLLBACK PREPARED {}").format(row[0]))
    with pytest.raises(HeuristicError, match="heuristic hazard, but commit was decided") as caught:
        tx.decide()
    assert caught.value.states == {"bank": BranchState.HEURISTIC_HAZARD, "queue": BranchState.COMMITTED}
    assert count(broker) == 1
    assert len(manager.unfinished()) == 1
    manager.forget(tx.id)
    assert manager.unfinished() == []


@pytest.mark.rule("DTX-14")
def test_a_consumed_message_returns_to_its_position(broker: BrokerProcess, manager: TransactionManager) -> None:
    with connect(broker.url) as own, own.channel() as channel:
        for body in (b"1", b"2"):
            channel.basic_publish("", "q", body)
        with manager.transaction("bank", connections={"queue": own}) as tx:
            first = channel.basic_get("q")
            assert first[0] is not None
            assert first[2] == b"1"
            channel.basic_ack(first[0].delivery_tag)
            insert(tx["bank"], 1)
            tx.rollback()
        again = channel.basic_get("q")
        assert again[0] is not None
        assert again[2] == b"1"
        assert again[0].redelivered

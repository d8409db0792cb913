"""SQL in every parameter style of PEP 249, transactions, and connections of all kinds."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from escrowmq.amqp10.errors import UsageError
from escrowmq.amqp10.exactly_once.database import STYLES, Database, translated


@pytest.mark.parametrize(
    ("style", "sql", "arguments"),
    [
        ("qmark", "a = ? AND b = ?", (1, 2)),
        ("format", "a = %s AND b = %s", (1, 2)),
        ("pyformat", "a = %(p1)s AND b = %(p2)s", {"p1": 1, "p2": 2}),
        ("numeric", "a = :1 AND b = :2", (1, 2)),
        ("named", "a = :p1 AND b = :p2", {"p1": 1, "p2": 2}),
    ],
)
def test_each_parameter_style_is_written(style: str, sql: str, arguments: Any) -> None:
    assert style in STYLES
    assert translated("a = ? AND b = ?", style, (1, 2)) == (sql, arguments)


def test_a_path_a_function_and_a_connection_will_do(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    given = sqlite3.connect(path)
    for source in (path, str(path), lambda: sqlite3.connect(path), given):
        database = Database(source)
        with database.transaction():
            database.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER)")
            database.execute_many("INSERT INTO t VALUES (?)", [(1,), (2,)])
        assert database.paramstyle == "qmark"
        database.close()
    assert given.execute("SELECT count(*) FROM t").fetchone() == (8,)
    given.close()


def test_an_exception_rolls_back(tmp_path: Path) -> None:
    database = Database(tmp_path / "x.db")
    with database.transaction():
        database.execute("CREATE TABLE t (a INTEGER NOT NULL)")
    with pytest.raises(sqlite3.IntegrityError), database.transaction():
        database.execute_many("INSERT INTO t VALUES (?)", [(1,), (None,)])
    assert database.execute("SELECT count(*) FROM t").fetchone() == (0,)
    database.close()


def test_a_transaction_of_the_user_is_not_committed_by_accident(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db")
    database = Database(connection)
    connection.execute("CREATE TABLE t (a INTEGER)")
    connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(UsageError, match="has an open transaction"), database.transaction():
        pass
    connection.close()


def test_an_unknown_style_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "x.db")
    with pytest.raises(UsageError, match="unknown paramstyle 'odd'"):
        Database(database, paramstyle="odd")
    database.close()

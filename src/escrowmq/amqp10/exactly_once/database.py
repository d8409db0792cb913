"""Any DB-API database (PEP 249), whatever its parameter style. SQL is written with `?` and translated."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from escrowmq.amqp10.errors import UsageError

STYLES: Final = ("qmark", "format", "pyformat", "numeric", "named")
_BUSY_SECONDS: Final = 30.0
_BINARY: Final = {"psycopg": "BYTEA", "psycopg2": "BYTEA", "pg8000": "BYTEA", "asyncpg": "BYTEA"}


class Database:
    """Where the state of links is kept.

    `source` is the path of an SQLite file, a function that opens a connection, or an open connection, which is then
    used for everything. `paramstyle` and `binary` (the type of a column for bytes) are those of the driver; without
    them, they are found by the connection's module. `limit` ends a query for at most so many rows; some databases
    need `FETCH FIRST {} ROWS ONLY`.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Callable[[], Any] | Any,
        *,
        paramstyle: str = "",
        binary: str = "",
        limit: str = "LIMIT {}",
    ) -> None:
        self.limit = limit
        self._owned = not hasattr(source, "cursor")  # connections of SQLite are callable, too
        if isinstance(source, str | os.PathLike):
            self.connection: Any = _sqlite(source)
        else:
            self.connection = source() if self._owned else source
        module = type(self.connection).__module__.partition(".")[0]
        self.paramstyle = paramstyle or getattr(sys.modules.get(module), "paramstyle", "qmark")
        self.binary = binary or _BINARY.get(module, "BLOB")
        if self.paramstyle not in STYLES:
            raise UsageError(f"unknown paramstyle {self.paramstyle!r}: use {', '.join(STYLES)}")

    def execute(self, sql: str, arguments: Sequence[Any] = (), connection: Any = None) -> Any:
        """Run a statement, and return its cursor. `connection` is one of the user's, with its transaction."""
        cursor = (self.connection if connection is None else connection).cursor()
        cursor.execute(*translated(sql, self.paramstyle, arguments))
        return cursor

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]], connection: Any = None) -> None:
        """Run a statement for each row of arguments."""
        given = [translated(sql, self.paramstyle, row) for row in rows]
        if given:
            cursor = (self.connection if connection is None else connection).cursor()
            cursor.executemany(given[0][0], [arguments for _, arguments in given])

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Run the block in a transaction: commit at its end, roll back after an exception."""
        if getattr(self.connection, "in_transaction", False):
            raise UsageError("the database connection has an open transaction: commit it or roll it back first")
        try:
            yield self.connection
        except BaseException:
            self.connection.rollback()
            raise
        self.connection.commit()

    def close(self) -> None:
        """Close the connection, unless it is the user's."""
        if self._owned:
            self.connection.close()


def _sqlite(path: str | os.PathLike[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")  # a commit is on disk when it returns
    return connection


def translated(sql: str, style: str, arguments: Sequence[Any]) -> tuple[str, Any]:
    """Return SQL and arguments in a parameter style of PEP 249. `sql` has a `?` for each argument, and no other."""
    parts = sql.split("?")
    if style == "qmark":
        return sql, tuple(arguments)
    names = [f"p{number}" for number in range(1, len(parts))]
    marks = {
        "format": ["%s" for _ in names],
        "pyformat": [f"%({name})s" for name in names],
        "numeric": [f":{name[1:]}" for name in names],
        "named": [f":{name}" for name in names],
    }[style]
    text = "".join(part + mark for part, mark in zip(parts, [*marks, ""], strict=True))
    by_name = style in ("pyformat", "named")
    return text, dict(zip(names, arguments, strict=True)) if by_name else tuple(arguments)

"""The table of messages to send: each row is written in the same transaction as the business row that it announces."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from escrowmq.amqp10.exactly_once.database import Database

WAITING: Final = 0
IN_FLIGHT: Final = 1
REFUSED: Final = 2


class Row(NamedTuple):
    """A message to send."""

    tag: bytes
    message: bytes


class RefusedRow(NamedTuple):
    """A message that the broker did not accept, and its reason."""

    tag: bytes
    message: bytes
    reason: str


class OutboxTable:
    """The rows of one link in the table `escrowmq_outbox`.

    A row is waiting, in flight, or refused. It is in flight before it is sent, so that after a crash the rows in
    flight are all that the broker may know.
    """

    def __init__(self, database: Database, link: str) -> None:
        self._database = database
        self._link = link
        self._last = 0
        with database.transaction():
            database.execute(
                "CREATE TABLE IF NOT EXISTS escrowmq_outbox (link VARCHAR(190) NOT NULL, tag CHAR(32) NOT NULL, "
                f"state SMALLINT NOT NULL, message {database.binary} NOT NULL, reason VARCHAR(1000), "
                "PRIMARY KEY (link, state, tag))"
            )

    def put(self, message: bytes, connection: Any = None) -> bytes:
        """Add a row in the connection's transaction. Returns its tag.

        Tags begin with the time, so rows of one process are sent in the order in which they were put.
        """
        self._last = max(self._last + 1, time.time_ns())
        tag = self._last.to_bytes(8, "big") + secrets.token_bytes(8)
        self._database.execute(
            "INSERT INTO escrowmq_outbox (link, tag, state, message) VALUES (?, ?, ?, ?)",
            (self._link, tag.hex(), WAITING, message),
            connection,
        )
        return tag

    def in_flight(self) -> list[Row]:
        """Return the rows that the broker may know."""
        return self._rows(IN_FLIGHT, None)

    def claim(self, most: int) -> list[Row]:
        """Put up to `most` waiting rows in flight, in the current transaction, and return them."""
        rows = self._rows(WAITING, most)
        self._move(IN_FLIGHT, WAITING, [row.tag for row in rows])
        return rows

    def delete(self, tags: Iterable[bytes]) -> None:
        """Delete rows that the broker has accepted, in the current transaction."""
        self._database.execute_many(
            "DELETE FROM escrowmq_outbox WHERE link = ? AND state = ? AND tag = ?",
            [(self._link, IN_FLIGHT, tag.hex()) for tag in tags],
        )

    def refuse(self, reasons: Iterable[tuple[bytes, str]]) -> None:
        """Keep rows that the broker did not accept, with its reasons, in the current transaction."""
        self._database.execute_many(
            "UPDATE escrowmq_outbox SET state = ?, reason = ? WHERE link = ? AND state = ? AND tag = ?",
            [(REFUSED, reason[:1000], self._link, IN_FLIGHT, tag.hex()) for tag, reason in reasons],
        )

    def retry(self, tags: Sequence[bytes]) -> None:
        """Have refused rows sent again, in the current transaction."""
        self._move(WAITING, REFUSED, tags)

    def discard(self, tags: Iterable[bytes]) -> None:
        """Delete refused rows, in the current transaction."""
        self._database.execute_many(
            "DELETE FROM escrowmq_outbox WHERE link = ? AND state = ? AND tag = ?",
            [(self._link, REFUSED, tag.hex()) for tag in tags],
        )

    def refused(self) -> list[RefusedRow]:
        """Return the rows that the broker did not accept."""
        found = self._database.execute(
            "SELECT tag, message, reason FROM escrowmq_outbox WHERE link = ? AND state = ? ORDER BY tag",
            (self._link, REFUSED),
        )
        return [
            RefusedRow(bytes.fromhex(tag), bytes(message), str(reason or ""))
            for tag, message, reason in found.fetchall()
        ]

    def _rows(self, state: int, most: int | None) -> list[Row]:
        sql = "SELECT tag, message FROM escrowmq_outbox WHERE link = ? AND state = ? ORDER BY tag "
        if most is not None:
            sql += self._database.limit.format(most)
        found = self._database.execute(sql, (self._link, state))
        return [Row(bytes.fromhex(tag), bytes(message)) for tag, message in found.fetchall()]

    def _move(self, state: int, before: int, tags: Sequence[bytes]) -> None:
        self._database.execute_many(
            "UPDATE escrowmq_outbox SET state = ? WHERE link = ? AND state = ? AND tag = ?",
            [(state, self._link, before, tag.hex()) for tag in tags],
        )

"""The table of messages that were processed and that the broker has not settled: one row until both sides know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from escrowmq.amqp10.exactly_once.database import Database


class InboxTable:
    """The rows of one link in the table `escrowmq_inbox`, each with the tag of an accepted delivery."""

    def __init__(self, database: Database, link: str) -> None:
        self._database = database
        self._link = link
        with database.transaction():
            database.execute(
                "CREATE TABLE IF NOT EXISTS escrowmq_inbox (link VARCHAR(190) NOT NULL, tag VARCHAR(64) NOT NULL, "
                "PRIMARY KEY (link, tag))"
            )

    def tags(self) -> list[bytes]:
        """Return the tags of the messages that were processed."""
        found = self._database.execute("SELECT tag FROM escrowmq_inbox WHERE link = ? ORDER BY tag", (self._link,))
        return [bytes.fromhex(tag) for (tag,) in found.fetchall()]

    def record(self, tags: Iterable[bytes], connection: Any = None) -> None:
        """Add rows in the connection's transaction."""
        self._database.execute_many(
            "INSERT INTO escrowmq_inbox (link, tag) VALUES (?, ?)",
            [(self._link, tag.hex()) for tag in tags],
            connection,
        )

    def forget(self, tags: Iterable[bytes], connection: Any = None) -> None:
        """Delete the rows of messages that the broker has settled, in the connection's transaction."""
        self._database.execute_many(
            "DELETE FROM escrowmq_inbox WHERE link = ? AND tag = ?",
            [(self._link, tag.hex()) for tag in tags],
            connection,
        )

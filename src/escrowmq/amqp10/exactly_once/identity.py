"""The identity of an exactly-once link: its container at the broker, and the epoch that fences former owners."""

from __future__ import annotations

import secrets
from typing import Any

from escrowmq.amqp10.errors import LinkStolen
from escrowmq.amqp10.exactly_once.database import Database

_CREATE = (
    "CREATE TABLE IF NOT EXISTS escrowmq_link "
    "(link VARCHAR(190) PRIMARY KEY, container VARCHAR(64) NOT NULL, epoch BIGINT NOT NULL, "
    "uses BIGINT NOT NULL)"
)


class Identity:
    """One link's row in the table `escrowmq_link`.

    The container is chosen once, so that the broker recognises the link in every later run. Each run has an epoch of
    its own; a transaction of an earlier run, in a process that is still alive, fails.
    """

    def __init__(self, database: Database, link: str) -> None:
        self.link = link
        self._database = database
        with database.transaction():
            database.execute(_CREATE)
        with database.transaction():
            found = database.execute("SELECT container FROM escrowmq_link WHERE link = ?", (link,)).fetchone()
            if found is None:
                container = f"exactly-once-{secrets.token_hex(16)}"
                database.execute("INSERT INTO escrowmq_link VALUES (?, ?, 0, 0)", (link, container))
        with database.transaction():
            database.execute("UPDATE escrowmq_link SET epoch = epoch + 1 WHERE link = ?", (link,))
            row = database.execute("SELECT container, epoch FROM escrowmq_link WHERE link = ?", (link,)).fetchone()
            self.container = str(row[0])
            self.epoch = int(row[1])

    def check(self, connection: Any = None) -> None:
        """Take part in a transaction: it can only commit while this is the latest run.

        Raises:
            LinkStolen: Another process runs the link now.
        """
        changed = self._database.execute(
            "UPDATE escrowmq_link SET uses = uses + 1 WHERE link = ? AND epoch = ?", (self.link, self.epoch), connection
        )
        if changed.rowcount != 1:
            raise LinkStolen(
                f"link {self.link}: another process runs it now; stop this one, or give it a link of its own",
                "amqp:link:stolen",
            )

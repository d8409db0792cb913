"""Links of AMQP 1.0 that move numbers from one SQLite database to another, each exactly once, around take-overs."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from escrowmq.amqp10 import ExactlyOnceReceiver, ExactlyOnceSender, Message, queue
from escrowmq.client import connect
from tests.broker import wait_until
from tests.replica_kill.roaming import Roaming
from tests.replicas import ReplicaBroker, ReplicaBrokers

QUEUE: Final = "once"
_BATCH: Final = 10
_TIMEOUT: Final = 10.0
_EMPTY: Final = 5.0
"""How long to wait for a message. A shorter time would end attempts to connect again, too."""
_TIMES: Final[dict[str, Any]] = {"timeout": _TIMEOUT, "connection_timeout": 5.0}


class OnceLink(Roaming):
    """A link that connects again by itself, to whoever leads."""

    def _urls(self) -> list[str]:
        return [node.url for node in self._brokers.nodes]


class OnceSender(OnceLink):
    """Writes numbers and their messages in one transaction of its database, and sends them."""

    def __init__(self, brokers: ReplicaBrokers, folder: Path) -> None:
        super().__init__(brokers)
        self.database = folder / "once-sent.db"
        with closing(sqlite3.connect(self.database)) as shop:
            shop.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
            shop.commit()

    def work(self, node: ReplicaBroker) -> None:
        with connect(node.url) as connection, connection.channel() as channel:
            channel.queue_declare(QUEUE, durable=True)
        with closing(sqlite3.connect(self.database, timeout=30)) as shop, self._open() as sender:
            while not self.stopped.is_set():
                with shop:
                    (first,) = shop.execute("SELECT count(*) FROM numbers").fetchone()
                    for number in range(first, first + _BATCH):
                        shop.execute("INSERT INTO numbers VALUES (?)", (number,))
                        sender.put(Message(number), shop)
                sender.flush(_TIMEOUT)
                self.done += 1

    def _open(self) -> ExactlyOnceSender:
        return ExactlyOnceSender(self._urls(), queue(QUEUE), name="sender", database=str(self.database), **_TIMES)

    def finish(self, leader: ReplicaBroker) -> None:
        with self._open() as sender:
            sender.flush(60)

    def judge(self, leader: ReplicaBroker) -> None:
        """The receiver judges both."""


class OnceReceiver(OnceLink):
    """Writes each number and the record of its delivery in one transaction of its database."""

    def __init__(self, brokers: ReplicaBrokers, folder: Path, sender: OnceSender) -> None:
        super().__init__(brokers)
        self._sender = sender
        self.database = folder / "once-received.db"
        with closing(sqlite3.connect(self.database)) as warehouse:
            warehouse.execute("CREATE TABLE numbers (number INTEGER)")
            warehouse.commit()

    def work(self, node: ReplicaBroker) -> None:
        with self._open() as receiver:
            while not self.stopped.is_set():
                self.done += self._receive(receiver)

    def _open(self) -> ExactlyOnceReceiver:
        return ExactlyOnceReceiver(
            self._urls(),
            queue(QUEUE),
            name="receiver",
            database=str(self.database),
            timeout=_TIMEOUT,
            connection_timeout=5.0,
        )

    def _receive(self, receiver: ExactlyOnceReceiver) -> int:
        deliveries = receiver.receive_many(_BATCH, timeout=_EMPTY)
        with receiver.process(*deliveries) as connection:
            for delivery in deliveries:
                connection.execute("INSERT INTO numbers VALUES (?)", (delivery.body,))
        return len(deliveries)

    def finish(self, leader: ReplicaBroker) -> None:
        wanted = len(_numbers(self._sender.database))
        with self._open() as receiver:

            def all_received() -> bool:
                self._receive(receiver)
                return len(_numbers(self.database)) >= wanted

            wait_until(all_received, 60, "all numbers")

    def judge(self, leader: ReplicaBroker) -> None:
        found, wanted = Counter(_numbers(self.database)), Counter(_numbers(self._sender.database))
        assert found == wanted, (
            f"numbers are lost: {list(wanted - found)[:5]}, or received twice: {list(found - wanted)[:5]}"
        )


def _numbers(database: Path) -> list[int]:
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM numbers")]

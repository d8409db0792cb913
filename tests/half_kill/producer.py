"""A shop that places orders with half messages: `producer.py PORT DATABASE-URL NAME SEED [--checks-only]`.

It uses the unmodified Python client of RocketMQ 5, and PostgreSQL as the local database. For each order it stores a
half message, inserts the order in a local transaction, and decides the half message. Some local transactions are
rolled back, and some half messages are left to the checker, which looks into the database. The process runs until it
is killed.
"""

from __future__ import annotations

import random
import sys
import threading
from itertools import count
from uuid import uuid4

import psycopg
from rocketmq import ClientConfiguration, Credentials, Message, Producer, TransactionChecker, TransactionResolution

TOPIC = "orders"
PLACED = "SELECT placed FROM orders WHERE id = %s"
_INSERT = "INSERT INTO orders (id, placed) VALUES (%s, {}) ON CONFLICT DO NOTHING"
PLACE = _INSERT.format("true")
GIVE_UP = _INSERT.format("false")
ROLLED_BACK = 0.2
"""Share of the local transactions that are rolled back."""
LEFT_TO_CHECKER = 0.2
"""Share of the half messages that the producer does not decide by itself."""
PAUSE_SECONDS = 0.1


class DatabaseChecker(TransactionChecker):  # type: ignore[misc]
    """Answers checks from the database.

    A local transaction without an outcome may still be running, or its process may be dead. The checker therefore
    inserts the order as not placed. If the local transaction is still running, the insert waits for its end; if it has
    not inserted its row yet, it fails later.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def check(self, message: Message) -> TransactionResolution:
        ident = message.body.decode()
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(GIVE_UP, (ident,))
            row = connection.execute(PLACED, (ident,)).fetchone()
        assert row is not None
        return TransactionResolution.COMMIT if row[0] else TransactionResolution.ROLLBACK


def place(connection: psycopg.Connection[tuple[bool]], ident: str, *, fails: bool) -> bool:
    """Run the local transaction. Return whether the order was placed."""
    placed = connection.execute(PLACE, (ident,)).rowcount == 1
    if fails or not placed:
        connection.rollback()
        return False
    connection.commit()
    return True


def order(producer: Producer, connection: psycopg.Connection[tuple[bool]], ident: str, rng: random.Random) -> None:
    """Place an order with a half message."""
    message = Message()
    message.topic, message.body, message.keys = TOPIC, ident.encode(), ident
    transaction = producer.begin_transaction()
    producer.send(message, transaction)
    placed = place(connection, ident, fails=rng.random() < ROLLED_BACK)
    if rng.random() >= LEFT_TO_CHECKER:
        if placed:
            transaction.commit()
        else:
            transaction.rollback()


def main() -> None:
    port, url, name, seed = sys.argv[1:5]
    rng = random.Random(seed)
    producer = Producer(ClientConfiguration(f"127.0.0.1:{port}", Credentials()), (TOPIC,), checker=DatabaseChecker(url))
    producer.startup()
    if "--checks-only" in sys.argv:
        threading.Event().wait()
    with psycopg.connect(url) as connection:
        life = uuid4().hex[:8]
        for number in count():
            try:
                order(producer, connection, f"{name}-{life}-{number}", rng)
            except Exception as error:  # noqa: BLE001 - the client raises errors of several types
                # The broker is down, or the checker was faster. The checker decides what is undecided.
                connection.rollback()
                print(f"{name}-{life}-{number}: {error}", file=sys.stderr)
                threading.Event().wait(PAUSE_SECONDS)


if __name__ == "__main__":
    main()

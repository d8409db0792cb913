"""Users that insert a row into PostgreSQL and send a message, by each model of a transaction.

`python -m bench.model_users MODEL DSN FOLDER USERS PORT GRPC_PORT RELAY GRPC_RELAY` connects users to the two ports of
the broker, and one to those of a relay, and prints `ready`. For each line `COUNT SECONDS` on its standard input, that
many users work so long; if COUNT is 0, the one behind the relay works a few times. The answer is a line of JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg

from escrowmq.amqp10 import ExactlyOnceSender, Message, queue
from escrowmq.client import BasicProperties, Connection, connect
from escrowmq.xa import TransactionManager

QUEUE: Final = "models"
"""The name of the queue, of the topic, and of the table."""
BODY: Final = bytes(100)
PERSISTENT: Final = BasicProperties(delivery_mode=2)
RELAYED: Final = 20
"""How often the user behind the relay works: so often that heartbeats do not count."""
INSERT: Final = "INSERT INTO models (body) VALUES (%s)"

Work = Callable[[], None]


class Model(Protocol):
    """A way to keep the database and the broker in agreement.

    If `sends_apart`, users leave their messages to `send`, which one thread calls for all of them.
    """

    sends_apart: bool

    def user(self) -> Work:
        """Connect a user, and return its work, which inserts one row and sends one message."""

    def send(self) -> None:
        """Send what the users have left."""


class Places:
    """Where broker and database are. `name` tells users of the same model apart that have different places."""

    def __init__(self, name: str, dsn: str, folder: str, amqp_port: str, grpc_port: str) -> None:
        self.name = name
        self.dsn = dsn
        self.folder = Path(folder)
        self.amqp = f"amqp://guest:guest@127.0.0.1:{amqp_port}/"
        self.grpc = f"127.0.0.1:{grpc_port}"

    def database(self) -> psycopg.Connection[Any]:
        """Connect to the database."""
        return psycopg.connect(self.dsn)

    def broker(self) -> Connection:
        """Connect to the broker."""
        return connect(self.amqp)


class Tx:
    """Commit the row, then commit the message in a transaction of the broker: a crash in between loses the message."""

    sends_apart = False

    def __init__(self, places: Places) -> None:
        self._places = places

    def user(self) -> Work:
        database, channel = self._places.database(), self._places.broker().channel()
        channel.tx_select()

        def work() -> None:
            database.execute(INSERT, (BODY,))
            database.commit()
            channel.basic_publish("", QUEUE, BODY, PERSISTENT)
            channel.tx_commit()

        return work

    def send(self) -> None:
        """Do nothing: users send their messages themselves."""


class Xa(Tx):
    """Prepare row and message, log the decision, and commit both."""

    def __init__(self, places: Places) -> None:
        super().__init__(places)
        participants = {"queue": places.broker, "database": places.database}
        self._manager = TransactionManager(places.name, places.folder / f"{places.name}.db", participants)

    def user(self) -> Work:
        database, connection = self._places.database(), self._places.broker()
        channel = connection.channel()
        mine = {"queue": connection, "database": database}

        def work() -> None:
            with self._manager.transaction(connections=mine):
                database.execute(INSERT, (BODY,))
                channel.basic_publish("", QUEUE, BODY, PERSISTENT)

        return work


class Half:
    """Send a half message with the client of RocketMQ for Python, commit the row, then the message."""

    sends_apart = False

    def __init__(self, places: Places) -> None:
        import rocketmq

        self._places = places
        self._new = rocketmq.Message

        class Checker(rocketmq.TransactionChecker):  # type: ignore[misc]
            def check(self, message: Any) -> Any:
                return rocketmq.TransactionResolution.COMMIT

        config = rocketmq.ClientConfiguration(places.grpc, rocketmq.Credentials())
        self._producer = rocketmq.Producer(config, [QUEUE], checker=Checker())
        self._producer.startup()

    def user(self) -> Work:
        database = self._places.database()

        def work() -> None:
            message = self._new()
            message.topic, message.body = QUEUE, BODY
            transaction = self._producer.begin_transaction()
            self._producer.send(message, transaction)
            database.execute(INSERT, (BODY,))
            database.commit()
            transaction.commit()

        return work

    def send(self) -> None:
        """Do nothing: users send their messages themselves."""


class Link:
    """Commit row and message in one transaction of the database, from which an exactly-once link sends the message."""

    sends_apart = True

    def __init__(self, places: Places) -> None:
        self._places = places
        self._sender = ExactlyOnceSender(places.amqp, queue(QUEUE), name=places.name, database=places.database)

    def user(self) -> Work:
        database = self._places.database()

        def work() -> None:
            database.execute(INSERT, (BODY,))
            self._sender.put(Message(BODY), database)
            database.commit()

        return work

    def send(self) -> None:
        self._sender.flush()


MODELS: Final[dict[str, Callable[[Places], Model]]] = {"tx": Tx, "half": Half, "xa": Xa, "link": Link}


def run(model: Model, users: list[Work], seconds: float, least: int = 1) -> dict[str, float]:
    """Let users work at the same time, each at least `least` times. A single user waits for each of its messages, as a
    program with one thread does.
    """
    counts = [0] * len(users)
    end = time.monotonic() + seconds
    alone = len(users) == 1

    def worker(number: int) -> None:
        while time.monotonic() < end or counts[number] < least:
            users[number]()
            if alone:
                model.send()
            counts[number] += 1

    begin, cpu = time.monotonic(), time.process_time()
    threads = [threading.Thread(target=worker, args=(number,)) for number in range(len(users))]
    for thread in threads:
        thread.start()
    while model.sends_apart and not alone and any(thread.is_alive() for thread in threads):
        model.send()
        time.sleep(0.001)
    for thread in threads:
        thread.join()
    model.send()
    took = time.monotonic() - begin
    return {"count": sum(counts), "seconds": took, "cpu": time.process_time() - cpu}


def main() -> None:
    """Serve the benchmark."""
    name, dsn, folder, count, *ports = sys.argv[1:]
    model = MODELS[name](Places("direct", dsn, folder, *ports[:2]))
    users = [model.user() for _ in range(int(count))]
    relayed = MODELS[name](Places("relayed", dsn, folder, *ports[2:]))
    behind = [relayed.user()]
    for _ in range(5):
        users[0]()
        behind[0]()
    for each in (model, relayed):
        each.send()
    print("ready", flush=True)
    for line in sys.stdin:
        chosen, seconds = line.split()
        if int(chosen):
            found = run(model, users[: int(chosen)], float(seconds))
        else:
            found = run(relayed, behind, 0, RELAYED)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()

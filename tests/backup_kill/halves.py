"""A producer of half messages, run until it is killed: `halves.py GRPC-PORT TOPIC NAME`.

It prints a line for each step: `stored` and `committed` when the broker has answered, `rolling` before a rollback; the
message, its id, and the time in seconds since 1970.
"""

from __future__ import annotations

import sys
import threading
import time
from itertools import count

from rocketmq import ClientConfiguration, Credentials, Message, Producer, TransactionChecker, TransactionResolution

PAUSE_SECONDS = 0.02


class Undecided(TransactionChecker):  # type: ignore[misc]
    """Leaves every half message undecided."""

    def check(self, message: Message) -> TransactionResolution:
        return TransactionResolution.UNKNOWN


def say(step: str, ident: str, message_id: str) -> None:
    """Print a step with its time."""
    print(step, ident, message_id, time.time(), flush=True)


def main(port: str, topic: str, name: str) -> None:
    """Store half messages: commit most of them, roll some back, and leave some."""
    producer = Producer(ClientConfiguration(f"127.0.0.1:{port}", Credentials()), (topic,), checker=Undecided())
    producer.startup()
    for number in count():
        ident = f"{name}-{number}"
        message = Message()
        message.topic, message.body, message.keys = topic, ident.encode(), ident
        transaction = producer.begin_transaction()
        message_id = producer.send(message, transaction).message_id
        say("stored", ident, message_id)
        if number % 5 == 0:
            say("rolling", ident, message_id)
            transaction.rollback()
        elif number % 5 < 4:
            transaction.commit()
            say("committed", ident, message_id)
        threading.Event().wait(PAUSE_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])

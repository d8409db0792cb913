"""The publisher process: sends the flights in transactions and resolves transactions in doubt."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import pika
from pika.exceptions import AMQPError

from escrowmq.demo import flights
from escrowmq.demo.events import Committed, Committing, Failed, Found, Interrupted, Published
from escrowmq.demo.link import EXCHANGE, QUEUE, connect
from escrowmq.demo.process import prepare

PERSISTENT: Final = pika.BasicProperties(content_type="application/json", delivery_mode=2)
_MASK = (1 << 64) - 1


class Publisher:
    """Publishes one transaction after the other, awaiting each commit before the next."""

    def __init__(self, pipe: Connection, url: str) -> None:
        self._pipe = pipe
        self._url = url
        self._channel = connect(url)
        self._markers = 0
        self.resent = 0

    def transaction(self, number: int, first: int, bodies: list[bytes]) -> None:
        """Publish `bodies` in one transaction exactly once, even if the connection is lost meanwhile."""
        committing = False
        while True:
            try:
                self._publish(bodies)
                self._pipe.send(Committing(number))
                committing = True
                self._channel.tx_commit()
                return
            except AMQPError:
                self._pipe.send(Interrupted(number, first, len(bodies), committing))
            found = self._ask(first, len(bodies))
            if found == len(bodies):
                return
            if found:
                raise Broken(f"{found} of the {len(bodies)} messages of transaction {number} are on the queue")
            committing = False
            self.resent += 1

    def _ask(self, first: int, count: int) -> int:
        """Return how many messages of a transaction are on the queue, by publishing a marker behind them."""
        self._channel = connect(self._url)
        self.mark(first, count)
        answer = self._pipe.recv()
        assert isinstance(answer, Found)
        return answer.count

    def mark(self, first: int, count: int, *, end: bool = False) -> None:
        """Put a marker onto the consumer's queue. When it arrives, everything before it has arrived."""
        self._markers += 1
        marker = {"marker": self._markers, "first": first, "count": count, "end": end}
        self._channel.basic_publish("", QUEUE, json.dumps(marker).encode(), PERSISTENT)
        self._channel.tx_commit()

    def _publish(self, bodies: list[bytes]) -> None:
        publish = self._channel.basic_publish
        for body in bodies:
            publish(EXCHANGE, "", body, PERSISTENT)


class Broken(Exception):  # noqa: N818 - named after the event
    """A part of a transaction is on the queue."""


def batches(path: Path, limit: int, size: int) -> Iterator[list[bytes]]:
    """Yield the messages in lists of `size`."""
    bodies = (flights.encode(ident, flight) for ident, flight in enumerate(flights.flights(path, limit)))
    while batch := list(islice(bodies, size)):
        yield batch


def run(pipe: Connection, url: str, path: Path, limit: int, size: int) -> None:
    """Run the process. Reports events through `pipe`."""
    prepare()
    try:
        _run(pipe, url, path, limit, size)
    except (AMQPError, Broken) as error:
        pipe.send(Failed(f"publisher: {error or type(error).__name__}"))
    except (BrokenPipeError, EOFError):
        pass  # the parent process has ended


def _run(pipe: Connection, url: str, path: Path, limit: int, size: int) -> None:
    publisher = Publisher(pipe, url)
    published = digest = 0
    for number, bodies in enumerate(batches(path, limit, size), start=1):
        publisher.transaction(number, published, bodies)
        published += len(bodies)
        digest = (digest + sum(map(zlib.crc32, bodies))) & _MASK
        pipe.send(Committed(number, published))
    publisher.mark(published, 0, end=True)
    pipe.send(Published(published, digest, publisher.resent))

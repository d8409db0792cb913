"""The consumer process: consumes the flights, acknowledges them in transactions, and checks every one."""

from __future__ import annotations

import json
import time
import zlib
from multiprocessing.connection import Connection
from typing import Any, Final

from pika.exceptions import AMQPError

from escrowmq.demo.events import Failed, Marked, Progress, Tally
from escrowmq.demo.ledger import Ledger
from escrowmq.demo.link import QUEUE, connect, waiting
from escrowmq.demo.process import prepare

IDLE: Final = 0.5
"""Seconds without a delivery after which the deliveries so far are acknowledged."""
REPORT: Final = 0.1
"""Seconds between two reports."""


class Consumer:
    """Consumes until the end marker, over as many connections as necessary."""

    def __init__(self, pipe: Connection, url: str, total: int, size: int) -> None:
        self._pipe = pipe
        self._url = url
        self._size = size
        self._ledger = Ledger(total)
        self._tag = 0
        self._reported = 0.0

    def run(self) -> Tally:
        """Consume until the end marker. Returns the counts."""
        while True:
            try:
                if self._consume(connect(self._url)):
                    return self._tally()
            except AMQPError:
                self._ledger.interrupted()

    def _consume(self, channel: Any) -> bool:
        """Consume over one connection until the end marker. Raises AMQPError when the connection is lost."""
        channel.basic_qos(prefetch_count=4 * self._size)
        for method, _, body in channel.consume(QUEUE, inactivity_timeout=IDLE):
            if method is None:
                self._settle(channel)
                continue
            self._tag = method.delivery_tag
            message = json.loads(body)
            if "marker" in message:
                self._settle(channel, with_marker=True)
                found = self._ledger.found(message["first"], message["count"])
                self._pipe.send(Marked(message["marker"], found, self._ledger.resolve()))
                if message["end"]:
                    channel.connection.close()
                    return True
                continue
            self._ledger.delivered(message["id"], zlib.crc32(body))
            if self._ledger.waiting == self._size:
                self._settle(channel)
        raise AMQPError("the broker cancelled the consumer")

    def _settle(self, channel: Any, *, with_marker: bool = False) -> None:
        """Acknowledge all deliveries so far in one transaction."""
        if self._ledger.waiting or with_marker:
            channel.basic_ack(self._tag, multiple=True)
            self._ledger.committing()
            channel.tx_commit()
            self._ledger.committed()
        now = time.monotonic()
        if now - self._reported > REPORT:
            self._reported = now
            self._pipe.send(Progress(self._ledger.settled))

    def _tally(self) -> Tally:
        ledger = self._ledger
        return Tally(
            ledger.settled,
            ledger.digest,
            ledger.missing(),
            ledger.twice,
            ledger.out_of_order,
            ledger.repeated,
            waiting(self._url),
        )


def run(pipe: Connection, url: str, total: int, size: int) -> None:
    """Run the process. Reports events through `pipe`."""
    prepare()
    try:
        pipe.send(Consumer(pipe, url, total, size).run())
    except AMQPError as error:
        pipe.send(Failed(f"consumer: {error or type(error).__name__}"))
    except BrokenPipeError:
        pass  # the parent process has ended

"""Clients of a kill test (pika). Each is a thread with its own connection, and runs until the broker has ended."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.kill.ledger import Ledger, make_transaction

PERSISTENT = pika.BasicProperties(delivery_mode=2)
PAIR = ("left", "middle", "right")
QUEUES = ("single", *PAIR, "work", "done", "plain")
_WINDOW = 400


def connect(url: str) -> BlockingChannel:
    """Open a connection and return a channel."""
    return pika.BlockingConnection(pika.URLParameters(url + "?heartbeat=0")).channel()


def declare(url: str) -> None:
    """Declare all queues as durable."""
    channel = connect(url)
    for queue in QUEUES:
        channel.queue_declare(queue, durable=True)
    channel.connection.close()


class Client(threading.Thread):
    """Runs `work` repeatedly until the connection is lost or it is told to stop."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.error: BaseException | None = None
        self.lost: BaseException | None = None
        """The loss of the connection."""
        self.stopped = threading.Event()

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                self._work()
        except (AMQPError, OSError) as error:  # the broker was killed
            self.lost = error
        except BaseException as error:  # noqa: BLE001 - the test reports it
            self.error = error


class Confirming:
    """Publishes numbered messages with a window of unconfirmed ones, and records the confirms."""

    def __init__(self, url: str, queue: str, first: int, note: Callable[[int], None]) -> None:
        self.next = first
        self._queue = queue
        self._note = note
        self._unconfirmed: deque[tuple[int, int]] = deque()
        self._tag = 0
        self.channel = connect(url)
        # pika's blocking channel waits for each confirm; its inner channel does not.
        self._inner = self.channel._impl
        self._inner.confirm_delivery(self._confirmed)

    def _confirmed(self, frame: pika.frame.Method) -> None:
        tag, multiple = frame.method.delivery_tag, frame.method.multiple
        waiting = self._unconfirmed
        if not multiple and waiting and waiting[0][0] != tag:
            self._unconfirmed = deque(pair for pair in waiting if pair[0] != tag)
            self._note(next(number for t, number in waiting if t == tag))
            return
        while waiting and waiting[0][0] <= tag:
            self._note(waiting.popleft()[1])

    def work(self) -> None:
        while len(self._unconfirmed) < _WINDOW:
            self._tag += 1
            self._unconfirmed.append((self._tag, self.next))
            number, self.next = self.next, self.next + 1
            self._inner.basic_publish("", self._queue, b"%d" % number, PERSISTENT)
        self.channel.connection.process_data_events(0.01)


class Transacting:
    """Publishes to several queues in transactions, and rolls some of them back."""

    def __init__(self, url: str, ledger: Ledger, first: int, rng: random.Random) -> None:
        self.next = first
        self._ledger = ledger
        self._rng = rng
        self.channel = connect(url)
        self.channel.tx_select()

    def work(self) -> None:
        number, self.next = self.next, self.next + 1
        transaction = make_transaction(number, PAIR, self._rng)
        for queue, bodies in transaction.parts.items():
            for body in bodies:
                self.channel.basic_publish("", queue, body, PERSISTENT)
        if self._rng.random() < 0.1:
            self.channel.tx_rollback()
            return
        self._ledger.doubtful[number] = transaction
        self.channel.tx_commit()
        self._ledger.committed[number] = self._ledger.doubtful.pop(number)


class Moving:
    """Consumes from one queue and publishes to another, both in one transaction."""

    def __init__(self, url: str, ledger: Ledger, rng: random.Random) -> None:
        self._ledger = ledger
        self._rng = rng
        self.channel = connect(url)
        self.channel.tx_select()
        self.channel.basic_qos(prefetch_count=50)

    def work(self) -> None:
        moved = []
        for _ in range(self._rng.randrange(1, 20)):
            method, _properties, body = self.channel.basic_get("work")
            if method is None:
                break
            self.channel.basic_publish("", "done", body, PERSISTENT)
            self.channel.basic_ack(method.delivery_tag)
            moved.append(body)
        if moved and self._rng.random() < 0.1:
            self.channel.tx_rollback()
            self.channel.basic_recover(requeue=True)
            return
        self.channel.tx_commit()
        self._ledger.moved.update(moved)


class Acking:
    """Acknowledges most of its deliveries, outside transactions."""

    def __init__(self, url: str, ledger: Ledger, rng: random.Random) -> None:
        self._ledger = ledger
        self._rng = rng
        self.channel = connect(url)
        self.channel.basic_qos(prefetch_count=100)
        self.channel.basic_consume("plain", self._got)

    def _got(self, channel: BlockingChannel, method: pika.spec.Basic.Deliver, _: object, body: bytes) -> None:
        if self._rng.random() < 0.9:
            self._ledger.acked.add(int(body))
            channel.basic_ack(method.delivery_tag)

    def work(self) -> None:
        self.channel.connection.process_data_events(0.02)


def feed(url: str, ledger: Ledger, first: int, count: int) -> None:
    """Publish messages to be moved, in one transaction."""
    channel = connect(url)
    channel.tx_select()
    bodies = [b"%d" % number for number in range(first, first + count)]
    for body in bodies:
        channel.basic_publish("", "work", body, PERSISTENT)
    channel.tx_commit()
    ledger.fed.update(bodies)
    channel.connection.close()


def drain(url: str, queue: str) -> list[bytes]:
    """Consume all messages of `queue` in one transaction and return them in order."""
    channel = connect(url)
    channel.tx_select()
    count = channel.queue_declare(queue, passive=True).method.message_count
    bodies: list[bytes] = []
    if count:
        for method, _, body in channel.consume(queue):
            bodies.append(body)
            if len(bodies) == count:
                channel.basic_ack(method.delivery_tag, multiple=True)
                channel.tx_commit()
                break
        channel.cancel()
    left = channel.queue_declare(queue, passive=True).method.message_count
    assert left == 0, f"{queue} reported {count} messages, but has {left} more"
    channel.connection.close()
    return bodies

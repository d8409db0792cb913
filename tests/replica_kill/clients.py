"""Clients of replicated brokers, which go from one node to the next, and remember what they were told."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from abc import ABC, abstractmethod
from typing import Self

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError

from tests.replicas import ReplicaBrokers

QUEUE = "work"
PERSISTENT = pika.BasicProperties(delivery_mode=2)
PATIENCE = 180.0
SILENCE = 3.0
"""The seconds without progress after which an impatient client leaves its node."""
_PAUSE = 0.05
LOST = (AMQPError, AMQPConnectorException, OSError)
"""What pika raises when a connection is lost, or is not made in time."""


class Worker(ABC):
    """A thread that connects to whoever leads, and begins again when it is disconnected."""

    def __init__(self, brokers: ReplicaBrokers) -> None:
        self._brokers = brokers
        self.stopped = threading.Event()
        self._connection: pika.BlockingConnection | None = None
        self._worked = 0.0
        """When the last piece of work began, by `time.monotonic()`."""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"

    def _run(self) -> None:
        while not self.stopped.is_set():
            try:
                connection = pika.BlockingConnection(self._parameters())
                self._worked, self._connection = time.monotonic(), connection
                channel = connection.channel()
                channel.queue_declare(QUEUE, durable=True)
                while not self.stopped.is_set():
                    self._worked = time.monotonic()
                    self.work(channel)
                connection.close()
            except LOST:
                self.stopped.wait(_PAUSE)

    def leave_silent(self) -> None:
        """Disconnect from a node that has not answered for some time, as an impatient client does.

        pika notices a frozen node by its heartbeat, but only after 14 s. May be called on any thread.
        """
        connection = self._connection
        if connection is not None and time.monotonic() - self._worked > SILENCE:
            self._connection = None
            with contextlib.suppress(OSError, AttributeError):  # the connection may just have ended by itself
                connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)

    def _parameters(self) -> list[pika.ConnectionParameters]:
        """Return the addresses of all nodes. A frozen one is left after a few seconds."""
        return [
            pika.ConnectionParameters(
                node.host, node.port, socket_timeout=1, stack_timeout=2, retry_delay=0.2, heartbeat=2
            )
            for node in self._brokers.nodes
        ]

    @abstractmethod
    def work(self, channel: BlockingChannel) -> None:
        """Do one piece of work."""


class ConfirmedProducer(Worker):
    """Publishes one message after the other, each with a confirm."""

    def __init__(self, brokers: ReplicaBrokers, name: str) -> None:
        super().__init__(brokers)
        self._name = name
        self._number = 0
        self._mode: BlockingChannel | None = None
        self.confirmed: list[bytes] = []

    def work(self, channel: BlockingChannel) -> None:
        if self._mode is not channel:
            channel.confirm_delivery()
            self._mode = channel
        self._number += 1
        body = b"%s %d" % (self._name.encode(), self._number)
        channel.basic_publish("", QUEUE, body, PERSISTENT)
        self.confirmed.append(body)


class TransactionalProducer(Worker):
    """Publishes groups of three messages, each group in one transaction."""

    SIZE = 3

    def __init__(self, brokers: ReplicaBrokers, name: str) -> None:
        super().__init__(brokers)
        self._name = name
        self._number = 0
        self._mode: BlockingChannel | None = None
        self.committed: list[list[bytes]] = []
        self.begun: list[list[bytes]] = []

    def work(self, channel: BlockingChannel) -> None:
        if self._mode is not channel:
            channel.tx_select()
            self._mode = channel
        self._number += 1
        group = [b"%s %d.%d" % (self._name.encode(), self._number, part) for part in range(self.SIZE)]
        self.begun.append(group)
        for body in group:
            channel.basic_publish("", QUEUE, body, PERSISTENT)
        channel.tx_commit()
        self.committed.append(group)


class TakingConsumer(Worker):
    """Gets and acknowledges messages, each in a transaction, so that it knows which are gone."""

    def __init__(self, brokers: ReplicaBrokers) -> None:
        super().__init__(brokers)
        self._mode: BlockingChannel | None = None
        self.taken: list[bytes] = []
        self.uncertain: set[bytes] = set()

    def work(self, channel: BlockingChannel) -> None:
        if self._mode is not channel:
            channel.tx_select()
            self._mode = channel
        method, _, body = channel.basic_get(QUEUE)
        if method is None or body is None:
            self.stopped.wait(_PAUSE)
            return
        channel.basic_ack(method.delivery_tag)
        self.uncertain.add(body)
        channel.tx_commit()
        self.uncertain.discard(body)
        self.taken.append(body)

"""Clients of several protocols that go from one node to the next, and remember what they were told.

Each is a thread. `finish` carries out what is left at the leader, and `judge` compares what is there with what was
told.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self

from escrowmq.amqp10 import AmqpError
from escrowmq.client import Error
from escrowmq.perf.errors import PerfError
from tests.replicas import ReplicaBroker, ReplicaBrokers

PATIENCE = 180.0
PAUSE = 0.05
LOST = (OSError, Error, AmqpError, PerfError)
"""What a client may be told when the leader is killed, frozen, cut off or deposed."""


class Roaming(ABC):
    """Works with one node after the other. Every other error than those of `LOST` is a failure of the test."""

    def __init__(self, brokers: ReplicaBrokers) -> None:
        self._brokers = brokers
        self.done = 0
        """The pieces of work whose success was answered."""
        self.error: BaseException | None = None
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=type(self).__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"
        self.check()

    def check(self) -> None:
        """Raise what has ended the thread."""
        if self.error is not None:
            raise AssertionError(f"{type(self).__name__}: {self.error!r}") from self.error

    def _run(self) -> None:
        try:
            while not self.stopped.is_set():
                for node in self._brokers.nodes:
                    if not self.stopped.is_set():
                        self._visit(node)
        except BaseException as error:  # noqa: BLE001 - the test reports it
            self.error = error

    def _visit(self, node: ReplicaBroker) -> None:
        try:
            self.work(node)
        except LOST:
            self.stopped.wait(PAUSE)

    @abstractmethod
    def work(self, node: ReplicaBroker) -> None:
        """Connect to a node, and work until `stopped` is set. Raises one of LOST if the node does not lead any more."""

    @abstractmethod
    def finish(self, leader: ReplicaBroker) -> None:
        """Carry out what is left."""

    @abstractmethod
    def judge(self, leader: ReplicaBroker) -> None:
        """Raise AssertionError if a guarantee was violated."""

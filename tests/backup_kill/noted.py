"""What the clients of a round know, with the time at which each learnt it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

import escrowmq.client as mq
from escrowmq.client import Properties
from tests.kill.ledger import Ledger, Transaction

_DURABLE = Properties(delivery_mode=2)
PAIR = ("xa-left", "xa-right")


class NotedSet(set[Any]):
    """A set that knows when each member came."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[Any, float] = {}

    def add(self, member: Any) -> None:
        self.times[member] = time.time()
        super().add(member)

    def update(self, *members: Iterable[Any]) -> None:
        for member in (each for some in members for each in some):
            self.add(member)

    def before(self, when: float) -> set[Any]:
        """Return the members that came before a time."""
        return {member for member, came in self.times.items() if came < when}


class NotedDict(dict[int, Transaction]):
    """A dictionary that knows when each key came."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[int, float] = {}

    def __setitem__(self, key: int, value: Transaction) -> None:
        self.times[key] = time.time()
        super().__setitem__(key, value)


class Noted(Ledger):
    """A ledger whose knowledge can be cut off at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.confirmed: NotedSet = NotedSet()
        self.kept: NotedSet = NotedSet()
        self.moved: NotedSet = NotedSet()
        self.committed: NotedDict = NotedDict()

    def before(self, when: float) -> Ledger:
        """Return what was known before a time. What was decided later may have taken effect, or not."""
        known = {number: each for number, each in self.committed.items() if self.committed.times[number] < when}
        return Ledger(
            confirmed=self.confirmed.before(when),
            sent=self.sent,
            committed=known,
            doubtful=self.doubtful | self.committed,
            fed=self.fed,
            moved=self.moved.before(when),
            acked=self.acked,
            kept=self.kept.before(when),
        )


class Preparing:
    """Publishes to two queues in a distributed transaction, commits most of them, and leaves some in doubt."""

    def __init__(self, url: str, first: int) -> None:
        self.prepared = NotedSet()
        self.committed = NotedSet()
        self.rolled_back: set[int] = set()
        """Those whose rollback was requested, with or without an answer."""
        self._url = url
        self._next = first
        self._open()

    def _open(self) -> None:
        self._connection = mq.connect(self._url, timeout=60)
        self._channel = self._connection.channel()
        for queue in PAIR:
            self._channel.queue_declare(queue, durable=True)

    def work(self) -> None:
        number, self._next = self._next, self._next + 1
        self._connection.tpc_begin(mq.xid(1, b"backup", b"%d" % number))
        for queue in PAIR:
            self._channel.basic_publish("", queue, b"%d" % number, _DURABLE)
        self._connection.tpc_prepare()
        self.prepared.add(number)
        if number % 4 == 0:
            self.rolled_back.add(number)
            self._connection.tpc_rollback()
        elif number % 4 == 1:  # its worker disappears
            self._connection.close()
            self._open()
        else:
            self._connection.tpc_commit()
            self.committed.add(number)
        threading.Event().wait(0.01)

    def check(self, found: dict[str, list[bytes]], when: float) -> None:
        """Check the queues after everything in doubt was committed. Raises AssertionError."""
        left, right = ([int(body) for body in found[queue]] for queue in PAIR)
        assert sorted(left) == sorted(right), "a branch took effect on one of two queues"
        assert len(set(left)) == len(left), "a branch took effect twice"
        lost = self.prepared.before(when) - self.rolled_back - set(left)
        assert not lost, f"{len(lost)} prepared branches are lost; one is {min(lost)}"

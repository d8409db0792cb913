"""Distributed transactions around take-overs: over AMQP 0-10, and by `escrowmq.xa` over AMQP 0-9-1."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from escrowmq.client import BasicProperties, Connection, connect
from escrowmq.core.branches.xa_branch import DEFAULT_TIMEOUT
from escrowmq.server.clock import SLOWNESS
from escrowmq.wire.amqp010.codec.spec import (
    DtxCommit,
    DtxEnd,
    DtxPrepare,
    DtxRecover,
    DtxRollback,
    DtxSelect,
    DtxStart,
    QueueDeclare,
    XaStatus,
    Xid,
)
from escrowmq.xa import TransactionManager, XaError
from tests.broker import wait_until
from tests.kill.raw_session import RawSession
from tests.replica_kill.roaming import PAUSE, Roaming
from tests.replicas import ReplicaBroker, ReplicaBrokers

PERSISTENT: Final = BasicProperties(delivery_mode=2)
_BRANCH: Final = b"replica"
_PART: Final = 2
LEAST_TIMEOUT: Final = DEFAULT_TIMEOUT * (1 - 1 / SLOWNESS)
"""The seconds after which a branch may time out, because the broker's time may be faster than real time."""


class BranchWorker(Roaming):
    """Publishes pairs of messages in branches of AMQP 0-10, with a log of decisions as a transaction manager has it.

    It forgets a decision as soon as a broker does not list its branch as in doubt. A stale list would make it forget
    decisions that were not carried out.
    """

    queue = "dtx"

    def __init__(self, brokers: ReplicaBrokers, seed: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(brokers)
        self._clock = clock
        self._rng = random.Random(seed)
        self._number = 0
        self._decisions: dict[int, bool] = {}
        self.outcomes: dict[int, bool] = {}

    def work(self, node: ReplicaBroker) -> None:
        session = RawSession(node.url)
        try:
            session.call(QueueDeclare(self.queue, durable=True))
            session.call(DtxSelect())
            self._recover(session)
            while not self.stopped.is_set():
                self._transact(session)
        finally:
            session.close()

    def _transact(self, session: RawSession) -> None:
        """Prepare and decide a branch. One that a fault has held up for as long as its timeout is rolled back."""
        self._number += 1
        number, xid = self._number, _xid(self._number)
        began = self._clock()
        session.call(DtxStart(xid))
        for part in range(_PART):
            session.transfer(self.queue, b"%d.%d" % (number, part))
        session.call(DtxEnd(xid))
        status = session.call(DtxPrepare(xid)).status
        took = self._clock() - began
        if status == XaStatus.XA_RBTIMEOUT and took >= LEAST_TIMEOUT:
            self.outcomes[number] = False
            return
        assert status == XaStatus.XA_OK, f"branch {number} was not prepared after {took:.1f} s: {status}"
        self._decisions[number] = self._rng.random() < 0.8
        self._decide(session, number)
        self.done += 1

    def _decide(self, session: RawSession, number: int) -> None:
        """Carry out a decision; a branch without one is rolled back."""
        commit, xid = self._decisions.get(number, False), _xid(number)
        status = session.call(DtxCommit(xid) if commit else DtxRollback(xid)).status
        assert status == XaStatus.XA_OK, f"branch {number} was not decided: {status}"
        self._decisions.pop(number, None)
        self.outcomes[number] = commit

    def _recover(self, session: RawSession) -> None:
        found = session.call(DtxRecover()).in_doubt
        numbers = {int(bytes(xid.global_id)) for xid in found if bytes(xid.branch_id) == _BRANCH}
        for number in [number for number in self._decisions if number not in numbers]:
            self.outcomes[number] = self._decisions.pop(number)  # it was carried out, and the answer was lost
        for number in sorted(numbers):
            self._decide(session, number)

    def finish(self, leader: ReplicaBroker) -> None:
        session = RawSession(leader.url)
        session.call(DtxSelect())
        self._recover(session)
        session.close()

    def judge(self, leader: ReplicaBroker) -> None:
        found = Counter(_taken(leader.url, self.queue))
        wanted = Counter(
            b"%d.%d" % (number, part) for number, commit in self.outcomes.items() if commit for part in range(_PART)
        )
        lost, other = wanted - found, found - wanted
        assert not lost, f"{len(lost)} messages of committed branches are lost: {list(lost)[:5]}"
        assert not other, f"{len(other)} messages are there without a commit, or twice: {list(other)[:5]}"


class ManagerWorker(Roaming):
    """A transaction manager with two connections to the broker, each of which publishes in a branch of its own."""

    queues = ("xa-left", "xa-right")

    def __init__(self, brokers: ReplicaBrokers, folder: Path) -> None:
        super().__init__(brokers)
        self._folder = folder
        self._number = 0
        self.committed: list[bytes] = []
        self.begun: list[bytes] = []

    def _connect(self) -> Connection:
        return connect([f"{node.url}?connection_timeout=5&timeout=20" for node in self._brokers.nodes])

    def _manager(self) -> TransactionManager:
        manager = TransactionManager("replica", self._folder / "decisions", recovery_interval=0.5)
        for queue in self.queues:
            manager.register(queue, self._connect)
        return manager

    def work(self, node: ReplicaBroker) -> None:
        with self._connect() as connection, connection.channel() as channel:
            for queue in self.queues:
                channel.queue_declare(queue, durable=True)
        with self._manager() as manager:
            while not self.stopped.is_set():
                self._number += 1
                body = b"%d" % self._number
                self.begun.append(body)
                try:
                    self._transact(manager, body)
                except XaError:
                    self.stopped.wait(PAUSE)

    def _transact(self, manager: TransactionManager, body: bytes) -> None:
        with manager.transaction(*self.queues, timeout=30) as transaction:
            for queue in self.queues:
                with transaction[queue].channel() as channel:
                    channel.basic_publish("", queue, body, PERSISTENT)
        self.committed.append(body)
        self.done += 1

    def finish(self, leader: ReplicaBroker) -> None:
        with self._manager() as manager:
            wait_until(lambda: manager.recover().complete and not manager.unfinished(), 60, "recovered transactions")

    def judge(self, leader: ReplicaBroker) -> None:
        left, right = (Counter(_taken(leader.url, queue)) for queue in self.queues)
        assert left == right, f"transactions are there in part: {list((left - right) + (right - left))[:5]}"
        assert set(left.values()) <= {1}, "transactions are there twice"
        lost = set(self.committed) - set(left)
        assert not lost, f"{len(lost)} committed transactions are lost: {sorted(lost)[:5]}"
        assert set(left) <= set(self.begun)


def _xid(number: int) -> Xid:
    return Xid(1, b"%d" % number, _BRANCH)


def _taken(url: str, queue: str) -> list[bytes]:
    """Take all messages from a queue."""
    found = []
    with connect(url) as connection, connection.channel() as channel:
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            assert got[2] is not None
            found.append(got[2])
    return found

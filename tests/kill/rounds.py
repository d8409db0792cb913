"""Rounds of load, an abrupt end and checks on one data directory."""

from __future__ import annotations

import random
import resource
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from tests.broker import BrokerProcess
from tests.kill.clients import PAIR, Acking, Client, Confirming, Moving, Transacting, declare, drain, feed
from tests.kill.ledger import Ledger
from tests.kill.sessions import (
    AcceptingSession,
    BranchMovingSession,
    CommittingSession,
    ConfirmingSession,
    MovingSession,
    SessionClient,
    declare_queues,
    stock,
)

# Small files and little memory make segments, snapshots, compaction and paging all occur within a few rounds.
CONFIG = """
[memory]
queue_resident_bytes = "64KiB"
[journal]
segment_bytes = "1MiB"
snapshot_bytes = "1MiB"
"""
_STEP = 1_000_000  # keeps the message numbers of different rounds apart
_ROOM = (4096, 100_000, 300_000, 700_000, 1_000_000)  # bytes of a segment after which the disk is full


class Crew(Protocol):
    """The clients of one round, which are connected and begin when their `workers` are called."""

    workers: list[Callable[[], None]]

    def __init__(self, url: str, first: int, rng: random.Random) -> None:
        """Connect. Messages are numbered from `first` on."""

    def close(self) -> None:
        """Close the connections, which are lost."""

    def reckon(self, url: str) -> None:
        """Check what is left after the restart."""

    @property
    def told(self) -> str:
        """What the clients know."""
        ...


class ChannelCrew:
    """Clients of AMQP 0-9-1."""

    def __init__(self, url: str, first: int, rng: random.Random) -> None:
        self._ledger = ledger = Ledger()
        declare(url)
        feed(url, ledger, first, 2000)
        self._single = Confirming(url, "single", first, ledger.confirmed.add)
        self.workers = [
            self._single.work,
            Confirming(url, "plain", first, ledger.kept.add).work,
            Transacting(url, ledger, first, random.Random(rng.random())).work,
            Moving(url, ledger, random.Random(rng.random())).work,
            Acking(url, ledger, random.Random(rng.random())).work,
        ]

    def close(self) -> None:
        """Do nothing: pika closes its sockets when they are collected."""

    def reckon(self, url: str) -> None:
        self._ledger.sent = self._single.next
        reckon(url, self._ledger)

    @property
    def told(self) -> str:
        return _told(self._ledger)


class SessionCrew:
    """Clients of AMQP 0-10, with two ledgers: that of distributed transactions, and that of everything else."""

    def __init__(self, url: str, first: int, rng: random.Random) -> None:
        self._ledger, self._branch_ledger = ledger, branch_ledger = Ledger(), Ledger()
        self._rng = rng
        declare_queues(url)
        stock(url, "work", ledger, first, 2000)
        stock(url, "stock", branch_ledger, first, 2000)
        self._single = ConfirmingSession(url, "single", first, ledger.confirmed.add)
        self._branches = BranchMovingSession(url, branch_ledger, first, random.Random(rng.random()))
        self._clients: list[SessionClient] = [
            self._single,
            ConfirmingSession(url, "plain", first, ledger.kept.add),
            CommittingSession(url, ledger, first, random.Random(rng.random())),
            MovingSession(url, ledger, random.Random(rng.random())),
            self._branches,
            AcceptingSession(url, ledger, random.Random(rng.random())),
        ]
        self.workers = [client.work for client in self._clients]

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def reckon(self, url: str) -> None:
        self._ledger.sent = self._single.next
        self._branches.recover(url, self._rng)
        reckon(url, self._ledger)
        self._branch_ledger.check_moves(drain(url, "stock"), drain(url, "sold"))

    @property
    def told(self) -> str:
        branches = len(self._branch_ledger.moved)
        return f"{_told(self._ledger)}, {branches} in branches, {len(self._ledger.removed)} accepted"


def _told(ledger: Ledger) -> str:
    return (
        f"{len(ledger.confirmed)} confirmed, {len(ledger.committed)} transactions committed, "
        f"{len(ledger.doubtful)} in doubt, {len(ledger.moved)} moved"
    )


def kill(broker: BrokerProcess, rng: random.Random) -> None:
    """End the broker by kill -9."""
    del rng
    broker.kill()


def fill_disk(broker: BrokerProcess, rng: random.Random) -> None:
    """Let the broker's writes fail, as on a full disk. It ends by itself (DUR-2)."""
    size = rng.choice(_ROOM)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (size, size))
    broker.wait()


def run_rounds(
    folder: Path,
    rounds: int,
    seed: int,
    report: Callable[[str], object] = len,
    crew: type[Crew] = ChannelCrew,
    end: Callable[[BrokerProcess, random.Random], None] = kill,
) -> None:
    """Run the rounds, each of which stops the broker by `end`. Raises AssertionError with round and seed for the first
    violated guarantee.
    """
    config = folder / "escrowmq.toml"
    config.write_text(CONFIG, encoding="utf-8")
    rng = random.Random(seed)
    with BrokerProcess(folder, "--config", str(config)) as broker:
        for number in range(rounds):
            try:
                clients = crew(broker.url, number * _STEP, rng)
                lifetime = rng.uniform(0.05, 1.0)
                lived = _load_and_end(clients.workers, lifetime, partial(end, broker, rng))
                clients.close()
                broker.start()
                clients.reckon(broker.url)
            except AssertionError as error:
                raise AssertionError(f"round {number} of seed {seed}: {error}\n{broker.log()[-4000:]}") from error
            report(f"round {number + 1}/{rounds}: ended after {lived:.2f} s; {clients.told}")


def _load_and_end(workers: list[Callable[[], None]], lifetime: float, end: Callable[[], None]) -> float:
    clients = [Client(work) for work in workers]
    for client in clients:
        client.start()
    started = time.monotonic()
    threading.Event().wait(lifetime)  # the random moment of the end
    end()
    for client in clients:
        client.stopped.set()
        client.join(30)
        assert not client.is_alive(), "a client hangs after the broker has ended"
        if client.error is not None:
            raise client.error
    return time.monotonic() - started


def reckon(url: str, ledger: Ledger) -> None:
    """Drain all queues, and check that they contain what the ledger demands."""
    ledger.check_confirmed([int(body) for body in drain(url, "single")])
    ledger.check_transactions({queue: drain(url, queue) for queue in PAIR})
    ledger.check_moves(drain(url, "work"), drain(url, "done"))
    ledger.check_kept([int(body) for body in drain(url, "plain")])

"""Rounds of orders with half messages, with a kill -9 of the broker or of producers in each."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from escrowmq.client import connect
from escrowmq.wire.amqp091.table import FieldValue
from tests.broker import BrokerProcess, wait_until
from tests.half_kill.producer import TOPIC
from tests.interop.rocketmq.brokers import RocketmqPorts
from tests.interop.rocketmq.streams import Streams
from tests.unit.sources import ROOT
from tests.xa.postgres import PostgreSQL

PRODUCERS = ("north", "south")
PARTITIONS = 2
CHECKS = "[half_messages]\ntimeout_seconds = 1\ncheck_interval_seconds = 1\nchecks = 1000\n"
_ORDERS = (0, 10, 20, 40)
_PATIENCE_SECONDS = 10.0
_LAST_SECONDS = 120.0


class Shop:
    """A process of `producer.py`, which is started again after each kill."""

    def __init__(self, name: str, port: int, url: str, folder: Path) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = [sys.executable, "-m", "tests.half_kill.producer", str(port), url, name]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, seed: int, *options: str) -> None:
        """Start the process unless it runs. Raises AssertionError if it has ended by itself."""
        code = None if self._process is None else self._process.poll()
        assert code in (None, -signal.SIGKILL), f"{self.name} ended with {code}:\n{self.said()}"
        if self._process is None or code is not None:
            with self.log.open("ab") as log:
                command = [*self._command, str(seed), *options]
                self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]


class Found(NamedTuple):
    """The state at the end: orders that were placed and given up locally, and orders that were delivered."""

    placed: list[str]
    given_up: list[str]
    delivered: list[str]


def run_rounds(folder: Path, rounds: int, seed: int, report: Callable[[str], object] = len) -> Found:
    """Kill one or two of the broker and its producers in each round, let the checker decide the rest, and compare.

    Raises AssertionError if a message was lost, delivered without its local transaction, or delivered twice.
    """
    ports = RocketmqPorts()
    config = folder / "broker.toml"
    config.write_text(ports.config + CHECKS, encoding="utf-8")
    options = ("--config", str(config), "--log-level", "info")
    with PostgreSQL(folder) as database, BrokerProcess(folder, *options) as broker:
        with database.connect("shop") as connection:
            connection.execute("CREATE TABLE orders (id text PRIMARY KEY, placed boolean NOT NULL)")
        with connect(broker.url) as link, link.channel() as channel:
            kind: dict[str, FieldValue] = {"x-partitions": PARTITIONS, "x-message-type": "transaction"}
            channel.exchange_declare(TOPIC, "x-partitioned", durable=True, arguments=kind)
        shops = [Shop(name, ports.grpc, database.url("shop"), folder) for name in PRODUCERS]
        try:
            with database.connect("shop", autocommit=True) as connection:
                _kill_at_random(broker, shops, random.Random(seed), rounds, lambda: _placed(connection), report)
            _let_the_checker_decide(broker, shops)
        finally:
            for shop in shops:
                shop.kill()
        placed, given_up = _orders(database)
        found = Found(placed, given_up, Streams(broker, TOPIC, PARTITIONS).read())
    compare(found)
    return found


def _kill_at_random(
    broker: BrokerProcess,
    shops: list[Shop],
    rng: random.Random,
    rounds: int,
    placed: Callable[[], int],
    report: Callable[[str], object],
) -> None:
    for number in range(rounds):
        for shop in shops:
            shop.start(rng.randrange(1 << 30))
        wanted = placed() + rng.choice(_ORDERS)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while placed() < wanted and time.monotonic() < deadline:
            threading.Event().wait(0.02)
        threading.Event().wait(rng.uniform(0.0, 0.1))  # the random moment of the kill
        victims = rng.sample(["broker", *(shop.name for shop in shops)], rng.choice((1, 1, 2)))
        for shop in shops:
            if shop.name in victims:
                shop.kill()
        if "broker" in victims:
            broker.kill()
            broker.start()
        killed = " and ".join(f"the {each}" if each == "broker" else f"the producer {each}" for each in victims)
        report(f"round {number + 1}/{rounds}: killed {killed}; {placed()} orders placed")


def _let_the_checker_decide(broker: BrokerProcess, shops: list[Shop]) -> None:
    """Replace the producers by one that only answers checks, and wait until every half message is decided."""
    for shop in shops:
        shop.kill()
    shops[0].start(0, "--checks-only")
    wait_until(lambda: not _undecided(broker), _LAST_SECONDS, f"decisions ({shops[0].log})")


def _undecided(broker: BrokerProcess) -> int:
    command = [sys.executable, "-m", "escrowmq", "half", "list", "--json", "--data-dir", str(broker.data_dir)]
    states = ("--state", "pending", "--state", "parked")
    done = subprocess.run([*command, *states], check=True, capture_output=True, text=True, timeout=60)
    return len(json.loads(done.stdout))


def _placed(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT count(*) FROM orders WHERE placed").fetchone()
    assert row is not None
    return int(row[0])


def _orders(database: PostgreSQL) -> tuple[list[str], list[str]]:
    """Return the orders that were placed, and those that were given up."""
    with database.connect("shop") as connection:
        rows = connection.execute("SELECT id, placed FROM orders").fetchall()
    return [ident for ident, placed in rows if placed], [ident for ident, placed in rows if not placed]


def compare(found: Found) -> None:
    """Raise AssertionError unless every order that was placed was delivered exactly once, and no other order."""
    times = Counter(found.delivered)
    lost = sorted(set(found.placed) - set(times))
    assert not lost, f"{len(lost)} orders were placed, but not delivered: {lost[:10]}"
    twice = sorted(ident for ident, number in times.items() if number > 1)
    assert not twice, f"{len(twice)} orders were delivered more than once: {twice[:10]}"
    wrong = sorted(set(times) - set(found.placed))
    assert not wrong, f"{len(wrong)} orders were delivered, but not placed: {wrong[:10]}"

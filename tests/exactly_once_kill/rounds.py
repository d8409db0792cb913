"""The example of exactly once, with kill -9 of the sender, the broker and the receiver at random moments."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from tests.broker import BrokerProcess
from tests.unit.sources import ROOT

EXAMPLE = ROOT / "examples" / "exactly_once.py"
ORDERS_FOR_EACH_ROUND = 320
_BATCHES = (0, 20, 40, 60, 80)
_PATIENCE_SECONDS = 10.0
_LAST_SECONDS = 120.0


class Program:
    """The sender or the receiver, which is started again after each kill until it ends by itself."""

    def __init__(self, folder: Path, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program unless it runs, or has ended successfully."""
        if self._process is None or self._process.poll() not in (None, 0):
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def ended(self) -> bool:
        return self._process is not None and self._process.poll() == 0

    def check(self) -> None:
        """Raise AssertionError if the program has failed by itself."""
        code = None if self._process is None else self._process.poll()
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        assert code in (None, 0, -9), f"{self.name} ended with {code}:\n{text[-3000:]}"


def run_rounds(folder: Path, rounds: int, seed: int, report: Callable[[str], object] = len) -> None:
    """Kill one or two of the three in each round, then let all finish, and compare the tables.

    Raises AssertionError if an order was lost, or shipped twice.
    """
    orders = rounds * ORDERS_FOR_EACH_ROUND
    with BrokerProcess(folder) as broker:
        options = ["--broker", broker.url, "--orders", str(orders), "--database"]
        example = [sys.executable, str(EXAMPLE)]
        programs = [
            Program(folder, "send", [*example, "send", *options, str(folder / "shop.db")]),
            Program(folder, "receive", [*example, "receive", *options, str(folder / "warehouse.db")]),
        ]
        kill_at_random(broker, programs, rounds, seed, lambda: shipped(folder), report)
    judge(folder, orders)


def kill_at_random(
    broker: BrokerProcess,
    programs: list[Program],
    rounds: int,
    seed: int,
    passed: Callable[[], int],
    report: Callable[[str], object],
) -> None:
    """Kill one or two of the broker and its two programs in each round, then let the programs finish.

    `passed` returns the number of orders that have passed so far.
    """
    rng = random.Random(seed)
    try:
        for number in range(rounds):
            for program in programs:
                program.start()
            progress(passed, rng.choice(_BATCHES))
            threading.Event().wait(rng.uniform(0.0, 0.1))  # the random moment of the kill
            victims = rng.sample(["broker", *(program.name for program in programs)], rng.choice((1, 1, 2)))
            for program in programs:
                program.check()
                if program.name in victims:
                    program.kill()
            if "broker" in victims:
                broker.kill()
                broker.start()
            report(f"round {number + 1}/{rounds}: killed {' and '.join(victims)}; {passed()} passed")
        finish(programs)
    finally:
        for program in programs:
            program.kill()


def progress(passed: Callable[[], int], orders: int) -> None:
    """Wait until this many further orders have passed, for a while at most: the queue may be empty."""
    wanted = passed() + orders
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while passed() < wanted and time.monotonic() < deadline:
        threading.Event().wait(0.01)


def finish(programs: list[Program]) -> None:
    """Let the programs run to their end."""
    deadline = time.monotonic() + _LAST_SECONDS
    while not all(program.ended() for program in programs):
        assert time.monotonic() < deadline, f"the programs did not end in {_LAST_SECONDS:g} s"
        for program in programs:
            program.check()
            program.start()
        threading.Event().wait(0.1)


def shipped(folder: Path) -> int:
    """Return the number of shipments so far."""
    with closing(sqlite3.connect(folder / "warehouse.db", timeout=30)) as warehouse:
        try:
            return int(warehouse.execute("SELECT count(*) FROM shipments").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # the receiver has not created its table yet


def judge(folder: Path, orders: int) -> None:
    """Compare the tables, and check that no state of a delivery is left behind."""
    with (
        closing(sqlite3.connect(folder / "shop.db")) as shop,
        closing(sqlite3.connect(folder / "warehouse.db")) as warehouse,
    ):
        taken = sorted(shop.execute("SELECT id, item FROM orders"))
        done = sorted(warehouse.execute("SELECT order_id, item FROM shipments"))
        assert len(taken) == orders
        compare(taken, done)
        assert shop.execute("SELECT count(*) FROM escrowmq_outbox").fetchone() == (0,), "rows are left in the outbox"


def compare(taken: list[tuple[int, str]], done: list[tuple[int, str]]) -> None:
    """Raise AssertionError unless every order was shipped exactly once."""
    lost = sorted(set(taken) - set(done))
    assert not lost, f"{len(lost)} orders were lost: {lost[:10]}"
    twice = sorted({row for row in done if done.count(row) > 1}) if len(done) > len(set(done)) else []
    assert not twice, f"{len(twice)} orders were shipped more than once: {twice[:10]}"
    assert taken == done, f"shipments without an order: {sorted(set(done) - set(taken))[:10]}"

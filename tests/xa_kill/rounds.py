"""Rounds of transfers with a kill -9 in each, followed by checks."""

from __future__ import annotations

import contextlib
import random
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from escrowmq.client import BasicProperties, Connection, connect
from tests.broker import BrokerProcess, wait_until
from tests.unit.sources import ROOT
from tests.xa.postgres import PostgreSQL
from tests.xa_kill.steps import EVERY, OUTCOME, TRANSFER, Kill, schedule
from tests.xa_kill.worker import AMOUNT, TRANSACTION_SECONDS

TEXT = BasicProperties(delivery_mode=2, content_type="text/plain")
ORDERS_PER_ROUND = 3
TRANSFERS_PER_ROUND = 2
BALANCE = 1_000_000
STEP_SECONDS = 60.0
LOCKED_SECONDS = 4 * TRANSACTION_SECONDS


class Worker:
    """A process that prints steps and waits at each of them for a line.

    It may take `step_seconds` from one step to the next.
    """

    def __init__(self, command: Sequence[str], folder: Path, step_seconds: float = STEP_SECONDS) -> None:
        self._step_seconds = step_seconds
        self.log = folder / "worker.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                text=True,
                bufsize=1,
            )

    def next_step(self) -> str | None:
        """Return the step at which the process waits, or None if it has exited."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(self._step_seconds), f"the worker hangs\n{self.said()}"
        return self._process.stdout.readline().rstrip("\n") or None

    def go(self) -> None:
        assert self._process.stdin is not None
        # The manager's thread may have printed a step while the program exited; the exit code says if that was normal.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")

    def run_until(self, wanted: Callable[[str], bool]) -> str | None:
        """Let the process continue until it waits at a wanted step. Returns None if it exited before."""
        while (step := self.next_step()) is not None:
            if wanted(step):
                return step
            self.go()
        return None

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def finish(self) -> None:
        """Let the process run to its end, and check its exit code."""
        self.go()
        self.run_until(lambda _step: False)
        code = self._end()
        assert code == 0, f"the worker exited with {code}\n{self.said()}"

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def _end(self) -> int:
        code = self._process.wait(STEP_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        return code


def worker(mode: str, broker: BrokerProcess, bank: PostgreSQL, folder: Path) -> Worker:
    """Start `worker.py`."""
    command = [sys.executable, "-m", "tests.xa_kill.worker", mode, broker.url, bank.url("bank")]
    return Worker([*command, str(folder / "decisions.db"), str(TRANSFERS_PER_ROUND)], folder)


def run_rounds(
    folder: Path,
    kills: Sequence[Kill],
    report: Callable[[str], object] = len,
    play: Callable[[Kill, BrokerProcess, PostgreSQL, Path], None] | None = None,
    outcome: Collection[str] = OUTCOME,
) -> None:
    """Run a round for each kill.

    `play` runs the application of one round and its recovery; by default, that is `worker.py`. `outcome` has the steps
    that follow the decision. Raises AssertionError with the round and the kill if queue, table and queue disagree.
    """
    play = play or _one_round
    with BrokerProcess(folder) as broker, PostgreSQL(folder) as bank:
        _set_up(broker, bank)
        moved = 0
        for number, kill in enumerate(kills):
            started = time.monotonic()
            _feed(broker, number * ORDERS_PER_ROUND)
            try:
                play(kill, broker, bank, folder)
                now = reckon(broker, bank, (number + 1) * ORDERS_PER_ROUND)
                _check_outcome(kill, now - moved, kill.step in outcome)
            except AssertionError as error:
                raise AssertionError(f"round {number}, {kill}: {error}\n{broker.log()[-2000:]}") from error
            seconds = time.monotonic() - started
            report(f"round {number + 1}/{len(kills)}: {kill}: {now - moved} moved, all agree ({seconds:.1f} s)")
            moved = now


def _one_round(kill: Kill, broker: BrokerProcess, bank: PostgreSQL, folder: Path) -> None:
    with worker("transfer", broker, bank, folder) as application:
        _kill_at(kill, application, broker, bank)
    if kill.victim == "application":
        _recover(kill, broker, bank, folder)


def _kill_at(kill: Kill, application: Worker, broker: BrokerProcess, bank: PostgreSQL) -> None:
    order = -1

    def here(step: str) -> bool:
        nonlocal order
        order += step == "transaction"
        return order == kill.order and step == kill.step

    assert application.run_until(here), f"the worker never reached the step\n{application.said()}"
    match kill.victim:
        case "application":
            application.kill()
        case "broker":
            broker.kill()
            application.go()
            # Further calls on the broken connection fail, and must not affect the other participants.
            application.run_until(lambda step: step in ("failed", "done", "recover"))
            broker.start()
            application.finish()
        case _:
            bank.kill()
            application.go()
            application.run_until(lambda step: step in ("failed", "done", "recover"))
            bank.start()
            application.finish()


def _recover(kill: Kill, broker: BrokerProcess, bank: PostgreSQL, folder: Path) -> None:
    # PostgreSQL may still be executing the application's last call, so recovery must wait for it.
    wait_until(lambda: not bank.sessions("bank"), STEP_SECONDS, "the end of the application's sessions")
    if kill.manager is not None:
        with worker("recover", broker, bank, folder) as first:
            assert first.run_until(lambda step: step == kill.manager), (
                f"recovery never reached the step\n{first.said()}"
            )
    with worker("recover", broker, bank, folder) as second:
        second.finish()


def _check_outcome(kill: Kill, moved: int, decided: bool) -> None:
    """Check the effect of a kill: nothing before the decision is on disk, everything after it."""
    if kill.victim == "application":
        assert moved == kill.order + decided, f"{moved} orders moved"
    elif decided:
        assert moved > kill.order, f"{moved} orders moved"


def reckon(broker: BrokerProcess, bank: PostgreSQL, fed: int) -> int:
    """Check that queue, table and other queue agree and nothing is locked. Returns the number of moved orders."""
    with connect(broker.url) as connection:
        assert connection.tpc_recover() == [], "the broker has branches in doubt"
    # A branch that has ended but was not prepared is rolled back when its timeout expires (DTX-12).
    wait_until(lambda: sum(map(len, _messages(broker))) == fed, LOCKED_SECONDS, f"{fed} messages in both queues")
    waiting, shipped = _messages(broker)
    with bank.connect() as connection:
        rest = connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall()
        assert rest == [], f"PostgreSQL has branches in doubt: {rest}"
        row = connection.execute("SELECT balance FROM account WHERE name = 'alice'").fetchone()
        assert row is not None
        paid = [order for (order,) in connection.execute("SELECT number FROM payment ORDER BY number").fetchall()]
    assert sorted(shipped) == paid, f"shipped {sorted(shipped)}, paid {paid}"
    assert BALANCE - row[0] == AMOUNT * len(paid), f"the balance is {row[0]} after {len(paid)} payments"
    assert sorted([*waiting, *shipped]) == list(range(fed)), f"waiting {waiting}, shipped {shipped}, of {fed}"
    return len(shipped)


def _messages(broker: BrokerProcess) -> tuple[list[int], list[int]]:
    """Return the waiting orders and the shipments, without consuming them."""
    with connect(broker.url) as connection:
        return _bodies(connection, "orders"), _bodies(connection, "shipments")


def _bodies(connection: Connection, queue: str) -> list[int]:
    with connection.channel() as channel:
        found = []
        while (got := channel.basic_get(queue))[0] is not None:
            assert got[2] is not None
            found.append(int(got[2]))
    return found


def _set_up(broker: BrokerProcess, bank: PostgreSQL) -> None:
    with bank.connect() as connection:
        connection.execute("CREATE TABLE account (name text PRIMARY KEY, balance bigint NOT NULL)")
        connection.execute("CREATE TABLE payment (number bigint PRIMARY KEY)")
        connection.execute("INSERT INTO account VALUES ('alice', %s)", (BALANCE,))
    with connect(broker.url) as connection_, connection_.channel() as channel:
        for queue in ("orders", "shipments"):
            channel.queue_declare(queue, durable=True)


def _feed(broker: BrokerProcess, first: int) -> None:
    with connect(broker.url) as connection, connection.channel() as channel:
        channel.tx_select()
        for order in range(first, first + ORDERS_PER_ROUND):
            channel.basic_publish("", "orders", b"%d" % order, TEXT)
        channel.tx_commit()


def kills_for(rounds: int, seed: int) -> list[Kill]:
    """Return the kills: for a short run some of every victim at the most critical steps, for a long one all in turn."""
    if rounds >= EVERY:
        return schedule(rounds, seed)
    rng = random.Random(seed)
    every = schedule(10 * len(TRANSFER), seed)
    late = [kill for kill in every if kill.step in TRANSFER[len(TRANSFER) // 2 :]]
    return rng.sample(late, rounds - rounds // 3) + rng.sample(every, rounds // 3)

"""Rounds of load, kill -9 and checks on one data directory."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.broker import BrokerProcess
from tests.kill.clients import PAIR, Acking, Client, Confirming, Moving, Transacting, declare, drain, feed
from tests.kill.ledger import Ledger

# Small files and little memory make segments, snapshots, compaction and paging all occur within a few rounds.
CONFIG = """
[memory]
queue_resident_bytes = "64KiB"
[journal]
segment_bytes = "1MiB"
snapshot_bytes = "1MiB"
"""
_STEP = 1_000_000  # keeps the message numbers of different rounds apart


def run_rounds(folder: Path, rounds: int, seed: int, report: Callable[[str], object] = len) -> None:
    """Run the rounds. Raises AssertionError with round and seed for the first violated guarantee."""
    config = folder / "escrowmq.toml"
    config.write_text(CONFIG, encoding="utf-8")
    rng = random.Random(seed)
    with BrokerProcess(folder, "--config", str(config)) as broker:
        declare(broker.url)
        for number in range(rounds):
            ledger = Ledger()
            try:
                lived = _load_and_kill(broker, ledger, number * _STEP, rng)
                broker.start()
                reckon(broker.url, ledger)
            except AssertionError as error:
                raise AssertionError(f"round {number} of seed {seed}: {error}\n{broker.log()[-4000:]}") from error
            report(
                f"round {number + 1}/{rounds}: killed after {lived:.2f} s; {len(ledger.confirmed)} confirmed, "
                f"{len(ledger.committed)} transactions committed, {len(ledger.doubtful)} in doubt, "
                f"{len(ledger.moved)} moved"
            )


def _load_and_kill(broker: BrokerProcess, ledger: Ledger, first: int, rng: random.Random) -> float:
    url = broker.url
    feed(url, ledger, first, 2000)
    single = Confirming(url, "single", first, ledger.confirmed.add)
    plain = Confirming(url, "plain", first, ledger.kept.add)
    workers: list[Callable[[], None]] = [
        single.work,
        plain.work,
        Transacting(url, ledger, first, random.Random(rng.random())).work,
        Moving(url, ledger, random.Random(rng.random())).work,
        Acking(url, ledger, random.Random(rng.random())).work,
    ]
    clients = [Client(work) for work in workers]
    for client in clients:
        client.start()
    lifetime = rng.uniform(0.05, 1.0)
    started = time.monotonic()
    threading.Event().wait(lifetime)  # the random moment of the kill
    broker.kill()
    for client in clients:
        client.stopped.set()
        client.join(30)
        assert not client.is_alive(), "a client hangs after the broker was killed"
        if client.error is not None:
            raise client.error
    ledger.sent = single.next
    return time.monotonic() - started


def reckon(url: str, ledger: Ledger) -> None:
    """Drain all queues, and check that they contain what the ledger demands."""
    ledger.check_confirmed([int(body) for body in drain(url, "single")])
    ledger.check_transactions({queue: drain(url, queue) for queue in PAIR})
    ledger.check_moves(drain(url, "work"), drain(url, "done"))
    ledger.check_kept([int(body) for body in drain(url, "plain")])

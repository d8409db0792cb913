"""Run rounds of kills with one broker, one checkpoint and one pair of queues, and check the result.

Each round publishes messages and starts a driver, which first completes the unfinished work of its predecessor.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from escrowmq.client import connect
from escrowmq.client.escrow import Escrow
from tests.broker import BrokerProcess, wait_until
from tests.spark_kill.points import BROKER, DRIVER, POINTS, WORKER

BATCH = 400
FED = 3 * BATCH
PATIENCE = 120.0


def plan(rounds: int, seed: int) -> list[str]:
    """Return a list of points in an order determined by the seed, with all points equally often."""
    rng = random.Random(seed)
    found: list[str] = []
    while len(found) < rounds:
        some = list(POINTS)
        rng.shuffle(some)
        found += some
    return found[:rounds]


def run_rounds(folder: Path, points: Sequence[str], seed: int, report: Callable[[str], object] = len) -> None:
    """Kill at these points, one after the other.

    Raises:
        AssertionError: a message was lost, duplicated or invented, or a branch or reservation was left.
    """
    rng = random.Random(seed)
    fed = 0
    with BrokerProcess(folder).start() as broker:
        with connect(broker.url) as connection:
            channel = connection.channel()
            for name in ("in", "out"):
                channel.queue_declare(name, durable=True)
        for number, point in enumerate(points):
            fed = feed(broker, fed)
            started = time.monotonic()
            try:
                how = one_round(folder, broker, point, rng.randrange(2))
                check(broker, fed, settled=False)
            except AssertionError as error:
                raise AssertionError(f"round {number + 1} of seed {seed}, {point}: {error}\n{log(folder)}") from error
            report(f"round {number + 1}/{len(points)}: {point}: {how}, {time.monotonic() - started:.1f} s")
        assert run_driver(folder, broker, {}) == 0, log(folder)
        asleep = folder / "asleep"
        if asleep.exists():
            (folder / "awake").touch()
            sleeper = Path("/proc", asleep.read_text())
            wait_until(
                lambda: not sleeper.exists() or " Z " in (sleeper / "stat").read_text(), PATIENCE, "the sleeper to end"
            )
            fed = feed(broker, fed)  # one more epoch rolls back any branches that the sleeper has left
            assert run_driver(folder, broker, {}) == 0, log(folder)
        check(broker, fed, settled=True)


def feed(broker: BrokerProcess, fed: int) -> int:
    """Publish further numbered messages, and return the total."""
    with connect(broker.url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.publish_many("", "in", [b"%d" % number for number in range(fed, fed + FED)], b"\x10\x00\x02")
    return fed + FED


def one_round(folder: Path, broker: BrokerProcess, point: str, after: int) -> str:
    """Run the driver until it is killed at `point`, or has survived the kill of another process.

    Returns a description of the driver's end.
    """
    for name in ("passes", "asleep", "awake"):
        if name == "passes" or not (folder / "asleep").exists():
            (folder / name).unlink(missing_ok=True)
    (folder / "broker.pids").write_text(str(broker.process.pid))
    code = run_driver(folder, broker, {"KILL_POINT": point, "KILL_AFTER": str(after)})
    passes = folder / "passes"
    fired = passes.exists() and passes.stat().st_size > after
    assert fired, f"the point was passed only {passes.stat().st_size if passes.exists() else 0} times"
    if point in BROKER:
        assert broker.process.poll() is not None, "the broker was not killed"
        broker.wait()
        broker.start()
    if point in DRIVER:
        assert code == -9, f"the driver ended with {code}"
        return "killed"
    if point in WORKER:
        assert code == 0, f"the driver did not survive the kill of a worker: {code}"
        return "retried by Spark"
    return f"the query failed ({code})" if code else "the query continued"


def run_driver(folder: Path, broker: BrokerProcess, more: dict[str, str]) -> int:
    """Run the driver with these additional environment variables, and return its exit status."""
    environment = {
        **os.environ,
        "ESCROWMQ_URL": broker.url,
        "KILL_FOLDER": str(folder),
        "KILL_BATCH": str(BATCH),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
        **more,
    }
    with (folder / "driver.log").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark_kill.driver", str(folder)],
            env=environment,
            stdout=output,
            stderr=output,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver does not end in {PATIENCE} s") from None
        finally:
            if process.poll() is None:
                for pid in (folder / "driver.pids").read_text().split():
                    os.kill(int(pid), 9)
                process.wait()


def check(broker: BrokerProcess, fed: int, *, settled: bool, ordered: bool = True) -> None:
    """Check that no message was duplicated or invented (PIPE-1, PIPE-2).

    With `settled`, also check that none was lost, and that nothing is reserved or in doubt; with `ordered`, also their
    order.
    """
    with connect(broker.url) as connection:
        broker_side = Escrow(connection)
        found = out(broker_side)
        counts = Counter(found)
        twice = [body for body, count in counts.items() if count > 1]
        assert not twice, f"{len(twice)} messages are duplicated, for example {twice[0]!r}"
        wanted = {b"%d" % number for number in range(fed)}
        assert counts.keys() <= wanted, "a message was invented"
        if not settled:
            return
        lost = wanted - counts.keys()
        assert not lost, f"{len(lost)} messages are lost, for example {min(lost)!r}"
        assert not ordered or found == sorted(found, key=int), "the messages are out of order"
        (left,) = broker_side.describe("in")
        held = broker_side.hold("in", "mover")
        assert (left.ready, held.end - held.first, held.settled) == (0, 0, fed + 1), (left, held)
        assert connection.tpc_recover() == [], "branches are in doubt"


def out(broker: Escrow) -> list[bytes]:
    """Return the bodies of all messages in the queue `out`, which stay there."""
    while (held := broker.hold("out", "reckoning", most=100_000)).added:
        pass
    bodies: list[bytes] = []
    for block in broker.blocks("out", "reckoning", held.first, held.end):
        bodies += [message.body for message in block.bulk.messages()]
    return bodies


def log(folder: Path) -> str:
    """Return the end of the drivers' output."""
    return (folder / "driver.log").read_text(errors="replace")[-6000:]

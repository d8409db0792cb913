"""Kill or freeze the processes of a running query at random moments; it goes on, or its job ends in time (PIPE-7).

One query moves messages from the queue `in` to the queue `out`. A job that has ended is started again with the same
checkpoint, as a supervisor would do.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from escrowmq.client import connect
from escrowmq.client.escrow import Escrow
from tests.broker import BrokerProcess, wait_until
from tests.spark_kill.rounds import BATCH, FED, check, feed, log, run_driver

KINDS: Final = ("jvm", "driver", "worker", "broker", "freeze")
RECONNECT_SECONDS: Final = 30
DEADLINE_SECONDS: Final = RECONNECT_SECONDS + 90
"""How long a round may last: the time for the broker to return, and the start of a session on a busy machine."""
MOST_FROZEN_SECONDS: Final = 3.0


class Job:
    """A process with the query, its JVM, and their Python workers."""

    def __init__(self, folder: Path, broker: BrokerProcess) -> None:
        self._folder = folder
        (folder / "driver.pids").unlink(missing_ok=True)
        environment = {
            **os.environ,
            "ESCROWMQ_URL": f"{broker.url}?timeout=2&connection_timeout=2",
            "KILL_FOLDER": str(folder),
            "KILL_BATCH": str(BATCH),
            "KILL_RECONNECT": str(RECONNECT_SECONDS),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
        }
        with (folder / "driver.log").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark_kill.driver", str(folder)],
                env=environment,
                stdout=output,
                stderr=output,
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )
        self._jvm: psutil.Process | None = None

    @property
    def jvm(self) -> psutil.Process:
        if self._jvm is None:
            pids = self._folder / "driver.pids"
            wait_until(lambda: self.ended or (pids.exists() and " " in pids.read_text()), DEADLINE_SECONDS, "the JVM")
            self._jvm = psutil.Process(int(pids.read_text().split()[0]))
        return self._jvm

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def runs(self) -> bool:
        """Whether the JVM runs."""
        try:
            return self.jvm.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def gone(self) -> bool:
        """Return whether the driver and its JVM have ended."""
        return self.ended and not self.runs

    def workers(self) -> list[psutil.Process]:
        """Return the Python processes below the JVM."""
        try:
            return [each for each in self.jvm.children(recursive=True) if "python" in each.name()]
        except psutil.NoSuchProcess:
            return []

    def end(self) -> None:
        """Kill what is left."""
        for process in [*self.workers(), self.jvm] if self._jvm is not None else []:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.kill()
        self.process.wait()


def run_moments(folder: Path, rounds: int, seed: int, report: Callable[[str], object] = len) -> None:
    """Run rounds of each kind in turn, each at a random moment.

    Raises:
        AssertionError: a message was lost or duplicated, a job did not end in time, or left something behind.
    """
    rng = random.Random(seed)
    fed = 0
    with BrokerProcess(folder).start() as broker:
        with connect(broker.url) as connection:
            channel = connection.channel()
            for name in ("in", "out"):
                channel.queue_declare(name, durable=True)
        job = Job(folder, broker)
        try:
            for number in range(rounds):
                kind = KINDS[number % len(KINDS)]
                fed = feed(broker, fed)
                moment = f"round {number + 1}/{rounds} of seed {seed}: {kind}"
                begun = time.monotonic()
                # The job may have been killed after it had moved the last message of the round before.
                job = running_until(lambda: waiting(broker) < FED, job, folder, broker, moment)
                time.sleep(rng.uniform(0, 1.5))
                inflict(kind, job, broker, rng)
                job = running_until(partial(all_moved, broker, fed), job, folder, broker, moment)
                report(f"{moment}: {time.monotonic() - begun:.1f} s")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log(folder)}") from error
        finally:
            job.end()
        assert run_driver(folder, broker, {}) == 0, log(folder)
        check(broker, fed, settled=True, ordered=False)


def inflict(kind: str, job: Job, broker: BrokerProcess, rng: random.Random) -> None:
    """Kill or freeze a process of this kind."""
    if kind == "jvm":
        kill(job.jvm)
    elif kind == "driver":
        job.process.kill()
    elif kind == "worker":
        workers = job.workers()
        if workers:
            kill(rng.choice(workers))
    elif kind == "broker":
        broker.kill()
        time.sleep(rng.uniform(0, 1))
        broker.start()
    else:
        broker.signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.5, MOST_FROZEN_SECONDS))
        broker.signal(signal.SIGCONT)


def kill(process: psutil.Process) -> None:
    """Kill a process, which may have ended just now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def running_until(reached: Callable[[], bool], job: Job, folder: Path, broker: BrokerProcess, moment: str) -> Job:
    """Wait until `reached`, with another job if this one ends. Returns the job that runs then."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not reached():
        assert time.monotonic() < deadline, f"{moment}: after {DEADLINE_SECONDS} s the job neither goes on nor ends"
        if job.ended or not job.runs:
            wait_until(job.gone, DEADLINE_SECONDS, f"{moment}: the end of the job")
            job = Job(folder, broker)
        time.sleep(0.1)
    return job


def waiting(broker: BrokerProcess) -> int:
    """Return the number of messages that no query has reserved."""
    with connect(broker.url) as connection:
        return Escrow(connection).describe("in")[0].ready


def all_moved(broker: BrokerProcess, fed: int) -> bool:
    """Return whether all messages are in `out`."""
    with connect(broker.url) as connection:
        return Escrow(connection).describe("out")[0].ready >= fed

"""Supervises Spark's driver: starts it, kills it during an epoch, restarts it, and reports the epoch's outcome."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import signal
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

import escrowmq.client
from escrowmq.demo import driver
from escrowmq.demo.display import Display
from escrowmq.demo.driver import Job
from escrowmq.demo.events import Begun, Decided, Failed, Lost, Stopped, Tabled, Up

FAILURES: Final = 20
"""The number of failures of the query that are accepted without a completed epoch in between."""


class Broken(Exception):  # noqa: N818 - named after the event
    """The demonstration cannot continue; the text says why."""


class Streaming:
    """The driver's process and the events that it has reported."""

    def __init__(self, display: Display, job: Job) -> None:
        self.rows: dict[int, int] = {}
        """The rows of each epoch, by number, so that an epoch that is run again counts once."""
        self.known = 0
        self.kills = 0
        self.stopped = False
        self.may_kill = False
        self._display = display
        self._job = job
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._epoch: int | None = None
        self._doubtful: int | None = None
        self._tabled_at = 0.0
        self._decision_seconds = math.inf
        self._failures = 0
        self._started = 0.0
        self._stopping = False

    @property
    def pipe(self) -> Connection:
        """The pipe to the driver."""
        assert self._pipe is not None
        return self._pipe

    @property
    def processed(self) -> int:
        """The number of flights in decided epochs."""
        return sum(self.rows.values())

    def start(self) -> None:
        """Start the driver, which needs some seconds until its first event."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=driver.run, args=(theirs, self._job))
        self._process.start()
        theirs.close()
        self._started = time.monotonic()

    def kill(self) -> None:
        """Kill the driver and its JVM with SIGKILL, which they cannot handle."""
        if self._process is None or self._process.pid is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()  # it may not have a process group of its own yet
        self._process.join()
        if self._pipe is not None:
            self._pipe.close()

    def finish(self) -> None:
        """Tell the driver to stop, because no more messages will come."""
        if not self._stopping:
            self._stopping = True
            self.pipe.send("stop")

    def told(self, event: Any) -> None:
        """Handle an event of the driver. Raises Broken."""
        match event:
            case Up():
                again = "again and continues from its checkpoint" if self.kills else "and waits for flights"
                took = time.monotonic() - self._started
                self._display.say("spark", f"PySpark {event.pyspark} is up {again}, after {took:.1f} s")
            case Begun():
                self._epoch = event.epoch
            case Tabled():
                self._tabled_at = time.monotonic()
                if self.may_kill and not self.kills and self._decision_seconds < math.inf:
                    self._kill_within(event.epoch)
            case Decided():
                self._decided(event)
            case Lost():
                self._failures += 1
                if self._failures > FAILURES:
                    raise Broken(f"the query keeps failing: {event.reason}; Spark's log: {self._job.log}")
                self._doubtful = self._epoch if self._doubtful is None else self._doubtful
                within = "between two epochs" if self._epoch is None else f"in epoch {self._epoch}"
                self._display.say("spark", f"the query has failed {within}: {event.reason}")
                self._epoch = None
            case Stopped():
                self.stopped = True
            case Failed():
                raise Broken(f"{event.reason}; Spark's log: {self._job.log}")

    def _decided(self, event: Decided) -> None:
        if not event.before:
            self._decision_seconds = min(self._decision_seconds, time.monotonic() - self._tabled_at)
        self.rows[event.epoch] = event.rows
        self.known += event.before
        self._failures = 0
        self._epoch = None
        if self._doubtful is not None:
            self._display.say("spark", verdict(self._doubtful, event))
            self._doubtful = None

    def _kill_within(self, epoch: int) -> None:
        """Kill the driver at a random moment of the decision, unless the decision is faster than any before."""
        if self.pipe.poll(random.uniform(0, self._decision_seconds)):  # noqa: S311 - no secret
            return
        assert self._process is not None
        killed = self._process.pid
        self.kill()
        self.kills += 1
        self._doubtful, self._epoch = epoch, None
        doubt = in_doubt(self._job.url)
        doubtful = f"{doubt} prepared branch{'es' * (doubt > 1)} of it, in doubt until it is back"
        self._display.say(
            "kill -9",
            f"Spark's driver and its JVM, process {killed}, in epoch {epoch}, before the decision;\n"
            f"the broker has {doubtful if doubt else 'no branch of it in doubt'}",
        )
        self.start()


def in_doubt(url: str) -> int:
    """Return the number of branches that are prepared and not decided."""
    with escrowmq.client.connect(url) as connection:
        return len(connection.tpc_recover())


def verdict(epoch: int, event: Decided) -> str:
    """Describe the outcome of the epoch that was in progress, given the next one that the driver reports."""
    if event.epoch > epoch:
        return f"epoch {epoch} was complete and is not run again"
    if event.before:
        return f"epoch {epoch} had been decided by the broker: Spark ran it again, but nothing was written twice"
    return f"epoch {epoch} was not decided, and nothing of it was visible: it was run again, for {event.rows:,} flights"

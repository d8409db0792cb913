"""Half messages without a decision: memory and restart with a million of them, and the checks of many due at once.

`python -m bench.half_pending PHASE FOLDER COUNT` runs one phase in a process of its own and prints JSON. The broker's
core runs without a server, on a journal on disk, so that no protocol is measured.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from bench.brokers import Broker as BenchedBroker
from bench.measure import MeasureError, Measurement
from bench.scenario import MB, Figure, Scenario, Settings
from escrowmq.core.broker import Broker
from escrowmq.core.half.message import HalfMessage
from escrowmq.core.half.options import CheckOptions
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.queue import Queue, Session
from escrowmq.core.recovery.snapshot import Capture
from escrowmq.core.topology.declaration import Declaration
from escrowmq.journal.journal import Journal
from escrowmq.journal.storage import FileStorage
from escrowmq.server.start import recover

PENDING: Final = 1_000_000
DUE: Final = 100_000
BODY: Final = bytes(100)
IN_TURN: Final = 1000
"""Half messages that are stored between two syncs."""


class Answering:
    """A producer that takes every check."""

    user = "u"
    label = "bench"

    def __init__(self) -> None:
        self.taken = 0

    def check(self, half: HalfMessage) -> bool:
        self.taken += len(half.content) > 0
        return True


class Bench:
    """A broker's core on a journal on disk."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.journal = Journal.open(FileStorage(folder))
        self.broker = Broker(self.journal, random.Random(1))
        self.broker.half.options.check = CheckOptions(3_600_000, 3_600_000, 15)
        begin = time.perf_counter()
        recover(self.journal, self.broker)
        self.recovered_in = time.perf_counter() - begin
        self.broker.directory.add_vhost("/")
        self.sync()

    @property
    def queue(self) -> Queue:
        vhost = self.broker.directory.vhost("/")
        return vhost.queues.get("q") or self.broker.directory.declare_queue(
            vhost, "q", Declaration(durable=True), Session("bench")
        )

    def sync(self) -> None:
        while (batch := self.journal.take_batch(self.broker.engine.now * 1000)) is not None:
            batch.write()
            self.journal.batch_done(batch)
        self.broker.engine.synced(self.journal.synced_lsn)

    def store(self, count: int) -> float:
        """Store half messages, each with an id of its own. Return the CPU time for one, in microseconds."""
        half, queue = self.broker.half, self.queue
        envelope = Envelope("orders", "q", durable=True)
        used = 0.0
        for first in range(0, count, IN_TURN):
            begin = time.thread_time()
            for number in range(first, min(first + IN_TURN, count)):
                ident = f"01{number:030X}"
                half.store("/", "orders", ident, envelope, BODY, queue, group="orders", user="u")
            self.broker.engine.turn.end()
            used += time.thread_time() - begin
            self.sync()
        return used / count * 1e6

    def snapshot(self) -> float:
        """Take a snapshot. Return the longest step of its capture, in milliseconds."""
        capture, longest, done = Capture(self.broker), 0.0, False
        while not done:
            begin = time.thread_time()
            done = capture.step()
            longest = max(longest, time.thread_time() - begin)
        records = ((int(kind), b"".join(parts)) for kind, parts in capture.records())
        taken = self.journal.begin_snapshot(records, self.broker.engine.now * 1000)
        taken.write()
        self.journal.snapshot_done(taken)
        self.sync()
        while (work := self.journal.housekeeping()) is not None or self.journal.removal_lsn is not None:
            if work is None:
                self.sync()
            else:
                work()
        return longest * 1000


def resident_mb() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MB


def store(folder: Path, count: int) -> dict[str, float]:
    """Store half messages, and leave without a snapshot, as after a kill."""
    bench = Bench(folder)
    micros = bench.store(count)
    return {"store": micros, "memory": resident_mb()}


def restart(folder: Path, count: int) -> dict[str, float]:
    """Recover from the log alone, decide one half message in a thousand, and take a snapshot."""
    bench = Bench(folder)
    if bench.broker.half.named("/", "orders", f"01{count - 1:030X}") is None:
        raise MeasureError("half messages were lost")
    found = {"restart": bench.recovered_in, "memory-restarted": resident_mb()}
    begin = time.thread_time()
    for number in range(1, count, 1000):
        bench.broker.half.commit("/", number)
    found["commit"] = (time.thread_time() - begin) / len(range(1, count, 1000)) * 1e6
    bench.broker.engine.turn.end()
    bench.sync()
    return found | {"snapshot-step": bench.snapshot()}


def restart_from_snapshot(folder: Path, count: int) -> dict[str, float]:
    """Recover from a snapshot."""
    return {"restart-snapshot": Bench(folder).recovered_in}


def due(folder: Path, count: int) -> dict[str, float]:
    """Let half messages fall due at once, and measure every turn until all are checked."""
    bench = Bench(folder)
    bench.broker.half.options.check = CheckOptions(60_000, 60_000, 15)
    bench.store(count)
    producer = Answering()
    bench.broker.half.producers.join("/", "orders", producer)
    engine = bench.broker.engine
    engine.now += 60_000
    turns: list[float] = []
    begin = time.perf_counter()
    while producer.taken < count:
        started = time.thread_time()
        engine.run_deadlines()
        engine.turn.end()
        turns.append(time.thread_time() - started)
        bench.sync()
    turns.sort()
    return {
        "due-all": time.perf_counter() - begin,
        "due-cpu": sum(turns) / count * 1e6,
        "due-turn": turns[-1] * 1000,
        "due-turn-p99": turns[len(turns) * 99 // 100] * 1000,
    }


PHASES: Final = {"store": store, "restart": restart, "snapshot": restart_from_snapshot, "due": due}


class HalfPending(Scenario):
    """A million pending half messages, and 100,000 that fall due at once."""

    peers = ()
    alternations = 1

    def __init__(self) -> None:
        super().__init__(
            "half-pending",
            (
                Figure("half.memory", "memory, 1,000,000 pending half messages of 100 B", "MB", below=500),
                Figure("half.memory-restarted", "— after a restart", "MB", below=500),
                Figure("half.store", "— CPU time to store one", "µs"),
                Figure("half.commit", "— CPU time to commit one of them", "µs"),
                Figure("half.restart", "restart with them, from the log alone", "s", below=10),
                Figure("half.restart-snapshot", "— from a snapshot", "s", below=10),
                Figure("half.snapshot-step", "— longest step of a snapshot's capture", "ms"),
                Figure("half.due-all", "checks of 100,000 that fall due at once, all of them", "s", below=30),
                Figure("half.due-turn", "— longest turn", "ms", below=10),
                Figure("half.due-turn-p99", "— 99th percentile", "ms"),
                Figure("half.due-cpu", "— CPU time of one check", "µs"),
            ),
        )

    def warm_up(self, broker: BenchedBroker, settings: Settings) -> None:
        """Do nothing: every phase is a process of its own."""

    def measure(self, broker: BenchedBroker, settings: Settings) -> Measurement:
        found: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as folder:
            for phase in PHASES:
                count = int((DUE if phase == "due" else PENDING) * settings.scale)
                where = Path(folder, "due" if phase == "due" else "pending")
                command = [sys.executable, "-m", "bench.half_pending", phase, str(where), str(count)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise MeasureError(f"half-pending {phase}: {done.stderr}")
                found |= json.loads(done.stdout)
        return Measurement({f"half.{name}": value for name, value in found.items()})


def main() -> None:
    """Run one phase."""
    phase, folder, count = sys.argv[1:]
    gc.disable()  # the server freezes what it has, and collects rarely
    print(json.dumps(PHASES[phase](Path(folder), int(count))))


if __name__ == "__main__":
    main()

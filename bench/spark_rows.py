"""`python bench/spark_rows.py [--messages N] [--rows uniform varied] [--columns body all] [--paths read through]`: the
speed at which a streaming query reads a queue and discards the rows (read), or writes them to another queue (through).

*Uniform* messages are all alike. *Varied* ones are what applications send: each has its own message-id, correlation-id,
timestamp and routing key, and headers of which two differ. The query runs with `availableNow` in two micro-batches of
half the messages. The figures are those of the second one: its rate, and the CPU time for each row, of Spark (the JVM
and its Python workers) and of the broker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import escrowmq.spark
from bench.brokers import EscrowMQ
from escrowmq.client import Properties, connect
from escrowmq.client.channel import Channel
from escrowmq.client.escrow import Escrow
from escrowmq.java import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = ("uniform", "varied")
COLUMNS = ("body", "all")
PATHS = ("read", "through")
_BODY = 90
_KEYS = 5000
_CHUNK = 20_000
_TICKS = os.sysconf("SC_CLK_TCK")


class Pace(NamedTuple):
    """The rate of a micro-batch in rows/s, and CPU times for each row in µs."""

    rate: float
    spark_us: float
    broker_us: float


def plain_session() -> SparkSession:
    """Start Spark with its own defaults, as an application does. The audit's session has a Java for short runs."""
    prepare()
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def fill(channel: Channel, rows: str, count: int) -> None:
    """Publish durable messages to the exchange `bench-in`, from which they go to the queue of the same name."""
    body = os.urandom(_BODY // 2).hex().encode()
    if rows == "uniform":
        same = Properties(content_type="application/json", delivery_mode=2)
        channel.publish_many("bench-in", "orders.new", [body] * count, same)
        return
    for begin in range(0, count, _CHUNK):
        numbers = range(begin, min(begin + _CHUNK, count))
        keys = [f"orders.{number % _KEYS}.new" for number in numbers]
        channel.publish_many("bench-in", keys, [body] * len(keys), [_varied(number) for number in numbers])


def _varied(number: int) -> Properties:
    return Properties(
        content_type="application/json",
        delivery_mode=2,
        message_id=str(uuid.uuid4()),
        correlation_id=f"order-{number}",
        timestamp=1_700_000_000 + number,
        headers={"tenant": "acme", "number": number, "trace": os.urandom(8).hex()},
    )


class Jobs:
    """A Spark session and a connection to the broker, for one job after the other."""

    def __init__(self, url: str, pids: Sequence[int], count: int, folder: Path) -> None:
        """`pids` are the broker's processes."""
        os.environ["ESCROWMQ_URL"] = url
        self._pids = pids
        self._count = count
        self._folder = folder
        self._runs = 0
        self._connection = connect(url)
        self._channel = self._connection.channel()
        for name in ("bench-in", "bench-out"):
            self._channel.queue_declare(name, durable=True)
            self._channel.exchange_declare(name, "topic", durable=True)
            self._channel.queue_bind(name, name, "#")
        self._channel.confirm_delivery()
        self.spark = plain_session()
        escrowmq.spark.register(self.spark)

    def close(self) -> None:
        self.spark.stop()
        self._connection.close()

    def run(self, rows: str, columns: str, path: str) -> Pace:
        """Fill a queue, move the messages, and return the pace of the second micro-batch."""
        fill(self._channel, rows, self._count)
        _wait_until_idle(self._pids)
        self._runs += 1
        group = f"bench-{self._runs}"  # each query has its own checkpoint, and therefore its own group
        source = self.spark.readStream.format("escrowmq").option("subscribe", "bench-in").option("group", group)
        source = source.option("maxMessagesPerTrigger", self._count // 2)
        frame = (source.schema("body binary") if columns == "body" else source).load()
        writer = frame.writeStream.option("checkpointLocation", str(self._folder / f"checkpoint-{self._runs}"))
        if path == "read":
            writer = writer.format("noop")
        elif columns == "body":
            writer = writer.format("escrowmq").option("queue", "bench-out")
        else:
            writer = writer.format("escrowmq").option("exchange", "bench-out")
        pace = self._pace(writer.trigger(availableNow=True).start())
        if path == "through":
            moved = Escrow(self._connection).describe("bench-out")[0].ready
            assert moved == self._count, f"{moved} of {self._count} messages arrived"
            self._channel.queue_purge("bench-out")
        escrowmq.spark.release(subscribe="bench-in", group=group)
        self._channel.queue_purge("bench-in")
        return pace

    def _pace(self, query: Any) -> Pace:
        while query.isActive and not _batches(query):
            time.sleep(0.005)
        before = cpu_seconds(self._pids)
        query.awaitTermination()
        spark, broker = (now - then for now, then in zip(cpu_seconds(self._pids), before, strict=True))
        batches = _batches(query)
        assert len(batches) == 2, f"{len(batches)} micro-batches with rows"
        last = batches[-1]
        rate = last.numInputRows / last.durationMs["triggerExecution"] * 1000
        return Pace(rate, spark / last.numInputRows * 1e6, broker / last.numInputRows * 1e6)


def _batches(query: Any) -> list[Any]:
    return [each for each in query.recentProgress if each.numInputRows]


def cpu_seconds(broker: Sequence[int]) -> tuple[float, float]:
    """Return the CPU time of Spark and of the broker, whose processes are `broker`. Those of Spark are all others that
    this one has started, directly or not, with their ended children.
    """
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            seconds[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS
    spark = [pid for pid in parents if pid != os.getpid() and pid not in broker and _is_ours(pid, parents)]
    return sum(seconds[pid] for pid in spark), sum(seconds[pid] for pid in broker if pid in seconds)


def _wait_until_idle(pids: Sequence[int]) -> None:
    """Wait until the broker has done what it does after a load, at most 20 s."""
    give_up = time.monotonic() + 20
    before = cpu_seconds(pids)[1]
    while time.monotonic() < give_up:
        time.sleep(0.3)
        now = cpu_seconds(pids)[1]
        if now - before <= 0.03:
            return
        before = now


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


def measure(
    url: str, pids: Sequence[int], count: int, folder: Path, chosen: Iterable[tuple[str, str, str]]
) -> dict[str, Pace]:
    """Run each job, after one that warms up."""
    jobs = Jobs(url, pids, count, folder)
    try:
        jobs.run("uniform", "all", "through")
        return {"-".join(each): jobs.run(*each) for each in chosen}
    finally:
        jobs.close()


def measured(url: str, pids: Sequence[int], count: int) -> dict[str, Pace]:
    """Run `measure` in a separate process, whose Spark session ends with it."""
    command = [sys.executable, str(Path(__file__).resolve()), "--messages", str(count), "--json"]
    command += ["--url", url, "--pids", *map(str, pids)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    return {name: Pace(*pace) for name, pace in json.loads(done.stdout.splitlines()[-1]).items()}


def main(options: argparse.Namespace) -> None:
    chosen = list(product(options.rows, options.columns, options.paths))
    with tempfile.TemporaryDirectory() as scratch:
        server = EscrowMQ(Path(scratch) / "broker")
        if options.url is None:
            server.start()
        try:
            url, pids = options.url or server.url, options.pids or server.pids()
            found = measure(url, pids, options.messages, Path(scratch), chosen)
        finally:
            if options.url is None:
                server.stop()
    if options.json:
        print(json.dumps(found))
        return
    for name, (rate, spark_us, broker_us) in found.items():
        print(f"{name:<22}{rate:>12,.0f} rows/s  Spark {spark_us:>6.2f} µs  broker {broker_us:>6.2f} µs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=COLUMNS)
    parser.add_argument("--paths", nargs="+", choices=PATHS, default=PATHS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--url", help="of a running broker; by default one is started")
    parser.add_argument("--pids", type=int, nargs="+", help="the processes of that broker")
    main(parser.parse_args())

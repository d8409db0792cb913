"""`python bench/spark_link.py`: the speed at which Spark reads and writes queues.

Each job runs on `local[2]` with the broker on the same machine. Its twin uses Spark's own rate source or no-op sink
instead of ours, so the difference is our share.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import escrowmq.spark
from escrowmq.client import connect
from escrowmq.client.escrow import Escrow
from escrowmq.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BODY = 200
LITTLE = 10
TRIGGERS = 12
PERSISTENT = b"\x10\x00\x02"


class Link:
    """The jobs, each with its twin. Rates are in messages/s."""

    def __init__(self, url: str, count: int, folder: Path) -> None:
        os.environ["ESCROWMQ_URL"] = url
        self._count = count
        self._folder = folder
        self._runs = 0
        self._connection = connect(url)
        self._channel = self._connection.channel()
        for name in ("bench-in", "bench-out"):
            self._channel.queue_declare(name, durable=True)
        self._channel.confirm_delivery()
        self.spark: SparkSession = session("local[2]")
        escrowmq.spark.register(self.spark)

    def close(self) -> None:
        self.spark.stop()
        self._connection.close()

    def _fill(self) -> None:
        body = os.urandom(BODY // 2).hex().encode()
        self._channel.publish_many("", "bench-in", [body] * self._count, PERSISTENT)

    def _rate(self, job: Callable[[], object]) -> float:
        begin = time.perf_counter()
        job()
        return self._count / (time.perf_counter() - begin)

    def _rows(self) -> DataFrame:
        return self.spark.range(self._count).selectExpr(f"cast(repeat('x', {BODY}) as binary) body")

    # -- batch

    def read(self) -> float:
        """Read all columns of a queue and discard them."""
        self._fill()
        rows = self.spark.read.format("escrowmq").option("subscribe", "bench-in").option("group", "bench").load()
        rate = self._rate(lambda: nowhere(rows))
        escrowmq.spark.release(subscribe="bench-in", group="bench")
        self._channel.queue_purge("bench-in")
        return rate

    def read_twin(self) -> float:
        """Generate rows and discard them."""
        return self._rate(lambda: nowhere(self._rows()))

    def write(self) -> float:
        """Generate rows and write them to a queue in one transaction."""
        writer = self._rows().write.format("escrowmq").mode("append").option("queue", "bench-out")
        rate = self._rate(writer.save)
        self._channel.queue_purge("bench-out")
        return rate

    # -- streaming

    def through(self) -> float:
        """Move messages from queue to queue, in micro-batches that are one decision each."""
        self._fill()
        rows = self._stream().option("maxMessagesPerTrigger", self._count // 4).load().select("body")
        begin = time.perf_counter()
        self._query(rows, "escrowmq", {"queue": "bench-out"}, available_now=True).awaitTermination()
        rate = self._count / (time.perf_counter() - begin)
        moved = Escrow(self._connection).describe("bench-out")[0].ready
        assert moved == self._count, f"{moved} of {self._count} messages arrived"
        self._channel.queue_purge("bench-out")
        return rate

    def through_twin(self) -> float:
        """Discard the same number of rows of Spark's rate source, in as many micro-batches."""
        batch = self._count // 4
        source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", batch)
        rows = source.load().selectExpr(f"cast(repeat('x', {BODY}) as binary) body")
        query = self._query(rows, "noop", {}, available_now=False)
        begin = time.perf_counter()
        first = done = -1
        while done < first + 4:
            progress = [each for each in query.recentProgress if each.numInputRows]
            if progress and first < 0:
                first, begin = progress[-1].batchId, time.perf_counter()
            done = progress[-1].batchId if progress else -1
            time.sleep(0.005)
        rate = (done - first) * batch / (time.perf_counter() - begin)
        query.stop()
        return rate

    def trigger(self) -> float:
        """Return the milliseconds of a trigger with ten messages, from queue to queue."""
        query = self._query(
            self._stream().load().select("body"), "escrowmq", {"queue": "bench-out"}, available_now=False
        )
        escrow = Escrow(self._connection)
        for number in range(1, TRIGGERS + 1):
            self._channel.publish_many("", "bench-in", [b"x"] * LITTLE, PERSISTENT)
            while escrow.describe("bench-out")[0].ready < number * LITTLE:
                time.sleep(0.002)
        found = triggers(query)
        query.stop()
        self._channel.queue_purge("bench-out")
        return found

    def trigger_twin(self) -> float:
        """Return the milliseconds of a trigger of Spark's rate source, whose rows are discarded."""
        source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", LITTLE)
        query = self._query(source.load(), "noop", {}, available_now=False)
        while len([each for each in query.recentProgress if each.numInputRows]) < TRIGGERS:
            time.sleep(0.01)
        found = triggers(query)
        query.stop()
        return found

    def _stream(self) -> Any:
        group = f"bench-{self._runs}"  # each query has its own checkpoint, and therefore its own group
        return self.spark.readStream.format("escrowmq").option("subscribe", "bench-in").option("group", group)

    def _query(self, rows: DataFrame, sink: str, options: dict[str, str], *, available_now: bool) -> Any:
        self._runs += 1
        writer = rows.writeStream.format(sink).options(**options)
        writer = writer.option("checkpointLocation", str(self._folder / f"checkpoint-{self._runs}"))
        return (writer.trigger(availableNow=True) if available_now else writer).start()


def nowhere(rows: DataFrame) -> None:
    """Compute all rows and discard them."""
    rows.write.format("noop").mode("append").save()


def triggers(query: Any) -> float:
    """Return the median duration of the triggers that had rows, without the first two, in milliseconds."""
    times = [float(each.durationMs["triggerExecution"]) for each in query.recentProgress if each.numInputRows]
    return median(times[2:])


def measure(url: str, count: int, folder: Path) -> dict[str, float]:
    """Run each job once to warm up and once to measure."""
    link = Link(url, count, folder)
    try:
        found = {}
        for job in (link.read, link.write, link.through, link.read_twin, link.through_twin):
            job()
            found[job.__name__] = job()
        found["trigger"], found["trigger_twin"] = link.trigger(), link.trigger_twin()
        return found
    finally:
        link.close()


def measured(url: str, count: int) -> dict[str, float]:
    """Run `measure` in a separate process, whose Spark session ends with it."""
    command = [sys.executable, str(Path(__file__).resolve()), url, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), Path(scratch))))

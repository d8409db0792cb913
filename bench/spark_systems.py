"""`python bench/spark_systems.py URL JARS COUNT PID…`: Spark reads, writes and moves the same rows, for one system.

The URL is that of EscrowMQ or of Kafka (`kafka://HOST:PORT`). Everything else is the same for both: rows, session,
partitions, jobs. The processor time of the broker, whose processes are given, and of Spark is that of the measured run
of each job, for each row.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import escrowmq.spark
from bench.peer_rows import ESCROWMQ, KAFKA, PARTITIONS, Form, store
from bench.spark_link import nowhere
from bench.spark_rows import COLUMNS, ROWS, cpu_seconds
from escrowmq.client import connect
from escrowmq.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOBS = ("write", "read", "through")
BATCHES = 4
_LIMIT_SECONDS = 1800


class System(ABC):
    """A broker and its connector."""

    form: Form
    format: str

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._runs = 0

    @abstractmethod
    def sink(self, columns: str, target: str) -> dict[str, str]:
        """Return the sink's options."""

    @abstractmethod
    def source(self, name: str, most: int | None = None) -> dict[str, str]:
        """Return the source's options, for at most `most` messages in a micro-batch of a stream."""

    @abstractmethod
    def fresh(self) -> tuple[str, str]:
        """Return the names of two empty queues or topics."""

    def write(self, rows: DataFrame, columns: str, target: str) -> None:
        """Write all rows in one job."""
        chosen = rows.selectExpr(*self.form.stored[columns])
        chosen.write.format(self.format).options(**self.sink(columns, target)).mode("append").save()

    def read(self, name: str, columns: str) -> None:
        """Read all messages in one job and discard them."""
        reader = self.spark.read.format(self.format).options(**self.source(name))
        nowhere(self.columns(reader, columns))

    def through(self, name: str, target: str, columns: str, count: int) -> None:
        """Move all messages in micro-batches."""
        self._runs += 1
        reader = self.spark.readStream.format(self.format).options(**self.source(name, count // BATCHES))
        writer = self.columns(reader, columns).writeStream.format(self.format).options(**self.sink(columns, target))
        writer = writer.option("checkpointLocation", str(self.folder / f"checkpoint-{self._runs}"))
        writer.trigger(availableNow=True).start().awaitTermination()

    @abstractmethod
    def columns(self, reader: Any, columns: str) -> DataFrame:
        """Load rows with these columns."""


class EscrowSystem(System):
    """EscrowMQ. Rows with all columns go through a topic exchange, under their own routing keys."""

    form = ESCROWMQ
    format = "escrowmq"

    def __init__(self, spark: SparkSession, folder: Path, url: str) -> None:
        super().__init__(spark, folder)
        escrowmq.spark.register(spark)
        self._connection = connect(url)
        self._channel = self._connection.channel()
        self._queues = 0

    def fresh(self) -> tuple[str, str]:
        names = []
        for _ in range(2):
            self._queues += 1
            name = f"bench-{self._queues}"
            self._channel.queue_declare(name, durable=True)
            self._channel.exchange_declare(name, "topic", durable=True)
            self._channel.queue_bind(name, name, "region.#")
            names.append(name)
        return names[0], names[1]

    def sink(self, columns: str, target: str) -> dict[str, str]:
        return {"exchange": target} if columns == "all" else {"queue": target}

    def source(self, name: str, most: int | None = None) -> dict[str, str]:
        options = {"subscribe": name, "group": name, "minPartitions": str(PARTITIONS)}
        return options if most is None else {**options, "maxMessagesPerTrigger": str(most)}

    def columns(self, reader: Any, columns: str) -> DataFrame:
        schema = "body binary" if columns == "body" else None
        rows: DataFrame = (reader if schema is None else reader.schema(schema)).load()
        return rows.select(*self.form.read[columns])


class KafkaSystem(System):
    """Kafka, by the connector that is part of Spark. Topics are created by the first message."""

    form = KAFKA
    format = "kafka"

    def __init__(self, spark: SparkSession, folder: Path, servers: str) -> None:
        super().__init__(spark, folder)
        self._servers = servers
        self._topics = 0

    def fresh(self) -> tuple[str, str]:
        self._topics += 2
        return f"bench-{self._topics - 1}", f"bench-{self._topics}"

    def sink(self, columns: str, target: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._servers, "topic": target}

    def source(self, name: str, most: int | None = None) -> dict[str, str]:
        options = {
            "kafka.bootstrap.servers": self._servers,
            "subscribe": name,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "minPartitions": str(PARTITIONS),
        }
        return options if most is None else {**options, "maxOffsetsPerTrigger": str(most)}

    def columns(self, reader: Any, columns: str) -> DataFrame:
        rows: DataFrame = reader.load().select(*self.form.read[columns])
        return rows


class Meter:
    """Measures jobs: rows per second, and microseconds of processor time per row of the broker and of Spark."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self.found: dict[str, float] = {}

    def take(self, name: str, count: int, job: Callable[[], None]) -> None:
        """Run a job and note its figures."""
        before = cpu_seconds(self._pids)
        begin = time.perf_counter()
        job()
        seconds = time.perf_counter() - begin
        spark, broker = (now - then for now, then in zip(cpu_seconds(self._pids), before, strict=True))
        self.found[name] = count / seconds
        self.found[f"{name}-cpu-broker"] = broker / count * 1e6
        self.found[f"{name}-cpu-spark"] = spark / count * 1e6


def measure(url: str, jars: str, count: int, pids: Sequence[int], folder: Path) -> dict[str, float]:
    """Run each job once to warm up and once to measure."""
    # Rates are those of a long-lived application, so Java may use its optimising compiler.
    conf = {"spark.jars": jars, "spark.sql.shuffle.partitions": str(PARTITIONS), "spark.driver.memory": "2g"}
    conf["spark.driver.extraJavaOptions"] = "-XX:+UseParallelGC"
    # What the guide from-queue-to-table.md advises for small messages. It does not concern the connector for Kafka.
    conf["spark.sql.execution.arrow.maxRecordsPerBatch"] = "2000"
    conf["spark.sql.execution.arrow.maxBytesPerBatch"] = str(2**31 - 1)
    os.environ["ESCROWMQ_URL"] = url  # before the session, whose processes inherit it
    spark = session("local[2]", conf=conf)
    meter = Meter(pids)
    try:
        system: System
        if url.startswith("kafka://"):
            system = KafkaSystem(spark, folder, url.removeprefix("kafka://"))
        else:
            system = EscrowSystem(spark, folder, url)
        for kind in ROWS:
            for size, measured in ((max(count // 5, 1000), False), (count, True)):
                rows = store(spark, kind, size, folder)
                for columns in COLUMNS:
                    _jobs(system, meter if measured else Meter(()), rows, f"{kind}-{columns}", columns, size)
        return meter.found
    finally:
        spark.stop()


def _jobs(system: System, meter: Meter, rows: DataFrame, name: str, columns: str, count: int) -> None:
    source, target = system.fresh()
    meter.take(f"write-{name}", count, lambda: system.write(rows, columns, source))
    meter.take(f"read-{name}", count, lambda: system.read(source, columns))
    if system.format == "escrowmq":
        escrowmq.spark.release(subscribe=source, group=source)
    meter.take(f"through-{name}", count, lambda: system.through(source, target, columns, count))


def measured_systems(url: str, jars: Path, count: int, pids: Sequence[int]) -> dict[str, float]:
    """Run `measure` in a separate process, whose Spark session ends with it. Raises RuntimeError if it fails."""
    names = ",".join(str(jar) for jar in sorted(jars.glob("*.jar")))
    command = [sys.executable, str(Path(__file__).resolve()), url, names, str(count), *map(str, pids)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        given = sys.argv
        print(json.dumps(measure(given[1], given[2], int(given[3]), [int(pid) for pid in given[4:]], Path(scratch))))

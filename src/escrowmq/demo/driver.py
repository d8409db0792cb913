"""Spark's driver process, with a JVM: runs the query, and restarts it when the broker was away.

The query has two outputs, of which only one is the broker's. Each message takes effect exactly once in both:

1. Spark writes the epoch and its range of messages to the checkpoint; the broker reserves the range for the query. When
   the epoch is run again, it has the same number and the same messages.
2. The epoch's sums are written to the folder `epoch=N` of the table. Writing them again replaces the folder with the
   same content.
3. The late flights are prepared as branches of one global transaction. One decision, which is one record in the
   broker's journal, commits them, settles the range, and records that the application has reached epoch N.

A crash before step 3 leaves reserved messages, invisible branches, and possibly a folder; the epoch is run again and
replaces it. After step 3 the broker reports epoch N as decided. Its range is settled and cannot be read again, which is
not necessary either, because its folder was complete before. So each message is in one folder, and its late flight is
on the queue once.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import escrowmq.client
import escrowmq.spark
from escrowmq.client.escrow import Escrow
from escrowmq.demo import query
from escrowmq.demo.events import Begun, Decided, Failed, Lost, Stopped, Tabled, Up
from escrowmq.demo.link import LATE, PATIENCE, STREAMING
from escrowmq.demo.process import prepare

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SINK: Final = "late"
GROUP: Final = "delays"
URL_VARIABLE: Final = "ESCROWMQ_URL"
TURN: Final = 0.2
"""Seconds between two checks of the query."""

_log: Final = logging.getLogger("pyspark")


@dataclass(frozen=True, slots=True)
class Job:
    """The driver's task.

    Args:
        url: The broker's URL.
        application: The name under which the broker records the epochs of this query.
        folder: The folder for the table, the checkpoint and the log.
        most: The largest number of messages in one epoch.
    """

    url: str
    application: str
    folder: Path
    most: int

    @property
    def table(self) -> Path:
        """Parquet files, with a folder for each epoch."""
        return self.folder / "delays"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpoint, from which the query continues."""
        return self.folder / "checkpoint"

    @property
    def log(self) -> Path:
        """Spark's log."""
        return self.folder / "spark.log"

    def share(self, epoch: int) -> Path:
        """Return the folder of an epoch in the table."""
        return self.table / f"epoch={epoch:06}"


class Driver:
    """One run of the driver."""

    def __init__(self, pipe: Connection, job: Job) -> None:
        self._pipe = pipe
        self._job = job
        self._stop = threading.Event()

    def run(self) -> None:
        """Run the query until told to stop."""
        from escrowmq.pipeline.session import session

        spark = session("local[2]", conf={"spark.app.name": "flights", "spark.sql.shuffle.partitions": "1"})
        escrowmq.spark.register(spark)
        threading.Thread(target=self._listen, daemon=True).start()
        self._pipe.send(Up(spark.version))
        while not self._stop.is_set():
            failed = self._attend(self._start(spark))
            if failed is not None:
                self._pipe.send(Lost(failed))
                self._await_broker()
        self._pipe.send(Stopped())
        spark.stop()

    def _start(self, spark: SparkSession) -> StreamingQuery:
        messages = (
            spark.readStream.format("escrowmq")
            .option("subscribe", STREAMING)
            .option("group", GROUP)
            .option("maxMessagesPerTrigger", self._job.most)
            .option("minPartitions", 2)
            .options(**self._identity())
            .schema("body string")
            .load()
        )
        return (
            messages.writeStream.queryName("delays")
            .option("checkpointLocation", str(self._job.checkpoint))
            .foreachBatch(self._epoch)
            .start()
        )

    def _identity(self) -> dict[str, Any]:
        """Return the options that source and sink share, so that a decision of the sink settles what the source has
        read.
        """
        return {"txn.app_id": self._job.application, "txn.sink_id": SINK}

    def _epoch(self, messages: DataFrame, epoch: int) -> None:
        """Process one micro-batch. The module's docstring explains why the result is exactly once."""
        self._pipe.send(Begun(epoch))
        done = self._progress()
        before = done is not None and done >= epoch
        if not before:
            flights = query.parsed(messages).persist()
            try:
                query.sums(flights).write.mode("overwrite").parquet(str(self._job.share(epoch)))
                self._pipe.send(Tabled(epoch))
                late = query.late(flights).write.format("escrowmq").mode("append")
                late.option("queue", LATE).options(**self._identity()).save()
            finally:
                flights.unpersist()
        self._pipe.send(Decided(epoch, self._rows(epoch), before))

    def _progress(self) -> int | None:
        """Return the last epoch that the broker has decided."""
        with escrowmq.client.connect(self._job.url) as connection:
            return Escrow(connection).progress(f"{self._job.application}/{SINK}")

    def _rows(self, epoch: int) -> int:
        """Return the number of an epoch's flights in the table."""
        from pyarrow import compute, parquet

        return int(compute.sum(parquet.read_table(self._job.share(epoch), columns=["flights"])["flights"]).as_py())

    def _attend(self, running: StreamingQuery) -> str | None:
        """Wait until the query stops or fails. Returns None, or the reason of the failure."""
        while running.isActive:
            if self._stop.wait(TURN):
                running.stop()
        error = running.exception()
        if error is None:
            return None
        _log.warning("the query has failed: %s", error)
        return reason(str(error))

    def _await_broker(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                escrowmq.client.connect(self._job.url).close()
            except escrowmq.client.Error:
                if time.monotonic() > deadline:
                    raise
                time.sleep(TURN)
            else:
                return

    def _listen(self) -> None:
        """Stop the query on any message from the parent process, or when that process has ended."""
        with suppress(EOFError, OSError):
            self._pipe.recv()
        self._stop.set()


def reason(text: str) -> str:
    """Return the one line of Spark's text about a failure that comes from EscrowMQ, or the first line."""
    lines = text.splitlines()
    ours = [line.partition("Error: ")[2] for line in lines if line.startswith("escrowmq.") and "Error: " in line]
    return (ours or lines or ["unknown"])[0]


def run(pipe: Connection, job: Job) -> None:
    """Run the process, in a process group with its JVM. Reports events through `pipe`."""
    os.setsid()
    prepare()
    with job.log.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ[URL_VARIABLE] = job.url
    try:
        Driver(pipe, job).run()
    except BrokenPipeError:
        pass  # the parent process has ended
    except Exception as error:  # noqa: BLE001 - any failure is reported
        _log.exception("the driver failed")
        pipe.send(Failed(f"driver: {reason(str(error)) or type(error).__name__}"))

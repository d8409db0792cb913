"""A source and a sink that kill a real process with SIGKILL when they reach a given point.

Environment variables configure the kill: `KILL_POINT` is one of POINTS, `KILL_AFTER` the number of times that the point
is passed before, and `KILL_FOLDER` the folder of the files with process IDs and the count of passes.
"""

# ruff: noqa: N802 - Spark's names of methods
from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from escrowmq.spark.options import SinkOptions, SourceOptions
from escrowmq.spark.plan import Part
from escrowmq.spark.sink import StreamWriter
from escrowmq.spark.source import StreamReader
from escrowmq.spark.source_format import EscrowDataSource

DRIVER = (
    "driver: the range is reserved, its offset is not recorded",
    "driver: the epoch is planned",
    "driver: one task has prepared, the other has not",
    "driver: all are prepared, nothing is decided",
    "driver: the epoch is decided, Spark has not recorded it",
    "driver: before the source's commit",
    "driver: after the source's commit",
    "driver: a worker sleeps in write, and wakes up after the end",
)
WORKER = (
    "worker: during read",
    "worker: during write",
    "worker: prepared, but has not reported",
)
BROKER = (
    "broker: the range is reserved, its offset is not recorded",
    "broker: during read",
    "broker: during write",
    "broker: one task has prepared, the other has not",
    "broker: all are prepared, nothing is decided",
    "broker: the epoch is decided, Spark has not recorded it",
)
POINTS = (*DRIVER, *WORKER, *BROKER)
ASLEEP = DRIVER[-1]
PATIENCE = 60.0
POLL = 0.01


def folder() -> Path:
    return Path(os.environ["KILL_FOLDER"])


def here(*points: str) -> bool:
    """Return whether the kill is due now, at one of these points. Counts the passes."""
    if os.environ.get("KILL_POINT") not in points:
        return False
    with (folder() / "passes").open("ab", buffering=0) as counter:
        counter.write(b".")
        return counter.tell() == int(os.environ["KILL_AFTER"]) + 1


def reach(place: str) -> None:
    """Kill the driver, worker or broker if the kill at this place is due."""
    points = tuple(f"{whom}: {place}" for whom in ("driver", "worker", "broker"))
    if here(*points):
        kill(os.environ["KILL_POINT"].partition(":")[0])


def kill(whom: str) -> None:
    """Kill a process by its role. The worker is the calling process; the driver is a Python process and a JVM."""
    if whom == "worker":
        os.kill(os.getpid(), signal.SIGKILL)
    for pid in (folder() / f"{whom}.pids").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    if whom == "driver":
        time.sleep(PATIENCE)  # this process ends with its driver


def partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def wait_for(name: str) -> None:
    """Wait until there is a file of this name."""
    deadline = time.monotonic() + PATIENCE
    while not (folder() / name).exists() and time.monotonic() < deadline:
        time.sleep(POLL)


class MortalReader(StreamReader):
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        end = super().latestOffset(start, limit)
        if end != start:
            reach("the range is reserved, its offset is not recorded")
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        found = super().partitions(start, end)
        reach("the epoch is planned")
        return found

    def read(self, partition: Part) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().read(partition):
            yield batch
            reach("during read")

    def commit(self, end: dict[str, Any]) -> None:
        reach("before the source's commit")
        super().commit(end)
        reach("after the source's commit")


class MortalWriter(StreamWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        one_prepared = tuple(f"{whom}: one task has prepared, the other has not" for whom in ("driver", "broker"))
        if os.environ.get("KILL_POINT") in one_prepared and partition() == 0:
            written = super().write(iterator)
            reach("one task has prepared, the other has not")
            return written
        written = super().write(self._mortal(iterator))
        reach("prepared, but has not reported")
        return written

    def _mortal(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for batch in iterator:
            yield batch
            reach("during write")
            if here(ASLEEP):
                os.setsid()  # like a worker on another machine, which does not notice the driver's end
                (folder() / "asleep").write_text(str(os.getpid()))
                for pid in (folder() / "driver.pids").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                wait_for("awake")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        reach("all are prepared, nothing is decided")
        super().commit(messages, batchId)
        reach("the epoch is decided, Spark has not recorded it")


class MortalDataSource(EscrowDataSource):
    """A data source with the mortal reader and writer."""

    def streamReader(self, schema: StructType) -> MortalReader:
        return MortalReader(SourceOptions.of(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> MortalWriter:
        return MortalWriter(SinkOptions.of(self.options))

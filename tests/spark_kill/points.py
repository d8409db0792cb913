"""The source and sink with places at which somebody is killed. What is killed is the real thing, by SIGKILL.

The environment says where and whom: `KILL_POINT`, of POINTS; `KILL_AFTER`, how many times it is passed before that;
`KILL_FOLDER`, where the processes' ids lie and the passes are counted.
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
    "driver: the range is held, its offset is not noted",
    "driver: the epoch is planned",
    "driver: one task has prepared, the other has not",
    "driver: all are prepared, nothing is decided",
    "driver: the epoch is decided, Spark has not noted it",
    "driver: before the source's commit",
    "driver: after the source's commit",
    "driver: a worker sleeps in write, and wakes up when all is over",
)
WORKER = (
    "worker: amid of read",
    "worker: amid of write",
    "worker: prepared, and has not told",
)
BROKER = (
    "broker: the range is held, its offset is not noted",
    "broker: amid of read",
    "broker: amid of write",
    "broker: one task has prepared, the other has not",
    "broker: all are prepared, nothing is decided",
    "broker: the epoch is decided, Spark has not noted it",
)
POINTS = (*DRIVER, *WORKER, *BROKER)
ASLEEP = DRIVER[-1]
PATIENCE = 60.0
POLL = 0.01


def folder() -> Path:
    return Path(os.environ["KILL_FOLDER"])


def here(*points: str) -> bool:
    """Whether it is now and at one of these points that somebody is killed."""
    if os.environ.get("KILL_POINT") not in points:
        return False
    with (folder() / "passes").open("ab", buffering=0) as counter:
        counter.write(b".")
        return counter.tell() == int(os.environ["KILL_AFTER"]) + 1


def reach(place: str) -> None:
    """Kill whoever is to be killed at this place."""
    points = tuple(f"{whom}: {place}" for whom in ("driver", "worker", "broker"))
    if here(*points):
        kill(os.environ["KILL_POINT"].partition(":")[0])


def kill(whom: str) -> None:
    """The worker is the process that calls; the driver is Python's process and the JVM."""
    if whom == "worker":
        os.kill(os.getpid(), signal.SIGKILL)
    for pid in (folder() / f"{whom}.pids").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    if whom == "driver":
        time.sleep(PATIENCE)  # what follows a kill is the end, sooner or later


def partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def wait_for(name: str) -> None:
    """Until there is a file of this name."""
    deadline = time.monotonic() + PATIENCE
    while not (folder() / name).exists() and time.monotonic() < deadline:
        time.sleep(POLL)


class MortalReader(StreamReader):
    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        end = super().latestOffset(start, limit)
        if end != start:
            reach("the range is held, its offset is not noted")
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        found = super().partitions(start, end)
        reach("the epoch is planned")
        return found

    def read(self, partition: Part) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().read(partition):
            yield batch
            reach("amid of read")

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
        reach("prepared, and has not told")
        return written

    def _mortal(self, iterator: Iterator[Any]) -> Iterator[Any]:
        for batch in iterator:
            yield batch
            reach("amid of write")
            if here(ASLEEP):
                os.setsid()  # it is on another machine, say, and does not notice that the driver has gone
                (folder() / "asleep").write_text(str(os.getpid()))
                for pid in (folder() / "driver.pids").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                wait_for("awake")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        reach("all are prepared, nothing is decided")
        super().commit(messages, batchId)
        reach("the epoch is decided, Spark has not noted it")


class MortalDataSource(EscrowDataSource):
    """In the place of the real one."""

    def streamReader(self, schema: StructType) -> MortalReader:
        return MortalReader(SourceOptions.of(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> MortalWriter:
        return MortalWriter(SinkOptions.of(self.options))

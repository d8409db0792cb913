"""Identify a writer to the broker: application, epoch, global transaction and branches.

A task learns its query, epoch and run from Spark's local properties. Their names are internal constants of Spark, so
tasks raise an error if they are missing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from escrowmq.client import Xid
from escrowmq.spark.errors import EscrowSparkError

if TYPE_CHECKING:
    from pyspark import TaskContext

FORMAT_ID: Final = 0x45535051  # "ESPQ"
SETTLE: Final = b"settle"
"""The prefix of the branch in which all sources of an epoch settle the messages that they have read.

All attempts within a run settle the same messages, so they share one branch, which the sink can find without knowing
the sources. If a checkpoint was modified by hand, another run may have another range for the epoch, so each run has a
branch of its own.
"""
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
UNTOLD: Final = (
    f"this task has no query and batch ({QUERY_ID}, {BATCH_ID}) from Spark: in foreachBatch start threads with "
    "pyspark.inheritable_thread_target; with Spark Connect set acknowledge=commit, txn.app_id and txn.version"
)
_MOST_GTRID: Final = 64
_MOST_APPLICATION: Final = 200


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch of an application: a micro-batch of a query, or a version of a batch job.

    Args:
        application: the name under which the broker keeps the progress; empty for a job that runs only once.
        number: the number of the epoch.
        transaction: identifies a job that runs only once.
        run: identifies one start of a query.
        query: Spark's ID of the query, which belongs to its checkpoint; empty if it is also the application's name.
    """

    application: str
    number: int
    transaction: str = ""
    run: str = ""
    query: str = ""

    @property
    def claim(self) -> Epoch | None:
        """An epoch to record before this one is decided, which says that this one belongs to this query.

        A new checkpoint has a new query, whose numbers begin at 0 again. None if the application is named after the
        query, so that they cannot be confused.
        """
        return Epoch(f"{self.application}@{self.query}", self.number) if self.query else None

    @property
    def once(self) -> bool:
        """Whether the job runs only once and is never retried."""
        return not self.application

    @property
    def gtrid(self) -> bytes:
        """The global transaction ID, at most 64 bytes. It is the same for every attempt at this epoch."""
        name = self.transaction or self.application
        text = f"{name}#{self.number}".encode()
        if len(text) > _MOST_GTRID:
            text = f"{hashlib.sha256(name.encode()).hexdigest()[:40]}#{self.number}".encode()
        return text

    @property
    def settle(self) -> Xid:
        """The branch in which the sources settle."""
        return Xid(FORMAT_ID, self.gtrid, SETTLE + self.run.encode())

    def branch(self, bqual: bytes) -> Xid:
        """Return the branch of this epoch with the qualifier `bqual`."""
        return Xid(FORMAT_ID, self.gtrid, bqual)

    def stale(self, xid: Xid) -> bool:
        """Return whether a branch belongs to this epoch or an earlier one."""
        mine, _, _ = self.gtrid.rpartition(b"#")
        name, _, number = xid.gtrid.rpartition(b"#")
        return xid.format_id == FORMAT_ID and name == mine and number.isdigit() and int(number) <= self.number


def application_of(query: str, app_id: str | None, sink_id: str | None) -> str:
    """Return the application's name, under which the broker keeps its progress.

    Args:
        query: Spark's ID of the query, used if `app_id` is None.
        app_id: the option txn.app_id.
        sink_id: the option txn.sink_id, which is appended.

    Raises:
        EscrowSparkError: the name is longer than 200 bytes.
    """
    name = (app_id or query) + (f"/{sink_id}" if sink_id else "")
    if len(name.encode()) > _MOST_APPLICATION:
        raise EscrowSparkError(f"txn.app_id and txn.sink_id together may have at most {_MOST_APPLICATION} bytes")
    return name


def query_of(checkpoint: str) -> str:
    """Return Spark's ID of the query with this checkpoint, for the driver, which is not told.

    It is empty if the checkpoint is not a folder that this process can read.
    """
    path = checkpoint.removeprefix("file:")
    if path.startswith("//"):
        path = "/" + path.lstrip("/")
    try:
        return str(json.loads(Path(path, "metadata").read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def streaming_epoch(app_id: str | None, sink_id: str | None) -> Epoch | None:
    """Return the epoch of the micro-batch to which this task belongs; None if it belongs to no streaming query."""
    context = _context()
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        return None
    run = hashlib.sha256(f"{context.getLocalProperty(RUN_ID)}".encode()).hexdigest()[:16]
    return Epoch(application_of(query, app_id, sink_id), int(batch), run=run, query=query if app_id else "")


def required_epoch(app_id: str | None, sink_id: str | None) -> Epoch:
    """Return the epoch of the micro-batch to which this task belongs.

    Raises:
        EscrowSparkError: Spark has not passed the query and the batch to this task.
    """
    epoch = streaming_epoch(app_id, sink_id)
    if epoch is None:
        raise EscrowSparkError(UNTOLD)
    return epoch


def attempt(job: str = "") -> bytes:
    """Return a prefix for branch qualifiers that is unique to this attempt at a task.

    It contains the run or, in a batch, the name `job`, because Spark counts attempts from 0 again when the driver is
    restarted.
    """
    context = _context()
    run = f"{job} {context.getLocalProperty(RUN_ID)} {context.stageId()}"
    short = hashlib.sha256(run.encode()).hexdigest()[:16]
    return f"{context.partitionId()}.{short}.{context.taskAttemptId()}".encode()


def _context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise EscrowSparkError("this function must be called in a Spark task")
    return context

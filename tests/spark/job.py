"""`python -m tests.spark.job MASTER URL_FILE CHECKPOINT` moves messages from `in` to `out` on any Spark master."""

from __future__ import annotations

import sys

import escrowmq.spark
from escrowmq.pipeline.session import session
from tests.spark.cluster import QUICK
from tests.spark_settings import SMALL_QUERIES


def main(master: str, url: str, checkpoint: str) -> None:
    spark = session(
        master,
        conf={
            **SMALL_QUERIES,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            # Wait for both executors of a cluster, even if one of them is slow to start.
            "spark.cores.max": "2",
            "spark.scheduler.minRegisteredResourcesRatio": "1",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "100s",
        },
    )
    escrowmq.spark.register(spark)
    source = spark.readStream.format("escrowmq").option("connection", url).option("subscribe", "in")
    rows = source.option("group", "job").option("minPartitions", 4).option("maxMessagesPerTrigger", 1000).load()
    sink = rows.select("body").writeStream.format("escrowmq").option("connection", url).option("queue", "out")
    sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()
    print(f"master={spark.sparkContext.master} java={java(spark)} executors={executors - 1}")
    spark.stop()


def java(spark: object) -> str:
    return str(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(*sys.argv[1:])

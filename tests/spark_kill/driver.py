"""`python -m tests.spark_kill.driver FOLDER` moves messages from queue `in` to queue `out`, until it is killed.

Without the environment variable KILL_RECONNECT it ends when all messages have been moved.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from escrowmq.pipeline.session import session
from tests.spark_kill.points import MortalDataSource
from tests.spark_settings import SMALL_QUERIES


def main(folder: Path) -> None:
    spark = session("local[2,3]", conf=SMALL_QUERIES)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    (folder / "driver.pids").write_text(f"{gateway.proc.pid} {os.getpid()}")
    spark.dataSource.register(MortalDataSource)
    source = spark.readStream.format("escrowmq").option("subscribe", "in").option("group", "mover")
    source = source.option("maxMessagesPerTrigger", os.environ["KILL_BATCH"]).option("minPartitions", "2")
    seconds = os.environ.get("KILL_RECONNECT")
    source = source.option("reconnectTimeout", seconds or "60")
    sink = source.load().select("body").writeStream.format("escrowmq").option("queue", "out")
    sink = sink.option("checkpointLocation", str(folder / "checkpoint")).option("reconnectTimeout", seconds or "60")
    if seconds is None:
        sink = sink.trigger(availableNow=True)
    sink.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""`python -m tests.spark.connect_job REMOTE URL_FILE FOLDER` uses source and sink over Spark Connect."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import escrowmq.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Job:
    """Moves messages: `in` to `between` by the sink, and `between` to `out` by `foreachBatch`. Then it counts them."""

    def __init__(self, remote: str, url: str, folder: Path) -> None:
        self.spark = SparkSession.builder.remote(remote).getOrCreate()
        self.url, self.folder = url, folder
        escrowmq.spark.register(self.spark)

    def source(self, queue: str, **options: str) -> DataFrame:
        source = self.spark.readStream.format("escrowmq").option("connection", self.url).option("subscribe", queue)
        return source.options(group="job", maxMessagesPerTrigger="1000", **options).load()

    def by_sink(self) -> None:
        sink = self.source("in").select("body").writeStream.format("escrowmq").option("connection", self.url)
        sink = sink.option("queue", "between").option("checkpointLocation", str(self.folder / "one"))
        sink.trigger(availableNow=True).start().awaitTermination()

    def by_batches(self) -> None:
        def write(rows: DataFrame, number: int) -> None:
            sink = rows.select("body").write.format("escrowmq").mode("append").option("connection", self.url)
            sink.option("queue", "out").option("txn.app_id", "job-two").option("txn.version", number).save()

        query = self.source("between", acknowledge="commit").writeStream.foreachBatch(write)
        query = query.option("checkpointLocation", str(self.folder / "two"))
        query.trigger(availableNow=True).start().awaitTermination()

    def count(self) -> int:
        with escrowmq.spark.held(self.spark, connection=self.url, subscribe="out", group="count") as messages:
            return messages.count()


def main(remote: str, url: str, folder: str) -> None:
    job = Job(remote, url, Path(folder))
    job.by_sink()
    job.by_batches()
    print(f"counted={job.count()}")


if __name__ == "__main__":
    main(*sys.argv[1:])

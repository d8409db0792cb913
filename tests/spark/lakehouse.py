"""Move messages from a queue into a table of Delta and one of Iceberg, in a process that has another PySpark.

`python -m tests.spark.lakehouse FOLDER` needs `make lake`, and the broker's URL in ESCROWMQ_URL.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import escrowmq.spark
from escrowmq.client import Channel, connect
from escrowmq.client.escrow import Escrow
from escrowmq.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 10
_RUNS = 4


class Table:
    """A table that a query appends to, with the query's checkpoint. Queue, table and format have one name."""

    def __init__(self, name: str, folder: Path, spark: SparkSession) -> None:
        self.name = name
        self._path = str(folder / "table")
        self._checkpoint = folder / "checkpoint" / name
        self._spark = spark

    def run(self) -> None:
        """Run the query until it has read what there is. Older versions of Spark read one micro-batch in each run."""
        source = self._spark.readStream.format("escrowmq").option("subscribe", self.name).option("group", "g")
        rows = source.schema("body string, timestamp timestamp").load().select("body")
        writer = rows.writeStream.option("checkpointLocation", str(self._checkpoint)).outputMode("append")
        writer = writer.format(self.name).trigger(availableNow=True)
        query = writer.start(self._path) if self.name == "delta" else writer.toTable("house.events")
        query.awaitTermination()

    def undo_commit(self) -> None:
        """Make the checkpoint that of a driver which was killed when the table had the rows of the first epoch."""
        for name in ("0", ".0.crc"):
            (self._checkpoint / "commits" / name).unlink(missing_ok=True)

    def numbers(self) -> list[int]:
        """Return what the bodies of all rows say."""
        spark = self._spark
        rows = spark.read.format("delta").load(self._path) if self.name == "delta" else spark.table("house.events")
        return sorted(int(row.body) for row in rows.collect())


def check(table: Table, channel: Channel, broker: Escrow) -> None:
    """Check that a repeated epoch, and the one after it, are in the table once, and that nothing stays reserved."""
    publish(channel, table.name, 0)
    table.run()
    assert table.numbers() == list(range(COUNT)), table.name
    table.undo_commit()
    publish(channel, table.name, COUNT)
    for _ in range(_RUNS):
        table.run()
        assert table.numbers() in (list(range(COUNT)), list(range(2 * COUNT))), table.name
    assert table.numbers() == list(range(2 * COUNT)), table.name
    held = broker.hold(table.name, "g")
    assert (held.end - held.first, broker.describe(table.name)[0].ready) == (0, 0), table.name


def conf(folder: Path) -> dict[str, str]:
    jars = ",".join(map(str, sorted(Path(sys.prefix, "lake", "jars").glob("*.jar"))))
    return {
        "spark.jars": jars,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.house": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.house.type": "hadoop",
        "spark.sql.catalog.house.warehouse": str(folder / "warehouse"),
    }


def main(folder: Path) -> None:
    spark = session("local[2]", conf=conf(folder))
    escrowmq.spark.register(spark)
    spark.sql("CREATE TABLE house.events (body string) USING iceberg")
    with connect(os.environ["ESCROWMQ_URL"]) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        broker = Escrow(connection)
        for name in ("delta", "iceberg"):
            channel.queue_declare(name, durable=True)
            check(Table(name, folder, spark), channel, broker)
    spark.stop()


def publish(channel: Channel, queue: str, first: int) -> None:
    channel.publish_many("", queue, [b"%d" % number for number in range(first, first + COUNT)], b"\x10\x00\x02")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Helpers for tests of source and sink: declare queues, run queries, inspect the broker."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from escrowmq.client import Channel, Xid, connect
from escrowmq.client.escrow import Escrow, HoldState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.broker import BrokerProcess

PERSISTENT = b"\x10\x00\x02"


class Desk:
    """A test's view of the session and the broker. Names of queues get the test's name as a prefix."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, folder: Path, name: str) -> None:
        self.spark = spark
        self.broker = broker
        self.folder = folder
        self._prefix = name
        self._connection = connect(broker.url)
        self.channel: Channel = self._connection.channel()
        self.channel.confirm_delivery()
        self.escrow = Escrow(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for query in self.spark.streams.active:
            query.stop()
        self._connection.close()

    # -- queues

    def name(self, name: str) -> str:
        return f"{self._prefix}.{name}"

    def queue(self, name: str, bodies: Iterable[bytes] = (), **arguments: Any) -> str:
        """Declare a durable queue, publish `bodies` to it, and return its full name."""
        whole = self.name(name)
        self.channel.queue_declare(whole, durable=True, arguments=arguments or None)
        self.put(whole, bodies)
        return whole

    def stream(self, name: str, bodies: Iterable[bytes] = ()) -> str:
        return self.queue(name, bodies, **{"x-queue-type": "stream"})

    def put(self, queue: str, bodies: Iterable[bytes]) -> None:
        self.channel.publish_many("", queue, list(bodies), PERSISTENT)

    def get(self, queue: str) -> list[bytes]:
        """Consume all messages of a queue."""
        bodies = []
        while (found := self.channel.basic_get(queue, auto_ack=True))[2] is not None:
            bodies.append(found[2])
        return bodies

    def ready(self, queue: str) -> int:
        return self.escrow.describe(queue)[0].ready

    def held(self, queue: str, group: str = "g") -> HoldState:
        return self.escrow.hold(queue, group)

    def in_doubt(self) -> list[Xid]:
        return self._connection.tpc_recover()

    # -- queries

    def read(self, queue: str, group: str = "g", schema: str | None = None, **options: Any) -> DataFrame:
        """Return a streaming DataFrame."""
        reader = self.spark.readStream.format("escrowmq").option("subscribe", queue).option("group", group)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**options).load()

    def checkpoint(self, name: str = "checkpoint") -> Path:
        return self.folder / name

    def start(self, rows: DataFrame, checkpoint: str = "checkpoint", **options: Any) -> StreamingQuery:
        """Start a query that writes to the broker and ends when all available messages have been read."""
        writer = rows.writeStream.format("escrowmq").options(**options)
        return writer.option("checkpointLocation", str(self.checkpoint(checkpoint))).trigger(availableNow=True).start()

    def run(self, rows: DataFrame, checkpoint: str = "checkpoint", **options: Any) -> StreamingQuery:
        query = self.start(rows, checkpoint, **options)
        assert query.awaitTermination(100)
        return query

    def undo_commit(self, epoch: int, checkpoint: str = "checkpoint") -> None:
        """Restore the checkpoint of a driver that was killed before it recorded the epoch as done."""
        for path in (self.checkpoint(checkpoint) / "commits").iterdir():
            if path.name in {str(epoch), f".{epoch}.crc"}:
                path.unlink()


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def cause(error: BaseException) -> str:
    """Our own line in Spark's report of a failure."""
    lines = [line for line in str(error).splitlines() if line.startswith("escrowmq.")]
    assert lines, str(error)
    return lines[-1].partition("Error: ")[2]

"""The rows that Spark reads and writes in `spark_systems`, and how each system carries them.

Uniform rows are equal except for their bodies. Varied rows have what applications send: a message-id, a
correlation-id, a timestamp, three headers of which two differ, and a routing key of their own; and bodies of 50 to 130
bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BODY = 90
PARTITIONS = 4
_FIRST_TIMESTAMP = 1_700_000_000


def store(spark: SparkSession, kind: str, count: int, folder: Path) -> DataFrame:
    """Write the rows to a file, so that making them is not measured, and return them."""
    ids = "substr(sha2(concat('{0}', id), 256), 1, 36)"
    size = "50 + id % 81" if kind == "varied" else str(BODY)
    body = f"cast(substr(repeat(sha2(cast(id as string), 256), 3), 1, cast({size} as int)) as binary) body"
    if kind == "varied":
        columns = [
            "concat('region.', id % 1000, '.', id) key",
            f"{ids.format('m')} message_id",
            f"{ids.format('c')} correlation_id",
            f"timestamp_seconds({_FIRST_TIMESTAMP} + id div 1000) at",
            f"concat('00-', {ids.format('t')}, '-01') trace",
            "cast(id as string) sequence",
            "'orders' service",
        ]
    else:
        columns = [
            "'region.1' key",
            "'message' message_id",
            "'correlation' correlation_id",
            f"timestamp_seconds({_FIRST_TIMESTAMP}) at",
            "'trace' trace",
            "'1' sequence",
            "'orders' service",
        ]
    path = str(folder / f"{kind}-{count}")
    spark.range(0, count, 1, PARTITIONS).selectExpr(*columns, body).write.mode("overwrite").parquet(path)
    return spark.read.parquet(path)


@dataclass(frozen=True, slots=True)
class Form:
    """How a system carries rows: expressions from the stored rows, and from rows that were read to rows to write."""

    stored: dict[str, tuple[str, ...]]
    """By columns: `body` or `all`."""
    read: dict[str, tuple[str, ...]]


ESCROWMQ = Form(
    stored={
        "body": ("body",),
        "all": (
            "key routing_key",
            "named_struct('message_id', message_id, 'correlation_id', correlation_id, 'timestamp', at) properties",
            "map('traceparent', trace, 'sequence', sequence, 'service', service) headers",
            "body",
        ),
    },
    read={"body": ("body",), "all": ("routing_key", "properties", "headers", "body")},
)
_FIELDS = ("message_id", "correlation_id", "trace", "sequence", "service")
_HEADERS = ", ".join(f"named_struct('key', '{name}', 'value', cast({name} as binary))" for name in _FIELDS)
KAFKA = Form(
    # Kafka's messages have no ids, so these are headers. Spark's sink cannot set the timestamp, so Kafka sets it.
    stored={"body": ("body value",), "all": ("key", f"array({_HEADERS}) headers", "body value")},
    read={"body": ("value",), "all": ("key", "headers", "value", "timestamp")},
)

"""What the installed PySpark can do for sources and sinks in Python, found out by looking for each feature."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
    from pyspark.sql.types import StructType
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit:
            """How much of the available data a micro-batch may have."""

        class ReadAllAvailable(ReadLimit):
            """All of it."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """A number of messages."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """Not known to this PySpark."""

    if hasattr(datasource, "DataSourceStreamArrowWriter"):
        DataSourceStreamArrowWriter = datasource.DataSourceStreamArrowWriter
    else:

        class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
            """A writer of streams that gets record batches, which Spark gives to every DataSourceArrowWriter."""


__all__ = [
    "LIMITS",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "shortcomings",
]

LIMITS: Final = hasattr(datasource.DataSourceStreamReader, "getDefaultReadLimit")
"""Whether Spark tells a source where a micro-batch begins and how large it may be (since 4.2)."""
_ZONE: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {"timestamp_utc": True}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of rows for Spark."""
    return to_arrow_schema(schema, **_ZONE)


def shortcomings(version: str) -> list[str]:
    """Return a line for each thing that this PySpark cannot do, with the way round."""
    if LIMITS:
        return []
    text = (
        f"PySpark {version} does not tell sources in Python where a micro-batch begins: trigger availableNow reads one "
        "micro-batch of at most maxMessagesPerTrigger messages, which stay reserved until the next run unless the sink "
        "is escrowmq, and the first micro-batch of a run reads a stream to its end; use PySpark 4.2 or newer, or "
        "trigger processingTime"
    )
    return [text]

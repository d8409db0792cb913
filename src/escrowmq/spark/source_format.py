"""The data source `escrowmq` that is registered with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from escrowmq.spark.batch import BatchReader
from escrowmq.spark.errors import OptionError
from escrowmq.spark.features import LIMITS
from escrowmq.spark.older_source import OlderStreamReader
from escrowmq.spark.options import SinkOptions, SourceOptions
from escrowmq.spark.schema import SOURCE, check_sink, check_source
from escrowmq.spark.sink import BatchWriter, StreamWriter
from escrowmq.spark.source import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class EscrowDataSource(DataSource):
    """Creates readers and writers for `spark.readStream`, `read`, `writeStream` and `write`."""

    @classmethod
    def name(cls) -> str:
        return "escrowmq"

    def schema(self) -> StructType:
        SourceOptions.of(self.options)  # reports invalid options when the DataFrame is loaded
        return SOURCE

    def reader(self, schema: StructType) -> DataSourceReader:
        check_source(schema)
        return BatchReader(SourceOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        check_source(schema)
        reader = StreamReader if LIMITS else OlderStreamReader
        return reader(SourceOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError("the sink can only append messages; use mode append")
        return BatchWriter(self._sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamWriter(self._sink(schema))

    def _sink(self, schema: StructType) -> SinkOptions:
        options = SinkOptions.of(self.options)
        given = {"queue": options.queue, "exchange": options.exchange, "key": options.routing_key}
        check_sink(schema, **{name: value is not None for name, value in given.items()})
        return options

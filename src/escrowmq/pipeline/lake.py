"""Publish silver and gold as Delta or Iceberg tables, if the Spark session supports that.

Runs read only the Parquet tables; the tables here are copies of them. Each is updated in one commit of its format,
which replaces only the rows that this run has changed. The whole table is replaced if it is not as the previous run
left it, either because that run did not publish it, or because this run was killed and is repeated.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from escrowmq.pipeline.store import GROWING, Store, StoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("parquet", "delta", "iceberg")
TABLES: Final = {
    "silver.messages": ("state", "day"),
    "silver.branches": ("state",),
    "gold.violations": (),
    "gold.undecided": (),
    "gold.latency": (),
    "gold.throughput": (),
}
"""The published tables, with the columns by which each is partitioned."""

_EXTENSIONS: Final = "spark.sql.extensions"
_CATALOG: Final = "spark.sql.catalog."
_DELTA: Final = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_ICEBERG: Final = "org.apache.iceberg.spark.SparkCatalog"
_PROBE: Final = "silver.escrowmq_probe"
_OWNER: Final = "escrowmq.journal"
"""The property of an Iceberg table that contains the ID of its journal."""


class Lake(ABC):
    """The tables in one format."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def foreign(self) -> str | None:
        """Return the name of a table in this place that does not belong to this journal; None if there is none."""
        return None

    @abstractmethod
    def read(self, table: str) -> DataFrame | None:
        """Return the content of a table; None if it does not exist."""

    @abstractmethod
    def write(self, table: str, frame: DataFrame, by: tuple[str, ...], where: str | None = None) -> None:
        """Replace the rows that meet `where`, or all rows, by `frame`. Creates the table if necessary.

        Args:
            table: the table's name, as in TABLES.
            frame: the new rows.
            by: the columns to partition by.
            where: an SQL condition; None replaces the whole table and its schema.
        """

    @abstractmethod
    def drop(self, table: str) -> None:
        """Remove a table, if it exists."""


class Delta(Lake):
    """Delta tables in folders."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark)
        self._folder = folder.absolute()

    def _path(self, table: str) -> Path:
        return self._folder.joinpath(*table.split("."))

    def read(self, table: str) -> DataFrame | None:
        path = self._path(table)
        return self.spark.read.format("delta").load(str(path)) if (path / "_delta_log").exists() else None

    def write(self, table: str, frame: DataFrame, by: tuple[str, ...], where: str | None = None) -> None:
        writer = frame.write.format("delta").mode("overwrite").partitionBy(*by)
        writer = writer.option("partitionOverwriteMode", "static")
        writer = writer.option("overwriteSchema", "true") if where is None else writer.option("replaceWhere", where)
        writer.save(str(self._path(table)))

    def drop(self, table: str) -> None:
        shutil.rmtree(self._path(table), ignore_errors=True)


class Iceberg(Lake):
    """Iceberg tables in a catalog of the session."""

    def __init__(self, spark: SparkSession, catalog: str, journal: str) -> None:
        super().__init__(spark)
        self._catalog = catalog
        self._journal = journal

    def foreign(self) -> str | None:
        """Return the name of a table with one of our names but another owner. A catalog, unlike a folder, may be
        shared.
        """
        for table in TABLES:
            name = f"{self._catalog}.{table}"
            if not self.spark.catalog.tableExists(name):
                continue
            properties = {row.key: row.value for row in self.spark.sql(f"show tblproperties {name}").collect()}
            if properties.get(_OWNER) != self._journal:
                return name
        return None

    def read(self, table: str) -> DataFrame | None:
        name = f"{self._catalog}.{table}"
        return self.spark.table(name) if self.spark.catalog.tableExists(name) else None

    def write(self, table: str, frame: DataFrame, by: tuple[str, ...], where: str | None = None) -> None:
        from pyspark.sql import functions as f

        self.spark.sql(f"create namespace if not exists {self._catalog}.{table.partition('.')[0]}")
        writer = frame.writeTo(f"{self._catalog}.{table}")
        if where is not None:
            writer.overwrite(f.expr(where))
            return
        writer = writer.using("iceberg").tableProperty(_OWNER, self._journal)
        (writer.partitionedBy(*map(f.col, by)) if by else writer).createOrReplace()

    def drop(self, table: str) -> None:
        self.spark.sql(f"drop table if exists {self._catalog}.{table} purge")


def wanted(spark: SparkSession, asked: str | None) -> str:
    """Return the format to use: `asked`, otherwise the session's default source if it is one of FORMATS, otherwise
    Parquet.
    """
    configured = str(spark.conf.get("spark.sql.sources.default", "parquet"))
    return asked or (configured if configured in FORMATS else "parquet")


def lake(spark: SparkSession, folder: Path, format_: str, journal: str) -> Lake | None:
    """Return the place for tables of the given format; None for Parquet.

    Args:
        spark: the session that writes the tables.
        folder: the folder for Delta tables; Iceberg tables go to the session's catalog.
        format_: one of FORMATS.
        journal: the ID of the journal.

    Raises:
        StoreError: the session cannot write and read such a table, or the catalog has tables of another journal.
    """
    if format_ == "parquet":
        return None
    found = _delta(spark, folder) if format_ == "delta" else _iceberg(spark, journal)
    try:
        foreign = found.foreign()
        if foreign is not None:
            raise StoreError(f"--format {format_}: {foreign} does not belong to this journal; use another catalog")
        found.write(_PROBE, spark.range(1), ())
        held = found.read(_PROBE)
        if held is None or held.count() != 1:
            raise StoreError(f"--format {format_}: this Spark session cannot read a table that it has written")
    except StoreError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()
        lines = [line for line in reason if line.startswith(": ")] or reason  # py4j begins Java's own message with ": "
        why = lines[0].removeprefix(": ") if lines else type(error).__name__
        raise StoreError(f"--format {format_}: this Spark session cannot write such a table: {why}") from error
    finally:
        with suppress(Exception):
            found.drop(_PROBE)
    return found


def _delta(spark: SparkSession, folder: Path) -> Delta:
    if _DELTA not in str(spark.conf.get(_EXTENSIONS, "")):
        raise StoreError(
            f"--format delta: this Spark session has no Delta Lake; set spark.jars or spark.jars.packages, "
            f"{_EXTENSIONS}={_DELTA} and {_CATALOG}spark_catalog={_DELTA_CATALOG}"
        )
    return Delta(spark, folder)


def _iceberg(spark: SparkSession, journal: str) -> Iceberg:
    settings = spark.sparkContext.getConf().getAll()
    names = sorted(name.removeprefix(_CATALOG) for name, value in settings if value == _ICEBERG)
    if not names:
        raise StoreError(
            f"--format iceberg: this Spark session has no Iceberg catalog; set spark.jars or spark.jars.packages, "
            f"and {_CATALOG}NAME={_ICEBERG}"
        )
    default = str(spark.conf.get("spark.sql.defaultCatalog", ""))
    return Iceberg(spark, default if default in names else names[0], journal)


def publish(found: Lake, store: Store, schemas: Mapping[str, str]) -> None:
    """Update the published tables with the rows that the current run has written to `store`.

    `schemas` contains the schemas, as DDL, of the tables that may have no files.
    """
    run = store.run
    for table, by in TABLES.items():
        reader = found.spark.read
        if table in schemas:
            reader = reader.schema(f"{schemas[table]}, run int")
        whole = reader.parquet(str(store.path(table)))
        if table not in GROWING:
            found.write(table, whole.where(f"run = {run}"), by)
            continue
        held = found.read(table)
        done = whole.where(f"state = 'settled' and run < {run}")
        if held is not None and _runs(held.where("state = 'settled'")) == _runs(done):
            found.write(table, whole.where(f"run = {run}"), by, f"run = {run} or state = 'open'")
        else:
            found.write(table, whole.where(f"run = {run}").unionAll(done), by)


def _runs(frame: DataFrame) -> dict[int, int]:
    """Return the number of rows of each run."""
    return {row["run"]: row["count"] for row in frame.groupBy("run").count().collect()}

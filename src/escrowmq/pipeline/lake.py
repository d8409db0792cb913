"""Silver and gold as tables of a lakehouse, Delta or Iceberg, where the Spark session has what it takes.

The Parquet tables stay what a run goes on from. What is told here follows them: each table is replaced in one commit of
its format, and only where this run has changed it. A table that is not as the run before had left it, because that one
told nothing here or because this one was killed and is done again, is replaced as a whole.
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
"""What is written there, and by what it is partitioned."""

_EXTENSIONS: Final = "spark.sql.extensions"
_CATALOG: Final = "spark.sql.catalog."
_DELTA: Final = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_ICEBERG: Final = "org.apache.iceberg.spark.SparkCatalog"
_PROBE: Final = "silver.escrowmq_probe"
_OWNER: Final = "escrowmq.journal"
"""The property of an Iceberg table that says which journal it is about."""


class Lake(ABC):
    """Tables of one format."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def foreign(self) -> str | None:
        """A table that lies there and is not about this journal."""
        return None

    @abstractmethod
    def read(self, table: str) -> DataFrame | None:
        """What a table holds, None if it is not there."""

    @abstractmethod
    def write(self, table: str, frame: DataFrame, by: tuple[str, ...], where: str | None = None) -> None:
        """Put `frame` in the place of what meets `where`, or of everything; the table is created if it is not there."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Remove a table."""


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
        """A table that is somebody else's: unlike a folder, a catalog is shared."""
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
    """The format: what the user asks for, else the session's default source if it is a lakehouse's, else Parquet."""
    configured = str(spark.conf.get("spark.sql.sources.default", "parquet"))
    return asked or (configured if configured in FORMATS else "parquet")


def lake(spark: SparkSession, folder: Path, format_: str, journal: str) -> Lake | None:
    """Where tables of this format go: Delta below `folder`, Iceberg to the session's catalog; None for Parquet.

    Raises StoreError, with one line that says what is missing, if the session cannot write and read such a table, or if
    the catalog's tables are not about the journal with the id `journal`.
    """
    if format_ == "parquet":
        return None
    found = _delta(spark, folder) if format_ == "delta" else _iceberg(spark, journal)
    try:
        foreign = found.foreign()
        if foreign is not None:
            raise StoreError(f"--format {format_}: {foreign} is not about this journal; use another catalog")
        found.write(_PROBE, spark.range(1), ())
        held = found.read(_PROBE)
        if held is None or held.count() != 1:
            raise StoreError(f"--format {format_}: a table that was written cannot be read")
    except StoreError:
        raise
    except Exception as error:
        reason = str(error).strip().splitlines()
        lines = [line for line in reason if line.startswith(": ")] or reason  # what Java says, in py4j's words
        why = lines[0].removeprefix(": ") if lines else type(error).__name__
        raise StoreError(f"--format {format_}: this Spark session cannot write such a table: {why}") from error
    finally:
        with suppress(Exception):
            found.drop(_PROBE)
    return found


def _delta(spark: SparkSession, folder: Path) -> Delta:
    if _DELTA not in str(spark.conf.get(_EXTENSIONS, "")):
        raise StoreError(
            f"--format delta: this Spark session has no Delta Lake; it needs its jars (spark.jars or "
            f"spark.jars.packages), {_EXTENSIONS}={_DELTA} and {_CATALOG}spark_catalog={_DELTA_CATALOG}"
        )
    return Delta(spark, folder)


def _iceberg(spark: SparkSession, journal: str) -> Iceberg:
    settings = spark.sparkContext.getConf().getAll()
    names = sorted(name.removeprefix(_CATALOG) for name, value in settings if value == _ICEBERG)
    if not names:
        raise StoreError(
            f"--format iceberg: this Spark session has no Iceberg catalog; it needs the jars (spark.jars or "
            f"spark.jars.packages) and {_CATALOG}NAME={_ICEBERG}"
        )
    default = str(spark.conf.get("spark.sql.defaultCatalog", ""))
    return Iceberg(spark, default if default in names else names[0], journal)


def publish(found: Lake, store: Store, schemas: Mapping[str, str]) -> None:
    """Bring the tables up to date with what the run that is under way has written to `store`.

    `schemas`: of tables that may have no file at all.
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
    """How many rows there are of each run."""
    return {row["run"]: row["count"] for row in frame.groupBy("run").count().collect()}

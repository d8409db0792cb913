"""`python -m escrowmq.pipeline.archive` makes an archive of Spark's classes, which shortens the start of Java.

Java writes the classes in parsed and verified form to a file of about 200 MB beside the installed packages (class data
sharing, JEP 350), and maps the file into memory at later starts. The archive's name identifies the Java and the PySpark
that it was made for, so that others do not use it. Java ignores an archive that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from escrowmq.java import SparkUnavailableError, prepare

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_SILENT: Final = ("-Xlog:cds*=off", "-Xlog:class+path=off")


def path() -> Path | None:
    """Return the path of the archive for this Java and PySpark, whether or not it exists; None if there is no Java.

    Call `prepare` first, which chooses the Java.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if java is None:
        return None
    real = Path(java).resolve()
    about = real.stat()
    which = f"{real} {about.st_size} {about.st_mtime_ns}"
    name = f"spark-{version('pyspark')}-{hashlib.sha256(which.encode()).hexdigest()[:16]}.jsa"
    return Path(sys.prefix, "share", "escrowmq", name)


def options() -> tuple[str, ...]:
    """Return the arguments with which Java uses the archive; none if there is no archive."""
    found = path()
    return (f"-XX:SharedArchiveFile={found}", *_SILENT) if found is not None and found.exists() else ()


def make() -> Path:
    """Make the archive for this Java and PySpark, or replace it, and return its path.

    Raises:
        SparkUnavailableError: Spark or Java is missing, or Java did not write the archive.
        OSError: the archive's folder cannot be written to.
    """
    prepare()
    target = path()
    if target is None:
        raise SparkUnavailableError("JAVA_HOME has no bin/java")
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(f".{os.getpid()}")
    try:
        _run(fresh)
        if not fresh.exists():
            raise SparkUnavailableError(f"Java did not write {fresh}; Spark starts without an archive, as before")
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
    return target


def _run(target: Path) -> None:
    from escrowmq.pipeline.session import end_java, session

    spark = session("local[2]", java=(f"-XX:ArchiveClassesAtExit={target}", *_SILENT))
    with tempfile.TemporaryDirectory() as folder:
        _exercise(spark, Path(folder))
    spark.stop()
    end_java()


def _exercise(spark: SparkSession, folder: Path) -> None:
    """Run queries that load the classes that most sessions need."""
    spark.range(1000).selectExpr("id % 7 k", "string(id) s", "timestamp_micros(id) t").createOrReplaceTempView("rows")
    counts = spark.sql(
        "select k, count(*) n, max_by(s, t) s, percentile_approx(n, 0.5) p from (select *, 1 n from rows) group by k"
    )
    rows = counts.repartition(2).sortWithinPartitions("k").mapInArrow(_same, "k long, n long, s string, p int")
    rows.write.partitionBy("k").parquet(str(folder / "table"))
    table = spark.read.parquet(str(folder / "table"))
    table.join(counts.hint("broadcast"), "k", "left_semi").unionAll(table.select("n", "s", "p", "k")).collect()
    stream = spark.readStream.format("rate").load().writeStream.format("noop")
    stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def main() -> None:
    """Make the archive, and print its path, size and how long it took."""
    begun = time.monotonic()
    try:
        made = make()
    except (SparkUnavailableError, OSError) as error:
        sys.exit(f"cannot make the archive of Spark's classes: {error}")
    size = made.stat().st_size / 1e6
    print(f"{made}: {size:.0f} MB, made in {time.monotonic() - begun:.0f} s")  # noqa: T201 - the output of a program


if __name__ == "__main__":
    main()

"""Start a Spark session for the audit, with settings for a quick start and low use of resources."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from escrowmq.java import OLDEST_PYSPARK, SparkUnavailableError, prepare
from escrowmq.pipeline import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

END_SECONDS: Final = 120
"""How long Java may take to end. Writing an archive of its classes takes many seconds."""
_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC", "-Xshare:auto")
"""C1 alone and the serial collector halve the cost of a short run, whose work is in Python and Parquet anyway. With C1
alone, Java keeps a fifth of the compiled code that it keeps by default. A session of some minutes has more, and Java
would drop code and compile it again from then on.
"""
_LOG: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
_SITE: Final = """\
# Without this, each worker takes a second to import PySpark from a zip file that has no compiled modules.
import sys
sys.path[:] = [path for path in sys.path if not path.endswith("/pyspark.zip")]
"""


def session(
    master: str = "local[*]",
    *,
    conf: Mapping[str, str] | None = None,
    java: Sequence[str] | None = None,
    oldest: tuple[int, int] = OLDEST_PYSPARK,
) -> SparkSession:
    """Start a session.

    Args:
        master: the Spark master, which may be any cluster (PIPE-6).
        conf: settings that override ours.
        java: arguments for the local Java; by default, those that make it use its archive of classes, if there is one.
        oldest: the oldest suitable version of PySpark; by default, that of the audit.

    Raises:
        SparkUnavailableError: Spark or Java is missing.
    """
    prepare(oldest)
    local = master.startswith("local")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("escrowmq audit")
    settings = {
        "spark.scheduler.mode": "FAIR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.databricks.delta.snapshotPartitions": "1",  # by default, Delta reads even a small log in 50 tasks
    }
    folder = _folder()
    log = _file(folder, "log4j2.properties", _LOG)
    options = (*_QUICK, f"-Dlog4j2.configurationFile={log}", *(archive.options() if java is None else java))
    settings |= {"spark.driver.extraJavaOptions": shlex.join(options), "spark.driver.memory": "1g"}
    if local:
        _import_quickly(folder)
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for name, value in {**settings, **(conf or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def end_java() -> None:
    """End the session of this process, if there is one, and its Java. The next session starts a new Java."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is not None:
        found.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_SECONDS)
        SparkContext._gateway = SparkContext._jvm = None


def _folder() -> Path:
    """Return a private folder for files that Spark's processes read."""
    folder = Path(tempfile.gettempdir()) / f"escrowmq-spark-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise SparkUnavailableError(f"{folder} belongs to another user; remove it")
    return folder


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        fresh = folder / f"{name}.{os.getpid()}"
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    return path


def _import_quickly(folder: Path) -> None:
    """Let Python workers import PySpark from the installed package instead of a zip file."""
    _file(folder, "sitecustomize.py", _SITE)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), *paths]))

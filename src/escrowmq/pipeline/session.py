"""A Spark session for the audit: quick to start, and out of the way of everything else on the machine."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from escrowmq.java import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""C1 alone and the serial collector halve what a short run costs; the work is in Python and Parquet anyway."""
_SITE: Final = """\
# Workers would import PySpark from a zip without compiled modules, which takes a second each.
import sys
sys.path[:] = [path for path in sys.path if not path.endswith("/pyspark.zip")]
"""


def session(master: str = "local[*]", *, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session on `master`, which may be any cluster (PIPE-6). Raises escrowmq.java.SparkUnavailableError."""
    prepare()
    local = master.startswith("local")
    if local:
        _import_quickly()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("escrowmq audit")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.sql.adaptive.coalescePartitions.enabled": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
    }
    if local:
        options = shlex.join((*_QUICK, f"-Djava.io.tmpdir={tempfile.gettempdir()}"))
        settings |= {"spark.driver.extraJavaOptions": options, "spark.driver.memory": "1g"}
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for name, value in {**settings, **(conf or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _import_quickly() -> None:
    """Let Python workers import PySpark from where it is installed."""
    folder = Path(tempfile.gettempdir()) / f"escrowmq-site-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        return
    site = folder / "sitecustomize.py"
    if not site.exists() or site.read_text(encoding="utf-8") != _SITE:
        fresh = site.with_suffix(f".{os.getpid()}")
        fresh.write_text(_SITE, encoding="utf-8")
        fresh.replace(site)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), *paths]))

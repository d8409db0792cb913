"""`--format delta` and `--format iceberg` publish the rows of the Parquet tables, run after run (needs `make lake`).

A session that does not support the format is refused with one clear line before anything is read.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from escrowmq.pipeline.audit import audit
from escrowmq.pipeline.lake import lake, wanted
from escrowmq.pipeline.options import Options
from escrowmq.pipeline.store import StoreError
from tests.pipeline.journals import Scribe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LAKE = Path(sys.prefix, "lake")
ROOT = Path(__file__).parents[2]
FORMATS = ("delta", "iceberg")


@pytest.mark.parametrize(
    ("format_", "missing"), [("delta", "DeltaSparkSessionExtension"), ("iceberg", "spark.sql.catalog.NAME=")]
)
def test_an_unsupported_format_is_refused_with_the_missing_setting(
    spark: SparkSession, tmp_path: Path, format_: str, missing: str
) -> None:
    with Scribe(tmp_path / "journal") as scribe:
        scribe.queue(1, "q")
    with pytest.raises(StoreError, match=missing) as caught:
        audit(tmp_path / "journal", tmp_path / "out", spark=spark, options=Options(format=format_))
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "out").glob("*/*"))


def test_the_format_is_the_requested_or_the_configured_one(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.sources.default", "delta")
    try:
        assert wanted(spark, None) == "delta"
        assert wanted(spark, "parquet") == "parquet"
    finally:
        spark.conf.unset("spark.sql.sources.default")
    assert wanted(spark, None) == "parquet"
    assert lake(spark, tmp_path, "parquet", "") is None


def lakehouse(*words: str) -> int:
    """Execute a step of tests/pipeline/lakehouse.py with the PySpark of `make lake`, and return its exit status."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    command = [sys.executable, "-m", "tests.pipeline.lakehouse", *words]
    return subprocess.run(command, cwd=ROOT, env={**environment, "PYTHONPATH": str(LAKE)}, check=False).returncode


needs_lake = pytest.mark.skipif(not LAKE.with_name(".lake").exists(), reason="needs Delta and Iceberg: make lake")


@needs_lake
def test_lakehouse_tables_have_the_rows_of_the_parquet_tables(tmp_path: Path) -> None:
    """Both formats share one start of Spark, which takes most of the time."""
    assert lakehouse(",".join(FORMATS), str(tmp_path), "short") == 0


@needs_lake
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.long
@pytest.mark.timeout(0)
def test_lakehouse_tables_are_right_after_killed_and_omitted_runs(tmp_path: Path, format_: str) -> None:
    """This test starts Spark three times, with seven sessions."""
    assert lakehouse(format_, str(tmp_path), "first") == -signal.SIGKILL
    assert lakehouse(format_, str(tmp_path), "second") == -signal.SIGKILL
    assert lakehouse(format_, str(tmp_path), "third") == 0

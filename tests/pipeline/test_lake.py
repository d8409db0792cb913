"""`--format delta` and `--format iceberg`: on a session that cannot, one clear line, before anything is read.

On one that can, which has another PySpark (`make lake`): tables with the rows of the Parquet ones, run after run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from escrowmq.pipeline.audit import Options, audit
from escrowmq.pipeline.lake import lake, wanted
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
def test_what_the_session_lacks_is_said(spark: SparkSession, tmp_path: Path, format_: str, missing: str) -> None:
    with Scribe(tmp_path / "journal") as scribe:
        scribe.queue(1, "q")
    with pytest.raises(StoreError, match=missing) as caught:
        audit(tmp_path / "journal", tmp_path / "out", spark=spark, options=Options(format=format_))
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "out").glob("*/*"))


def test_the_format_is_what_is_asked_for_or_configured(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.sources.default", "delta")
    try:
        assert wanted(spark, None) == "delta"
        assert wanted(spark, "parquet") == "parquet"
    finally:
        spark.conf.unset("spark.sql.sources.default")
    assert wanted(spark, None) == "parquet"
    assert lake(spark, tmp_path, "parquet", "") is None


def lakehouse(*words: str) -> int:
    """Do a step of tests/pipeline/lakehouse.py with the PySpark of `make lake`; the exit status."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    command = [sys.executable, "-m", "tests.pipeline.lakehouse", *words]
    return subprocess.run(command, cwd=ROOT, env={**environment, "PYTHONPATH": str(LAKE)}, check=False).returncode


needs_lake = pytest.mark.skipif(not LAKE.with_name(".lake").exists(), reason="needs Delta and Iceberg: make lake")


@needs_lake
@pytest.mark.xdist_group("lake")  # beside those that share a session
def test_the_lakehouse_has_what_parquet_has(tmp_path: Path) -> None:
    """One format after the other: most of it is Spark's start."""
    assert lakehouse(",".join(FORMATS), str(tmp_path), "short") == 0


@needs_lake
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.soak
@pytest.mark.timeout(0)
def test_and_when_runs_are_killed_or_left_out(tmp_path: Path, format_: str) -> None:
    """Three starts of Spark, seven of its sessions."""
    assert lakehouse(format_, str(tmp_path), "first") == -signal.SIGKILL
    assert lakehouse(format_, str(tmp_path), "second") == -signal.SIGKILL
    assert lakehouse(format_, str(tmp_path), "third") == 0

"""`--format delta` and `--format iceberg` on a session that cannot: one clear line, before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from escrowmq.pipeline.audit import Options, audit
from escrowmq.pipeline.lake import lake, wanted
from escrowmq.pipeline.store import StoreError
from tests.pipeline.journals import Scribe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("format_", "missing"), [("delta", "DeltaSparkSessionExtension"), ("iceberg", "spark.sql.catalog.NAME=")]
)
def test_what_the_session_lacks_is_said(spark: SparkSession, tmp_path: Path, format_: str, missing: str) -> None:
    with Scribe(tmp_path / "journal") as scribe:
        scribe.queue(1, "q")
    with pytest.raises(StoreError, match=missing) as caught:
        audit(tmp_path / "journal", tmp_path / "out", spark=spark, options=Options(format=format_))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_the_format_is_what_is_asked_for_or_configured(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.sources.default", "delta")
    try:
        assert wanted(spark, None) == "delta"
        assert wanted(spark, "parquet") == "parquet"
    finally:
        spark.conf.unset("spark.sql.sources.default")
    assert wanted(spark, None) == "parquet"
    assert lake(spark, tmp_path, "parquet", "") is None

"""Share one Spark session between all tests of a process: starting it takes longer than most of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark_settings import SMALL_QUERIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from escrowmq.pipeline.session import session

    found = session("local[2]", conf={**SMALL_QUERIES, "spark.sql.shuffle.partitions": "1"})
    yield found
    if found.sparkContext._jsc is not None:  # tests of another folder that run later in this process may have ended it
        found.stop()

"""Share one Spark session between all tests of a process: starting it takes longer than most of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from escrowmq.pipeline.session import session

    # These features make large queries fast, and small ones slow.
    conf = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    found = session("local[2]", conf=conf)
    yield found
    if found.sparkContext._jsc is not None:  # tests of another folder that run later in this process may have ended it
        found.stop()

"""One Spark session for all tests of a process: it takes longer to start than most of them to run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from escrowmq.pipeline.session import session

    # What makes large queries fast makes small ones slow.
    conf = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    found = session("local[2]", conf=conf)
    yield found
    found.stop()

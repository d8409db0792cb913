"""Share one Spark session and one broker between all tests of a process; each test has queues of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker import BrokerProcess, running_broker
from tests.spark.desk import Desk
from tests.spark_settings import SMALL_QUERIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--spark", metavar="VERSION", help="Fail unless PySpark has this version, such as 4.1.")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse another PySpark than the one that `make sparks` means to test."""
    wanted = config.getoption("--spark", None)
    if wanted is not None:
        import pyspark

        if not pyspark.__version__.startswith(f"{wanted}."):
            raise pytest.UsageError(f"PySpark {pyspark.__version__} is installed, not {wanted}")
        print(f"PySpark {pyspark.__version__}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder as slow."""
    for item in items:
        if item.nodeid.startswith("tests/spark/"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.fixture(scope="session")
def spark(broker: BrokerProcess) -> Iterator[SparkSession]:
    import escrowmq.spark
    from escrowmq.pipeline.session import end_java, session

    end_java()  # a Java started by tests of another folder has another environment
    os.environ["ESCROWMQ_URL"] = broker.url  # must be set before the workers are forked, which inherit it
    conf = {**SMALL_QUERIES, "spark.sql.shuffle.partitions": "2"}
    found = session("local[2]", conf=conf, oldest=escrowmq.spark.OLDEST_PYSPARK)
    escrowmq.spark.register(found)
    yield found
    found.stop()
    del os.environ["ESCROWMQ_URL"]


@pytest.fixture
def desk(spark: SparkSession, broker: BrokerProcess, tmp_path: Path, request: Any) -> Iterator[Desk]:
    with Desk(spark, broker, tmp_path, request.node.name.partition("[")[0]) as found:
        yield found

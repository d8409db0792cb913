"""Share one Spark session and one broker between all tests of a process; each test has queues of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker import BrokerProcess, running_broker
from tests.spark.desk import Desk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder as slow."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
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
    found = session("local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    escrowmq.spark.register(found)
    yield found
    found.stop()
    del os.environ["ESCROWMQ_URL"]


@pytest.fixture
def desk(spark: SparkSession, broker: BrokerProcess, tmp_path: Path, request: Any) -> Iterator[Desk]:
    with Desk(spark, broker, tmp_path, request.node.name.partition("[")[0]) as found:
        yield found

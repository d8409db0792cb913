"""A queue becomes a table of Delta and of Iceberg, each message once (needs `make lake`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker import BrokerProcess
from tests.pipeline.test_lake import LAKE, ROOT, needs_lake


@needs_lake
@pytest.mark.rule("PIPE-1")
def test_a_repeated_epoch_of_a_lakehouse_table_writes_nothing_twice(broker: BrokerProcess, tmp_path: Path) -> None:
    """The session belongs to another process, because Delta and Iceberg need another PySpark."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"PYTHONPATH": str(LAKE), "ESCROWMQ_URL": broker.url}
    command = [sys.executable, "-m", "tests.spark.lakehouse", str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == 0

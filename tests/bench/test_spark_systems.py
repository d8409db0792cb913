"""The comparison of Spark's connectors: its figures, and the rows that both systems get."""

from __future__ import annotations

import os

import pytest

from bench.peer_rows import ESCROWMQ, KAFKA
from bench.scenarios import SCENARIOS
from bench.spark_rows import COLUMNS, ROWS
from bench.spark_systems import JOBS, Meter


@pytest.mark.parametrize("name", ["spark-kafka", "spark-kafka-synced"])
def test_every_job_has_its_figures(name: str) -> None:
    meter = Meter([os.getpid()])
    for kind in ROWS:
        for columns in COLUMNS:
            for job in JOBS:
                meter.take(f"{job}-{kind}-{columns}", 10, lambda: None)
    assert {figure.name for figure in SCENARIOS[name].figures} == {f"{name}.{key}" for key in meter.found}


def test_work_of_the_broker_is_counted_for_each_row() -> None:
    def work() -> None:
        for _ in range(300_000):
            os.times()

    meter = Meter([os.getpid()])
    meter.take("job", 1000, work)
    assert meter.found["job"] > 0
    assert meter.found["job-cpu-broker"] > 0
    # Not zero: Spark's Java, if another test has started it in this process, does a little even when it is idle.
    assert meter.found["job-cpu-spark"] < meter.found["job-cpu-broker"]


@pytest.mark.parametrize("columns", COLUMNS)
def test_both_systems_carry_the_same_columns(columns: str) -> None:
    fields = ("message_id", "correlation_id", "trace", "sequence", "service") if columns == "all" else ()
    for form in (ESCROWMQ, KAFKA):
        written = " ".join(form.stored[columns])
        assert [name for name in ("body", *fields) if name not in written] == []

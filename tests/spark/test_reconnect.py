"""Queries go on when the broker returns in time, and otherwise end with one line (PIPE-7)."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from tests.broker import BrokerProcess, running_broker, wait_until
from tests.spark.desk import Desk, cause, numbered

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FROZEN_SECONDS = 2.0
OVERHEAD_SECONDS = 60
"""How long everything else may take on a busy machine: the end of a task, of the query, of Spark's processes."""


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of the test's own, whose clients notice after a second that it is frozen."""
    with running_broker(tmp_path) as found:
        yield found


def rows(spark: SparkSession, url: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("escrowmq").options(url=url, subscribe="in", group="g", **options)
    return reader.option("minPartitions", 2).load().select("body")


@pytest.mark.long  # tests/spark_kill does the same with more kinds of processes
@pytest.mark.rule("PIPE-7")
@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("PIPE-2")
def test_a_query_goes_on_when_the_broker_is_killed_or_frozen_at_random_moments(
    spark: SparkSession, mortal: BrokerProcess, tmp_path: Path
) -> None:
    url = f"{mortal.url}?timeout=1&connection_timeout=1"
    rng = random.Random(7)
    with Desk(spark, mortal, tmp_path, "") as desk:
        for name in ("in", "out"):
            desk.channel.queue_declare(name, durable=True)
        desk.put("in", numbered(3000))
    sink = rows(spark, url, maxMessagesPerTrigger="100").writeStream.format("escrowmq").options(url=url, queue="out")
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    for how in ("kill", "freeze", "kill", "freeze"):
        time.sleep(rng.uniform(0.5, 2))
        if how == "freeze":
            mortal.signal(signal.SIGSTOP)
            time.sleep(FROZEN_SECONDS)
            mortal.signal(signal.SIGCONT)
        else:
            mortal.kill()
            mortal.start()
    assert query.awaitTermination(200)
    with Desk(spark, mortal, tmp_path, "") as desk:
        assert sorted(desk.get("out"), key=int) == numbered(3000)
        assert desk.held("in") == (3001, 3001, 0, 3001)
        assert desk.in_doubt() == []


@pytest.mark.rule("PIPE-7")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_query_ends_with_one_line_after_its_deadline(
    spark: SparkSession, mortal: BrokerProcess, tmp_path: Path, how: signal.Signals
) -> None:
    url = f"{mortal.url}?timeout=1&connection_timeout=1"
    with Desk(spark, mortal, tmp_path, "") as desk:
        for name in ("in", "out"):
            desk.channel.queue_declare(name, durable=True)
    sink = rows(spark, url, reconnectTimeout="3").writeStream.format("escrowmq").options(url=url, queue="out")
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    wait_until(lambda: query.lastProgress is not None, OVERHEAD_SECONDS, "the first micro-batch")
    mortal.signal(how)
    with pytest.raises(StreamingQueryException) as caught:  # there is none if the query runs longer
        query.awaitTermination(3 + OVERHEAD_SECONDS)
    assert cause(caught.value).endswith("; the broker was unavailable for 3 s (option reconnectTimeout)")

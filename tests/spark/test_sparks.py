"""Exactly once on every Spark 4. `make sparks` runs these tests on each version that PyPI has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

import escrowmq.spark
from escrowmq.spark.features import LIMITS
from tests.broker import wait_until
from tests.spark.desk import Desk, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.long  # the other tests of this folder show the same on the Spark that is installed


@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("PIPE-2")
def test_a_repeated_epoch_of_a_queue_writes_nothing_twice(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(60)), desk.queue("out")
    rows = desk.read(source, maxMessagesPerTrigger=100, minPartitions=2).select("body", "headers", "properties")
    desk.run(rows, queue=target)
    desk.put(source, numbered(60, 60))
    desk.run(rows, queue=target)
    desk.undo_commit(1)
    desk.run(rows, queue=target)
    assert sorted(desk.get(target), key=int) == numbered(120)
    assert desk.held(source) == (121, 121, 0, 121)
    assert desk.in_doubt() == []


@pytest.mark.rule("PIPE-1")
def test_a_stream_is_read_once_by_several_runs(desk: Desk) -> None:
    source, target = desk.stream("in", numbered(50)), desk.queue("out")
    rows = desk.read(source, group="", maxMessagesPerTrigger=1000).select("body")
    for first in (50, 75, 100):
        desk.run(rows, queue=target)
        if first < 100:
            desk.put(source, numbered(25, first))
    assert desk.get(target) == numbered(100)


@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("PIPE-2")
def test_a_failed_epoch_of_foreach_batch_is_repeated_with_the_same_messages(desk: Desk) -> None:
    source, target, broken = desk.queue("in", numbered(30)), desk.queue("out"), desk.folder / "broken"
    broken.touch()

    def each(rows: DataFrame, epoch: int) -> None:
        writer = rows.select("body").write.format("escrowmq").mode("append")
        writer.options(**{"queue": target, "txn.sink_id": "one"}).save()
        if broken.exists():
            raise ValueError("broken")

    def run() -> None:
        writer = desk.read(source).writeStream.foreachBatch(each)
        query = writer.option("checkpointLocation", str(desk.checkpoint())).trigger(availableNow=True).start()
        assert query.awaitTermination(100)

    with pytest.raises(StreamingQueryException, match="broken"):
        run()
    desk.put(source, numbered(30, 30))
    broken.unlink()
    run()
    if not LIMITS:
        run()  # this Spark repeats the failed micro-batch, and then ends
    assert desk.get(target) == numbered(60)
    assert desk.held(source).settled == (61 if LIMITS else 31)


@pytest.mark.rule("PIPE-1")
def test_a_continuous_query_keeps_to_its_limit_and_settles_what_it_has_read(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(40)), desk.queue("out")
    rows = desk.read(source, maxMessagesPerTrigger=10, acknowledge="commit").select("body")
    writer = rows.writeStream.format("escrowmq").option("queue", target)
    query = writer.option("checkpointLocation", str(desk.checkpoint())).start()
    wait_until(lambda: desk.ready(target) == 40, 100, "the messages")
    wait_until(lambda: desk.held(source).settled == 41, 100, "the settlement of the last micro-batch")
    assert {progress.numInputRows for progress in query.recentProgress} <= {0, 10}
    query.stop()
    assert desk.get(target) == numbered(40)


@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("PIPE-2")
def test_a_batch_job_moves_all_messages_with_their_columns(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(20)), desk.queue("out")
    with escrowmq.spark.held(desk.spark, subscribe=source, group="g") as rows:
        assert rows.count() == 20
        rows.write.format("escrowmq").mode("append").option("queue", target).save()
    assert desk.get(target) == numbered(20)
    assert desk.held(source).settled == 21

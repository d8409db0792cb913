"""Other ways to use source and sink: SQL, joins, several sinks, a checkpoint that moves, and the listener."""

from __future__ import annotations

import logging
import shutil
import urllib.request
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions

import escrowmq.spark
from tests.broker import wait_until
from tests.spark.desk import Desk, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.mark.rule("PIPE-1")
def test_sql_reads_a_queue_and_writes_to_another(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(10)), desk.queue("out")
    desk.spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW messages USING escrowmq OPTIONS (subscribe '{source}', `group` 'g')"
    )
    (row,) = desk.spark.sql("SELECT count(*) n, sum(int(string(body))) total FROM messages").collect()
    assert (row.n, row.total) == (10, 45)
    even = desk.spark.sql("SELECT body FROM messages WHERE int(string(body)) % 2 = 0")
    even.write.format("escrowmq").mode("append").option("queue", target).save()
    assert sorted(desk.get(target)) == [b"0", b"2", b"4", b"6", b"8"]
    assert escrowmq.spark.release(url=desk.broker.url, subscribe=source, group="g") == 10


@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("PIPE-2")
def test_a_join_of_two_queues_is_settled_by_one_decision(desk: Desk) -> None:
    orders, payments, target = (
        desk.queue("orders", numbered(20)),
        desk.queue("payments", numbered(10)),
        desk.queue("out"),
    )

    def side(queue: str, column: str) -> DataFrame:
        return desk.read(queue, schema="body string, timestamp timestamp").selectExpr(f"body {column}")

    rows = side(orders, "paid").join(side(payments, "payment"), functions.col("paid") == functions.col("payment"))
    desk.run(rows.selectExpr("payment body"), queue=target)
    assert sorted(desk.get(target), key=int) == numbered(10)
    assert (desk.held(orders).settled, desk.held(payments).settled) == (21, 11)


@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("PIPE-2")
def test_several_queries_write_what_they_read_from_one_queue_in_groups_of_their_own(desk: Desk) -> None:
    source, targets = desk.stream("in", numbered(30)), [desk.queue("one"), desk.queue("two")]
    queries: list[StreamingQuery] = [
        desk.start(desk.read(source, group="").select("body"), target, queue=target) for target in targets
    ]
    assert all(query.awaitTermination(100) for query in queries)
    assert [desk.get(target) for target in targets] == [numbered(30)] * 2


@pytest.mark.rule("PIPE-2")
def test_a_checkpoint_can_be_moved(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(10)), desk.queue("out")
    rows = desk.read(source).select("body")
    desk.run(rows, queue=target)
    desk.undo_commit(0)
    shutil.copytree(desk.checkpoint(), desk.checkpoint("moved"))
    desk.put(source, numbered(10, 10))
    desk.run(rows, "moved", queue=target)
    assert desk.get(target) == numbered(20)


@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("PIPE-2")
def test_a_query_that_starts_over_continues_with_what_its_group_has_not_settled(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(10)), desk.queue("out")
    desk.run(desk.read(source).select("body"), queue=target)
    shutil.rmtree(desk.checkpoint())
    desk.put(source, numbered(10, 10))
    desk.run(desk.read(source).select("body"), queue=target)
    assert desk.get(target) == numbered(20)
    assert (desk.held(source).settled, desk.ready(source)) == (21, 0)


@pytest.mark.rule("PIPE-1")
def test_a_query_over_a_stream_starts_over_from_its_beginning(desk: Desk) -> None:
    source, target = desk.stream("in", numbered(10)), desk.queue("out")
    for _ in range(2):
        rows = desk.read(source, group="", startingPosition="earliest").select("body")
        desk.run(rows, queue=target)
        shutil.rmtree(desk.checkpoint())
    assert desk.get(target) == numbered(10) * 2


def test_spark_hands_small_batches_to_python_unless_their_size_is_set(desk: Desk) -> None:
    conf = desk.spark.conf
    before = conf.get(escrowmq.spark.BATCH_ROWS)
    assert before is not None
    try:
        conf.set(escrowmq.spark.BATCH_ROWS, "9000")
        escrowmq.spark.register(desk.spark)
        assert conf.get(escrowmq.spark.BATCH_ROWS) == "9000"
        conf.unset(escrowmq.spark.BATCH_ROWS)
        escrowmq.spark.register(desk.spark)
        assert conf.get(escrowmq.spark.BATCH_ROWS) == "2000"
    finally:
        conf.set(escrowmq.spark.BATCH_ROWS, before)


def test_a_listener_reports_each_micro_batch_to_a_log_and_to_prometheus(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = desk.queue("in", numbered(10)), desk.queue("out")
    caplog.set_level(logging.INFO, "escrowmq.spark.listener")
    listener = escrowmq.spark.watch(desk.spark, prometheus=("127.0.0.1", 0), url=desk.broker.url)
    try:
        writer = desk.read(source, "billing", maxMessagesPerTrigger=6).select("body").writeStream.format("escrowmq")
        query = writer.options(queue=target, checkpointLocation=str(desk.checkpoint())).queryName("bills").start()
        wait_until(lambda: caplog.messages[1:], 100, "two micro-batches")
        name = f"escrowmq queue {source}, group billing"
        assert caplog.messages[0].startswith(f"query bills, epoch 0: {name}: 6 rows, lag 4, held ")
        with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/metrics", timeout=60) as answer:
            found = answer.read().decode()
        assert f'escrowmq_spark_lag_messages{{query="bills",source="{name}"}} 0\n' in found
        query.stop()
    finally:
        desk.spark.streams.removeListener(listener)
        listener.stop()

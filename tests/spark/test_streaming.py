"""Streaming queries process queues and streams exactly once, even when an epoch is repeated (PIPE-1, PIPE-2)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, functions

import escrowmq.spark
from escrowmq.client import Properties
from escrowmq.client.escrow import Settle
from escrowmq.spark.identity import Epoch
from tests.broker import wait_until
from tests.spark.desk import Desk, cause, numbered

pytestmark = [pytest.mark.rule("PIPE-1")]


@pytest.mark.rule("PIPE-2")
def test_queue_to_queue_is_one_decision_for_each_epoch(desk: Desk) -> None:
    bodies = numbered(1000)
    source, target = desk.queue("in", bodies), desk.queue("out")
    rows = desk.read(source, maxMessagesPerTrigger=300, minPartitions=3).select("body")
    query = desk.run(rows, queue=target)
    assert [progress.numInputRows for progress in query.recentProgress][:4] == [300, 300, 300, 100]
    assert desk.get(target) == bodies
    # The last epoch, which Spark never commits, was settled together with its output.
    assert desk.held(source) == (1001, 1001, 0, 1001)
    assert desk.in_doubt() == []
    assert desk.escrow.progress(query.id) == 3


@pytest.mark.rule("PIPE-2")
def test_a_repeated_epoch_writes_nothing_twice(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(100)), desk.queue("out")
    rows = desk.read(source).select("body")
    desk.run(rows, queue=target)
    desk.undo_commit(0)
    desk.put(source, numbered(50, 100))
    query = desk.run(rows, queue=target)
    assert desk.escrow.progress(query.id) == 1
    assert desk.get(target) == numbered(150)
    assert desk.in_doubt() == []


def test_with_another_sink_sparks_commit_settles_the_messages(desk: Desk) -> None:
    source = desk.queue("in", numbered(100))
    table, broken = desk.folder / "table", desk.folder / "broken"
    broken.touch()

    def each(rows: DataFrame, epoch: int) -> None:
        rows.write.mode("overwrite").parquet(str(table / str(epoch)))
        if epoch == 1 and broken.exists():
            raise ValueError("broken")

    def run() -> None:
        writer = desk.read(source, schema="body string", maxMessagesPerTrigger=60).writeStream.foreachBatch(each)
        query = writer.option("checkpointLocation", str(desk.checkpoint())).trigger(availableNow=True).start()
        assert query.awaitTermination(100)

    with pytest.raises(StreamingQueryException, match="broken"):
        run()
    assert desk.held(source) == (61, 101, 0, 61)  # Spark has recorded only the first epoch as done
    desk.put(source, numbered(10, 100))
    broken.unlink()
    run()
    rows = desk.spark.read.parquet(*map(str, table.iterdir()))
    assert sorted(int(row.body) for row in rows.collect()) == list(range(110))
    assert desk.held(source) == (111, 111, 0, 111)  # the last epoch, too


def test_several_queries_read_a_stream_independently(desk: Desk) -> None:
    source, target = desk.stream("in", numbered(50)), desk.queue("out")
    late = numbered(5, 100)
    for name, start, wanted in (
        ("all", "earliest", numbered(50)),
        ("some", f'{{"{source}": 41}}', numbered(10, 40) + late),
        ("new", "latest", []),
    ):
        reader = desk.spark.readStream.format("escrowmq").option("subscribe", source)
        rows = reader.option("startingPosition", start).option("minPartitions", 2).load().select("body")
        desk.run(rows, name, queue=target)
        assert desk.get(target) == wanted
        if name != "some":
            desk.put(source, late)
            desk.run(rows, name, queue=target)
            assert desk.get(target) == late


def test_the_latest_position_stays_the_same_when_the_first_epoch_is_repeated(desk: Desk) -> None:
    source, target = desk.stream("in", numbered(50)), desk.queue("out")
    reader = desk.spark.readStream.format("escrowmq").option("subscribe", source)
    rows = reader.option("startingPosition", "latest").load().select("body")
    desk.run(rows, queue=target)
    desk.undo_commit(0)
    desk.put(source, numbered(5, 100))
    desk.run(rows, queue=target)
    assert desk.get(target) == numbered(5, 100)


@pytest.mark.parametrize("on_loss", ["true", "false"])
def test_a_position_beyond_the_end_of_a_stream_is_a_loss(desk: Desk, on_loss: str) -> None:
    source, target = desk.stream(f"in.{on_loss}", numbered(10)), desk.queue(f"out.{on_loss}")
    reader = desk.spark.readStream.format("escrowmq").option("subscribe", source).option("failOnDataLoss", on_loss)
    rows = reader.option("startingPosition", f'{{"{source}": 100}}').load().select("body")
    if on_loss == "true":
        with pytest.raises(StreamingQueryException) as caught:
            desk.run(rows, queue=target)
        assert "has not reached position 100, its next position is 11" in cause(caught.value)
    else:
        desk.run(rows, queue=target)
        assert desk.get(target) == numbered(10)


@pytest.mark.rule("PIPE-2")
def test_an_epoch_with_another_range_settles_the_messages_that_it_read(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(100)), desk.queue("out")
    application = {"txn.app_id": desk.name("job")}
    killed = Epoch(application["txn.app_id"], 0, run="killed")  # its driver was killed before it could roll back
    desk.escrow.hold(source, "g", 100)
    desk.escrow.enlist(killed.settle, [Settle(source, "g", 101)], 3600)
    rows = desk.read(source, maxMessagesPerTrigger=40, **application).select("body")
    desk.run(rows, queue=target, **application)
    assert desk.get(target) == numbered(100)
    assert desk.held(source).settled == 101


@pytest.mark.rule("PIPE-2")
def test_a_new_checkpoint_does_not_skip_the_epochs_of_an_old_one(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(10)), desk.queue("out")
    application = {"txn.app_id": desk.name("job")}
    rows = desk.read(source, **application).select("body")
    desk.run(rows, queue=target, **application)
    desk.undo_commit(0)
    desk.run(rows, queue=target, **application)  # the same checkpoint skips the decided epoch
    desk.put(source, numbered(10, 10))
    with pytest.raises(StreamingQueryException) as caught:
        desk.run(rows, "another", queue=target, **application)
    said = f"'{application['txn.app_id']}' has already written epoch 0 from another checkpoint"
    assert said in cause(caught.value)
    assert desk.held(source) == (11, 21, 0, 11)  # nothing is lost
    desk.run(rows, queue=target, **application)
    assert desk.get(target) == numbered(20)


@pytest.mark.rule("PIPE-2")
def test_several_sources_are_settled_by_one_decision(desk: Desk) -> None:
    first, second = desk.queue("a", numbered(30)), desk.queue("b", numbered(30, 30))
    target = desk.queue("out")
    rows = desk.read(first, "one").select("body").union(desk.read(second, "two").select("body"))
    desk.run(rows, queue=target)
    assert sorted(desk.get(target), key=int) == numbered(60)
    assert desk.held(first, "one").settled == desk.held(second, "two").settled == 31


@pytest.mark.rule("PIPE-2")
def test_two_sources_of_one_group_read_the_same_messages(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(10)), desk.queue("out")
    one, other = (desk.read(source, maxMessagesPerTrigger=7).select("body") for _ in range(2))
    desk.run(one.union(other), queue=target)
    assert sorted(desk.get(target)) == sorted(numbered(10) * 2)


def test_a_pattern_also_matches_queues_declared_later(desk: Desk) -> None:
    target = desk.queue("out")
    for name in ("eu", "us"):
        desk.queue(f"orders.{name}", [name.encode()] * 3)
    pattern = desk.name(r"orders\..*")
    reader = desk.spark.readStream.format("escrowmq").option("subscribePattern", pattern).option("group", "g")
    rows = reader.load().select(functions.concat("queue", functions.lit(" "), "body").alias("body"))
    desk.run(rows, queue=target)
    assert len(desk.get(target)) == 6
    desk.queue("orders.asia", [b"asia"] * 2)
    desk.run(rows, queue=target)
    assert desk.get(target) == [f"{desk.name('orders.asia')} asia".encode()] * 2


@pytest.mark.rule("PIPE-2")
def test_a_repeated_foreach_batch_writes_nothing_twice(desk: Desk) -> None:
    source, left, right = desk.queue("in", numbered(40)), desk.queue("left"), desk.queue("right")

    def each(rows: DataFrame, epoch: int) -> None:
        for name, target in (("left", left), ("right", right)):
            rows.select("body").write.format("escrowmq").mode("append").options(
                **{"queue": target, "txn.sink_id": name}
            ).save()

    def run() -> None:
        writer = desk.read(source).writeStream.foreachBatch(each)
        query = writer.option("checkpointLocation", str(desk.checkpoint())).trigger(availableNow=True).start()
        assert query.awaitTermination(100)

    run()
    desk.undo_commit(0)
    run()
    assert desk.get(left) == desk.get(right) == numbered(40)
    assert desk.in_doubt() == []


@pytest.mark.rule("PIPE-2")
def test_threads_in_foreach_batch_must_inherit_sparks_properties(desk: Desk) -> None:
    source, targets = desk.queue("in", numbered(40)), [desk.queue("left"), desk.queue("right")]

    def run(checkpoint: str, *, inherit: bool) -> None:
        def each(rows: DataFrame, epoch: int) -> None:
            def save(target: str) -> None:
                escrowmq.spark.register(desk.spark)
                options = {"queue": target, "txn.sink_id": target}
                rows.select("body").write.format("escrowmq").mode("append").options(**options).save()

            rows.persist().count()  # so that the sink raises the error, not the source
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(inheritable_thread_target(desk.spark)(save) if inherit else save, targets))
            rows.unpersist()

        writer = desk.read(source).writeStream.foreachBatch(each)
        query = writer.option("checkpointLocation", str(desk.checkpoint(checkpoint))).trigger(availableNow=True).start()
        assert query.awaitTermination(100)

    with pytest.raises(StreamingQueryException) as caught:
        run("one", inherit=False)
    assert "start threads with pyspark.inheritable_thread_target" in cause(caught.value)
    assert [desk.ready(target) for target in targets] == [0, 0]
    for _ in range(2):
        run("two", inherit=True)
        desk.undo_commit(0, "two")
    assert [desk.get(target) for target in targets] == [numbered(40)] * 2
    assert desk.in_doubt() == []


@pytest.mark.rule("PIPE-2")
def test_updates_of_an_aggregate_are_written_in_foreach_batch(desk: Desk) -> None:
    """Spark does not support the mode `update` for Python sinks, except in foreachBatch."""
    source, target = desk.queue("in", [b"a", b"b", b"a"]), desk.queue("out")
    name = {"txn.sink_id": "counts"}

    def each(rows: DataFrame, epoch: int) -> None:
        rows.write.format("escrowmq").mode("append").options(queue=target, **name).save()

    def run() -> list[bytes]:
        counts = desk.read(source, schema="body string", **name).groupBy("body").count()
        writer = counts.selectExpr("body || count as body").writeStream.outputMode("update").foreachBatch(each)
        query = writer.option("checkpointLocation", str(desk.checkpoint())).trigger(availableNow=True).start()
        assert query.awaitTermination(100)
        return sorted(desk.get(target))

    assert run() == [b"a2", b"b1"]
    desk.put(source, [b"b"])
    assert run() == [b"b2"]
    desk.undo_commit(1)
    assert run() == []
    assert desk.held(source).settled == 5


def test_writes_in_foreach_batch_require_a_sink_id(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(4)), desk.queue("out")

    def each(rows: DataFrame, epoch: int) -> None:
        rows.select("body").write.format("escrowmq").mode("append").option("queue", target).save()

    writer = desk.read(source).writeStream.foreachBatch(each)
    query = writer.option("checkpointLocation", str(desk.checkpoint())).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(100)
    assert "requires option txn.sink_id" in cause(caught.value)
    assert desk.ready(target) == 0


@pytest.mark.rule("PIPE-2")
def test_a_failed_task_leaves_nothing_and_the_epoch_is_repeated(desk: Desk) -> None:
    source, target = desk.queue("in", [b"1", b"2", b"bad", b"3"]), desk.queue("out")
    flag = desk.folder / "repaired"

    def check(body: str) -> str:
        if body == "bad" and not flag.exists():
            raise ValueError("bad")
        return body

    rows = desk.read(source, schema="body string", minPartitions=2)
    checked = rows.select(functions.udf(check, useArrow=False)("body").alias("body"))
    with pytest.raises(StreamingQueryException, match="bad"):
        desk.run(checked, queue=target)
    assert desk.ready(target) == 0
    assert desk.held(source)[:2] == (1, 5)
    flag.touch()
    desk.run(checked, queue=target)
    assert desk.get(target) == [b"1", b"2", b"bad", b"3"]
    assert desk.held(source).settled == 5
    assert desk.in_doubt() == []  # including branches prepared after the other task had failed


@pytest.mark.parametrize("on_loss", ["true", "false"])
def test_released_messages_are_reported_as_a_loss(desk: Desk, on_loss: str) -> None:
    source, target = desk.queue(f"in.{on_loss}", numbered(10)), desk.queue(f"out.{on_loss}")
    rows = desk.read(source, failOnDataLoss=on_loss).select("body")
    desk.run(rows, queue=target)
    desk.put(source, numbered(5, 10))
    held = desk.escrow.hold(source, "g", 5)
    assert held.end == 16
    desk.escrow.release(source, "g")
    if on_loss == "true":
        with pytest.raises(StreamingQueryException) as caught:
            desk.run(rows, queue=target)
        assert "messages 11 to 15 cannot be read: they are no longer reserved for group 'g'" in cause(caught.value)
    else:
        desk.run(rows, queue=target)
        assert desk.get(target) == numbered(15)


@pytest.mark.parametrize("on_loss", ["true", "false"])
@pytest.mark.parametrize("count", [3, 30])
@pytest.mark.parametrize("declare", [Desk.queue, Desk.stream])
def test_a_queue_declared_again_is_another_queue(
    desk: Desk, declare: Callable[..., str], count: int, on_loss: str
) -> None:
    name = f"{declare.__name__}.{count}.{on_loss}"
    queues = [declare(desk, each, numbered(10)) for each in (name, f"{name}.gone")]
    target = desk.queue(f"out.{name}")
    reader = desk.spark.readStream.format("escrowmq").option("subscribePattern", desk.name(f"{name}.*"))
    rows = reader.option("group", "g").option("failOnDataLoss", on_loss).load().select("body")
    desk.run(rows, queue=target)
    desk.get(target)
    for queue in queues:
        desk.channel.queue_delete(queue)
    declare(desk, name, numbered(count))
    if on_loss == "true":
        with pytest.raises(StreamingQueryException) as caught:
            desk.run(rows, queue=target)
        said = "read up to message 10, which this queue never had: the queue was deleted and declared again"
        assert said in cause(caught.value)
    else:
        desk.run(rows, queue=target)
        assert desk.get(target) == numbered(count)
        if declare is Desk.queue:
            assert desk.held(queues[0]).settled == count + 1


@pytest.mark.rule("PIPE-2")
def test_messages_released_during_their_epoch_are_not_written_twice(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(10)), desk.queue("out")
    begun, released = desk.folder / "begun", desk.folder / "released"

    def wait(body: str) -> str:
        begun.touch()
        wait_until(released.exists, 60)
        return body

    rows = desk.read(source, schema="body string", failOnDataLoss="false")
    slow = rows.select(functions.udf(wait, useArrow=False)("body").alias("body"))
    query = desk.start(slow, queue=target)
    wait_until(begun.exists, 60)
    assert desk.escrow.release(source, "g") == 10
    released.touch()
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(100)
    assert "not even in part: its messages are no longer reserved" in cause(caught.value)
    assert desk.ready(target) == 0
    desk.run(slow, queue=target)
    assert desk.get(target) == numbered(10)


@pytest.mark.rule("PIPE-2")
def test_a_full_target_queue_rolls_the_epoch_back(desk: Desk) -> None:
    full: dict[str, Any] = {"x-max-length": 5, "x-overflow": "reject-publish"}
    source, target = desk.queue("in", numbered(10)), desk.queue("out", **full)
    rows = desk.read(source, minPartitions=2).select("body")
    with pytest.raises(StreamingQueryException) as caught:
        desk.run(rows, queue=target)
    assert "rolled back the transaction because a target queue is full" in cause(caught.value)
    assert (desk.ready(target), desk.held(source)[:2]) == (0, (1, 11))


@pytest.mark.parametrize("on_loss", ["true", "false"])
@pytest.mark.parametrize("how", ["released", "deleted"])
def test_a_repeated_epoch_reports_missing_messages(desk: Desk, on_loss: str, how: str) -> None:
    prefix = f"in.{on_loss}.{how}"
    one, other, target = desk.queue(prefix, numbered(5)), desk.queue(f"{prefix}.b"), desk.queue(f"out.{prefix}")
    failing = desk.folder / "failing"

    def check(body: str) -> str:
        if failing.exists():
            raise ValueError("bad")
        return body

    def run() -> None:
        reader = desk.spark.readStream.format("escrowmq").option("subscribePattern", desk.name(f"{prefix}.*"))
        rows = reader.options(group="g", failOnDataLoss=on_loss).schema("body string").load()
        desk.run(rows.select(functions.udf(check, useArrow=False)("body").alias("body")), queue=target)

    run()
    assert desk.get(target) == numbered(5)
    failing.touch()
    desk.put(one, numbered(5, 10))
    desk.put(other, numbered(5, 20))
    with pytest.raises(StreamingQueryException, match="bad"):
        run()
    if how == "released":
        desk.escrow.release(one, "g")
    else:
        desk.channel.queue_delete(one)
    failing.unlink()
    if on_loss == "true":
        with pytest.raises(StreamingQueryException) as caught:
            run()
        assert "to continue without them, set option failOnDataLoss to false" in cause(caught.value)
    else:
        run()
        assert sorted(desk.get(target)) == (numbered(5, 10) if how == "released" else []) + numbered(5, 20)


def test_a_checkpoint_belongs_to_its_group(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(10)), desk.queue("out")
    desk.run(desk.read(source, "one").select("body"), queue=target)
    with pytest.raises(StreamingQueryException) as caught:
        desk.run(desk.read(source, "two").select("body"), queue=target)
    assert "the checkpoint belongs to group 'one', but option group is 'two'" in cause(caught.value)


@pytest.mark.rule("PIPE-2")
def test_columns_determine_target_and_properties(desk: Desk) -> None:
    exchange = desk.name("topics")
    desk.channel.exchange_declare(exchange, "topic", durable=True)
    late, all_ = desk.queue("late"), desk.queue("all")
    desk.channel.queue_bind(late, exchange, "late.*")
    desk.channel.queue_bind(all_, exchange, "#")
    rows = desk.read(desk.queue("in", numbered(4)), schema="body string").selectExpr(
        f"'{exchange}' as exchange",
        "if(body % 2 = 0, 'late.', 'fine.') || body as routing_key",
        "named_struct('message_id', body, 'delivery_mode', 1) as properties",
        "map('number', body) as headers",
        "body",
    )
    desk.run(rows)
    assert sorted(desk.get(late)) == [b"0", b"2"]
    method, properties, body = desk.channel.basic_get(all_)
    assert method is not None
    assert properties is not None
    assert (body, method.routing_key, properties.message_id, properties.delivery_mode) == (b"0", "late.0", "0", 1)
    assert properties.headers == {"number": "0"}


@pytest.mark.rule("PIPE-2")
@pytest.mark.rule("MSG-1")
def test_varied_messages_move_unchanged_and_once(desk: Desk) -> None:
    """Each message has properties, headers and a routing key of its own.

    One has no body, so the sink publishes it apart from the others. One has a text that is not ASCII, so the broker
    decodes it in full.
    """
    source, target, exchange = desk.queue("in"), desk.queue("out"), desk.name("topics")
    desk.channel.exchange_declare(exchange, "topic", durable=True)
    desk.channel.queue_bind(target, exchange, "own.#")
    desk.channel.queue_bind(source, "amq.topic", f"own.{desk.name('#')}")

    def sent(number: int) -> tuple[str, bytes, Properties]:
        body = b"" if number == 7 else b"body %d" % number
        headers: Any = {"trace": f"{number:08}", "number": str(number), "service": "orders"}
        given = Properties(message_id=f"id-{number:05}", correlation_id="ü" if number == 9 else f"c-{number:05}")
        given.headers, given.timestamp, given.delivery_mode = headers, 1_700_000_000 + number, 2
        return f"own.{desk.name(str(number))}", body, given

    messages = [sent(number) for number in range(2500)]
    keys, bodies, properties = zip(*messages, strict=True)
    desk.channel.publish_many("amq.topic", keys, bodies, properties)

    def move() -> None:
        rows = desk.read(source, maxMessagesPerTrigger=1000)
        desk.run(rows.select("routing_key", "properties", "headers", "body"), exchange=exchange)

    move()
    desk.undo_commit(2)
    move()
    found = []
    while (one := desk.channel.basic_get(target, auto_ack=True))[2] is not None:
        method, each, body = one
        assert method is not None
        assert each is not None
        found.append((method.routing_key, body, each))
    assert found == messages
    assert desk.in_doubt() == []


def test_progress_shows_how_far_a_query_is_behind(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(10)), desk.queue("out")
    query = desk.run(desk.read(source, maxMessagesPerTrigger=4).select("body"), queue=target)
    first: Any = query.recentProgress[0].sources[0]
    assert f'"{source}": 5' in first.endOffset or f'"{source}":5' in first.endOffset
    assert f'"{source}": 11' in first.latestOffset or f'"{source}":11' in first.latestOffset

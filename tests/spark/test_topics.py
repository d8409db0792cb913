"""Spark reads the streams of topics, and writes to topics, exactly once (PIPE-1, PIPE-2)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import escrowmq.spark
from escrowmq.admin.socket.client import ask
from escrowmq.client import Properties
from tests.spark.desk import Desk, cause, numbered


def topic(desk: Desk, name: str, partitions: int = 3) -> str:
    """Declare a topic, or let it grow, and return its full name."""
    whole = desk.name(name)
    desk.channel.exchange_declare(whole, "x-partitioned", durable=True, arguments={"x-partitions": partitions})
    return whole


def put(desk: Desk, name: str, bodies: Iterable[bytes]) -> None:
    """Publish messages to a topic in turn over its partitions."""
    partitions = len(desk.escrow.streams(name))
    for i, body in enumerate(bodies):
        desk.channel.basic_publish(
            name, "tag", body, Properties(delivery_mode=2, headers={"x-partition": i % partitions})
        )


def found(desk: Desk, name: str) -> list[list[bytes]]:
    """Return the bodies in each partition of a topic."""
    return [
        [message.body for block in desk.escrow.blocks(stream, "", 1, state.next) for message in block.bulk.messages()]
        for stream in desk.escrow.streams(name)
        for state in desk.escrow.describe(stream)
    ]


def read(desk: Desk, name: str, **options: str) -> DataFrame:
    return desk.spark.read.format("escrowmq").options(subscribe=name, **options).load()


@pytest.mark.rule("PIPE-1")
@pytest.mark.rule("PIPE-2")
def test_topic_to_topic_is_exactly_once_while_both_grow(desk: Desk) -> None:
    source, target = topic(desk, "in"), topic(desk, "out", 2)
    put(desk, source, numbered(300))
    rows = desk.read(source, group="", maxMessagesPerTrigger=200).select("body", "routing_key")
    desk.run(rows, exchange=target)
    desk.undo_commit(1)  # the last epoch is repeated
    topic(desk, "in", 5)
    topic(desk, "out", 4)
    put(desk, source, numbered(50, 300))
    desk.run(rows, exchange=target)
    bodies = [int(body) for stream in found(desk, target) for body in stream]
    assert sorted(bodies) == list(range(350))
    assert desk.in_doubt() == []


@pytest.mark.rule("PIPE-1")
def test_positions_are_those_of_the_streams(desk: Desk) -> None:
    source = topic(desk, "in", 2)
    put(desk, source, numbered(10))
    rows = read(desk, source).select("queue", "position", "exchange", "routing_key", "body").collect()
    assert {(row.queue, row.position, row.exchange, row.routing_key, bytes(row.body)) for row in rows} == {
        (f"{source}-{i % 2}", i // 2 + 1, source, "tag", b"%d" % i) for i in range(10)
    }
    some = read(desk, source, startingPosition=f'{{"{source}-1": 5}}', endingPosition=f'{{"{source}-0": 2}}')
    assert sorted(int(row.body) for row in some.select("body").collect()) == [0]
    later = read(desk, source, startingPosition=f'{{"{source}-0": 6, "{source}-1": 5}}')
    assert [bytes(row.body) for row in later.select("body").collect()] == [b"9"]


@pytest.mark.rule("PIPE-1")
def test_a_job_reads_the_streams_that_the_topic_had(desk: Desk) -> None:
    source = topic(desk, "in", 2)
    put(desk, source, numbered(4))
    with escrowmq.spark.held(desk.spark, subscribe=source) as rows:
        topic(desk, "in", 3)
        put(desk, source, numbered(6, 4))
        assert sorted(int(row.body) for row in rows.select("body").collect()) == [0, 1, 2, 3]


@pytest.mark.rule("MSG-3")
@pytest.mark.rule("PIPE-2")
def test_a_key_decides_the_partition_of_a_written_message(desk: Desk) -> None:
    target = topic(desk, "out", 4)
    rows = desk.spark.range(40).selectExpr(
        "string(id) body", "'tag' routing_key", "map('x-partition-key', string(id % 8)) headers"
    )
    rows.write.format("escrowmq").mode("append").option("exchange", target).save()
    streams = [{int(body) % 8 for body in stream} for stream in found(desk, target)]
    assert sorted(key for keys in streams for key in keys) == list(range(8))  # each key in one partition
    assert sum(bool(keys) for keys in streams) > 1


def test_a_queue_has_precedence_over_a_topic_of_its_name(desk: Desk) -> None:
    source = topic(desk, "in")
    put(desk, source, numbered(3))
    assert desk.stream("in", [b"of the queue"]) == source
    assert [bytes(row.body) for row in read(desk, source).select("body").collect()] == [b"of the queue"]


@pytest.mark.rule("SEC-3")
def test_the_permission_to_read_the_streams_suffices(desk: Desk) -> None:
    source, other = topic(desk, "in", 2), topic(desk, "other", 2)
    put(desk, source, numbered(4))
    ask(desk.broker.data_dir, "user.add", name="reader", password="secret")
    ask(desk.broker.data_dir, "permission.set", user="reader", vhost="/", configure="", write="", read=f"^{source}-")
    url = desk.broker.url.replace("guest:guest@", "reader:secret@")
    assert read(desk, source, url=url).count() == 4
    with pytest.raises(PySparkException) as caught:
        read(desk, other, url=url).collect()
    assert "ACCESS_REFUSED" in cause(caught.value)


def test_an_unknown_topic_or_partition_is_an_error(desk: Desk) -> None:
    source = topic(desk, "in", 2)
    with pytest.raises(PySparkException) as caught:
        read(desk, "no-topic").collect()
    assert "no queue 'no-topic' in vhost '/'" in cause(caught.value)
    with pytest.raises(PySparkException) as caught:
        read(desk, source, startingPosition=f'{{"{source}-2": 1}}').collect()
    text = f"has a position for '{source}-2', which is not one of the queues read: {source}-0, {source}-1"
    assert text in cause(caught.value)

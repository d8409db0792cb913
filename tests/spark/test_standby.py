"""`spark.read` with the URL of a standby, which serves batches of streams without work for the leader."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from escrowmq.client import connect
from tests.broker import wait_until
from tests.replicas import ReplicaBroker, ReplicaBrokers, replicas_on_nats, standby_of
from tests.spark.desk import cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PERSISTENT = b"\x10\x00\x02"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaBrokers]:
    with replicas_on_nats(tmp_path_factory.mktemp("standby"), "standby") as found:
        yield found


@pytest.fixture
def standby(brokers: ReplicaBrokers) -> ReplicaBroker:
    return standby_of(brokers)


def put(leader: ReplicaBroker, queue: str, bodies: list[bytes], kind: str = "stream") -> None:
    """Have messages confirmed by the leader."""
    with connect(leader.url) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        channel.confirm_delivery()
        channel.publish_many("", queue, bodies, PERSISTENT)


def loaded(spark: SparkSession, url: str, queue: str, **options: str) -> DataFrame:
    return spark.read.format("escrowmq").options(url=url, subscribe=queue, **options).load()


def bodies(frame: DataFrame) -> list[bytes]:
    return [bytes(row.body) for row in frame.orderBy("position").collect()]


def test_a_batch_of_a_stream_has_what_was_confirmed_before(
    spark: SparkSession, brokers: ReplicaBrokers, standby: ReplicaBroker
) -> None:
    expected: list[bytes] = []
    for count in (1000, 500):
        more = [b"%d" % i for i in range(len(expected), len(expected) + count)]
        put(brokers.leader(), "orders", more)
        expected += more
        assert bodies(loaded(spark, standby.url, "orders", minPartitions="3")) == expected


def test_a_batch_reads_on_when_another_node_takes_over(
    spark: SparkSession, brokers: ReplicaBrokers, standby: ReplicaBroker
) -> None:
    leader = brokers.leader()
    put(leader, "taken", [b"1", b"2"])
    assert bodies(loaded(spark, standby.url, "taken")) == [b"1", b"2"]
    os.kill(leader.process.pid, signal.SIGSTOP)
    try:
        successor = brokers.leader(but=leader)
        put(successor, "taken", [b"3"])
        other = next(node for node in brokers.nodes if node not in (leader, successor))
        for node in (other, successor):
            assert bodies(loaded(spark, node.url, "taken")) == [b"1", b"2", b"3"]
    finally:
        os.kill(leader.process.pid, signal.SIGCONT)
        wait_until(lambda: leader.standing().get("role") == "standby", 60, "the old leader to follow")


def test_the_urls_of_several_nodes_read_from_the_leader(
    spark: SparkSession, brokers: ReplicaBrokers, standby: ReplicaBroker
) -> None:
    """A classic queue can only be read from there, since its messages are reserved."""
    put(brokers.leader(), "classic", [b"1"], kind="classic")
    urls = " ".join(node.url for node in (standby, *brokers.nodes))
    assert bodies(loaded(spark, urls, "classic", group="g")) == [b"1"]


def test_a_classic_queue_is_not_read_from_a_standby(
    spark: SparkSession, brokers: ReplicaBrokers, standby: ReplicaBroker
) -> None:
    put(brokers.leader(), "reserved", [b"1"], kind="classic")
    with pytest.raises(PySparkException) as refused:
        loaded(spark, standby.url, "reserved", group="g").collect()
    assert "a standby only serves reads of streams; ask the leader to reserve messages" in cause(refused.value)


def test_rows_are_not_written_to_a_standby(
    spark: SparkSession, brokers: ReplicaBrokers, standby: ReplicaBroker
) -> None:
    put(brokers.leader(), "target", [b"1"])
    frame = spark.createDataFrame([("lost",)], "body string")
    writer = frame.write.format("escrowmq").options(url=standby.url, queue="target", reconnectTimeout="0")
    with pytest.raises(PySparkException) as refused:
        writer.mode("append").save()
    assert "this node is a standby" in cause(refused.value)

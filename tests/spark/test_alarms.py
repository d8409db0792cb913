"""If the broker is short of memory or disk while Spark writes, the query waits or fails, and nothing is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from escrowmq.admin.socket.client import ask
from escrowmq.client import connect
from tests.broker import BrokerProcess, low_on_disk, running_broker, wait_until
from tests.integration.test_server_alarms import MIB, Holder, Publisher, held_back, limited, status
from tests.spark.desk import Desk, cause, numbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def fed(spark: SparkSession, broker: BrokerProcess, folder: Path) -> Desk:
    """Return a desk for a separate broker, with messages in the queue `in`, and an empty queue `out`."""
    desk = Desk(spark, broker, folder, "alarm")
    desk.queue("in", numbered(100))
    desk.queue("out")
    return desk


@pytest.mark.rule("PIPE-2")
def test_a_query_continues_when_the_alarm_ends(spark: SparkSession, tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        base = status(broker)["memory"]["resident_bytes"]
    # The holder and Spark are one user, and would meet the limits of held memory before the alarm.
    roomy = "[limits]\nheld_memory_per_user = '1GiB'\nheld_memory_per_vhost = '1GiB'\n"
    with limited(tmp_path, f"[memory]\nhigh_watermark = {base + 60 * MIB}\ngrace_seconds = 0\n{roomy}") as broker:
        holder = Holder(broker)
        with fed(spark, broker, tmp_path) as desk:
            rows = desk.read("alarm.in", url=broker.url).select("body")
            holder.start()
            publisher = Publisher(broker, 120)
            publisher.start()
            wait_until(lambda: status(broker)["alarms"] == ["memory"] or publisher.fault, 60, "the alarm")
            query = desk.start(rows, url=broker.url, queue="alarm.out")
            wait_until(lambda: held_back(broker) == ["alarm"] * 2, 60, "the task's publishes")
            assert query.isActive
            desk.channel.queue_delete("q")
            holder.leave()
            assert query.awaitTermination(100)
            assert desk.get("alarm.out") == numbered(100)
            assert desk.held("alarm.in").settled == 101
            assert desk.in_doubt() == []
        publisher.join(60)


def test_a_lasting_alarm_fails_the_query_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, fed(spark, broker, tmp_path):
        assert broker.terminate() == 0
    with limited(tmp_path, low_on_disk()) as broker:
        impatient = f"{broker.url}?timeout=3"
        with Desk(spark, broker, tmp_path, "alarm") as desk:
            rows = desk.read("alarm.in", url=impatient).select("body")
            with pytest.raises(StreamingQueryException) as streaming:
                desk.run(rows, url=impatient, queue="alarm.out")
            job = spark.range(40).selectExpr("repeat('x', 1000000) body").write.format("escrowmq").mode("append")
            with pytest.raises(PySparkException) as batch:
                job.options(url=impatient, queue="alarm.out").save()
            for caught in (streaming, batch):
                # A client that had filled its socket before it received the alarm reports the second text.
                said = r"(no .* within|accepted no data for) 3 s; the broker is blocking publishes: low on disk"
                assert re.search(said, cause(caught.value)), cause(caught.value)
                assert cause(caught.value).count(f"127.0.0.1:{broker.port}") == 1
            assert (desk.ready("alarm.out"), desk.held("alarm.in")[:2]) == (0, (1, 101))
            wait_until(lambda: held_back(broker) == [], what="the blocked publishes to end")
            assert not [each for each in ask(broker.data_dir, "tx.list") if each["published"]]
        assert broker.terminate() == 0
    with running_broker(tmp_path) as broker, Desk(spark, broker, tmp_path, "alarm") as desk:
        desk.run(desk.read("alarm.in", url=broker.url).select("body"), url=broker.url, queue="alarm.out")
        assert desk.get("alarm.out") == numbered(100)
        with connect(broker.url) as connection:
            assert connection.tpc_recover() == []

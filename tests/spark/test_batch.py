"""`spark.read` and `df.write`: a loaded DataFrame can be read repeatedly, and a job is one transaction."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

import escrowmq.spark
from escrowmq.admin.socket.client import ask
from escrowmq.client import Properties
from escrowmq.java import SparkUnavailableError
from escrowmq.spark import EscrowSparkError
from escrowmq.spark.batch import BatchReader
from escrowmq.spark.errors import DataLossError
from escrowmq.spark.identity import Epoch
from escrowmq.spark.options import SinkOptions, SourceOptions
from escrowmq.spark.sink import decide
from escrowmq.spark.writing import Written
from tests.spark.desk import Desk, cause, numbered


@pytest.mark.rule("PIPE-1")
def test_a_row_has_all_parts_of_a_message(desk: Desk) -> None:
    source = desk.queue("in")
    sent = Properties(content_type="text/plain", headers={"n": 1, "s": "x"}, message_id="m", timestamp=1_700_000_000)
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    desk.channel.basic_publish("amq.direct", "nowhere", b"lost")
    desk.channel.queue_bind(source, "amq.direct", "key")
    desk.channel.basic_publish("amq.direct", "key", b"\x00\xff", sent)
    (row,) = desk.spark.read.format("escrowmq").option("subscribe", source).option("group", "g").load().collect()
    assert (row.queue, row.position, row.exchange, row.routing_key) == (source, 1, "amq.direct", "key")
    assert (row.body, row.redelivered, row.headers) == (bytearray(b"\x00\xff"), False, {"n": "1", "s": "x"})
    assert (row.properties.content_type, row.properties.message_id) == ("text/plain", "m")
    assert row.properties.timestamp.timestamp() == 1_700_000_000
    assert row.properties.priority is None
    assert before <= row.timestamp.astimezone(dt.UTC) <= dt.datetime.now(dt.UTC)


@pytest.mark.rule("PIPE-1")
def test_messages_that_all_differ_have_their_own_rows(desk: Desk) -> None:
    source, count = desk.queue("in"), 500
    desk.channel.queue_bind(source, "amq.topic", f"{source}.#")
    keys = [f"{source}.{n}" for n in range(count)]
    sent = [
        Properties(
            delivery_mode=2,
            message_id=f"id-{n}",
            correlation_id=None if n % 3 else f"order-{n}",
            timestamp=1_700_000_000 + n,
            headers={"tenant": "acme", "number": n, "nested": {"n": n}} if n % 7 else {"odd": n / 4},
        )
        for n in range(count)
    ]
    desk.channel.publish_many("amq.topic", keys, [b"%d" % n for n in range(count)], sent)
    rows = desk.spark.read.format("escrowmq").option("subscribe", source).option("group", "g").load()
    found = {int(row.body): row for row in rows.collect()}
    assert sorted(found) == list(range(count))
    for n, row in found.items():
        own = row.properties
        assert (row.routing_key, own.message_id, own.correlation_id) == (keys[n], f"id-{n}", sent[n].correlation_id)
        assert own.timestamp.timestamp() == sent[n].timestamp
        wanted = {"tenant": "acme", "number": str(n), "nested": f'{{"n": {n}}}'} if n % 7 else {"odd": str(n / 4)}
        assert row.headers == wanted


@pytest.mark.rule("PIPE-1")
def test_messages_are_reserved_and_settled_when_the_job_is_done(desk: Desk) -> None:
    source = desk.queue("in", numbered(20))
    options = {"subscribe": source, "group": "nightly", "maxMessagesPerPartition": "7"}

    def job(*, fail: bool = False) -> list[int]:
        with escrowmq.spark.held(desk.spark, **options) as rows:
            assert rows.rdd.getNumPartitions() == 4
            found = sorted(int(row.body) for row in rows.selectExpr("string(body) body").collect())
            assert rows.count() == len(found)
            if fail:
                raise KeyError
            return found

    with pytest.raises(KeyError):
        job(fail=True)
    assert (desk.ready(source), desk.held(source, "nightly")) == (0, (1, 21, 0, 1))
    assert job() == list(range(20))
    assert desk.held(source, "nightly") == (21, 21, 0, 21)
    desk.put(source, numbered(3))
    assert desk.spark.read.format("escrowmq").options(**options).load().count() == 3
    assert escrowmq.spark.release(**options) == 3
    assert desk.ready(source) == 3


@pytest.mark.rule("PIPE-1")
def test_a_queue_declared_while_a_job_runs_is_left_to_the_next_job(desk: Desk) -> None:
    options = {"subscribePattern": desk.name(r"in\..*"), "group": "nightly"}

    def job(late: str) -> int:
        with escrowmq.spark.held(desk.spark, **options) as rows:
            desk.queue(late, numbered(4))
            return rows.count()

    assert [job("in.a,b"), job("in.c"), job("in.d")] == [0, 4, 4]


@pytest.mark.rule("PIPE-1")
def test_a_range_of_a_stream_can_be_read_repeatedly(desk: Desk) -> None:
    source = desk.stream("in", numbered(30))
    reader = desk.spark.read.format("escrowmq").option("subscribe", source).schema("position long, body string")
    assert reader.load().count() == 30
    some = (
        reader.option("startingPosition", f'{{"{source}": 11}}').option("endingPosition", f'{{"{source}": 21}}').load()
    )
    assert [(row.position, row.body) for row in some.collect()] == [(n + 1, str(n)) for n in range(10, 20)]
    assert some.union(some).count() == 20


@pytest.mark.rule("PIPE-1")
@pytest.mark.parametrize("on_loss", [True, False])
def test_a_stream_declared_again_is_not_read_in_place_of_the_planned_one(desk: Desk, on_loss: bool) -> None:
    source = desk.stream(f"in.{on_loss}", numbered(10))
    options = SourceOptions.of({"subscribe": source, "url": desk.broker.url, "failOnDataLoss": str(on_loss)})
    schema = StructType([StructField("body", StringType())])
    (part,) = BatchReader(options, schema).partitions()
    (batch,) = BatchReader(options, schema).read(part)
    assert batch["body"].to_pylist() == [f"{n}" for n in range(10)]
    reading = BatchReader(options, schema).read(part)
    next(reading)
    for planned in (reading, BatchReader(options, schema).read(part)):  # one in progress, and one not begun
        desk.channel.queue_delete(source)
        desk.stream(f"in.{on_loss}", numbered(30))
        if on_loss:
            with pytest.raises(DataLossError, match="messages 1 to 10 cannot be read: the stream was deleted"):
                list(planned)
        else:
            assert list(planned) == []


@pytest.mark.rule("PIPE-2")
def test_a_job_is_visible_completely_or_not_at_all(desk: Desk) -> None:
    target = desk.queue("out")
    rows = desk.spark.range(0, 1000, 1, 4).selectExpr("string(id) body")
    rows.write.format("escrowmq").mode("append").option("queue", target).save()
    assert desk.get(target) == numbered(1000)
    broken = desk.spark.range(0, 1000, 1, 4).selectExpr("if(id = 900, raise_error('no'), string(id)) body")
    with pytest.raises(PySparkException, match="no"):
        broken.write.format("escrowmq").mode("append").option("queue", target).save()
    assert desk.ready(target) == 0
    assert desk.in_doubt() == []


@pytest.mark.rule("PIPE-2")
def test_a_version_is_written_once(desk: Desk) -> None:
    target = desk.queue("out")
    for version in (1, 1, 2, 1):
        writer = desk.spark.range(3).selectExpr("string(id) body").write.format("escrowmq").mode("append")
        writer.options(**{"queue": target, "txn.app_id": desk.name("job"), "txn.version": str(version)}).save()
    assert desk.get(target) == numbered(3) * 2
    assert desk.in_doubt() == []


@pytest.mark.rule("PIPE-2")
def test_a_partition_larger_than_a_branch_is_written_in_several(desk: Desk) -> None:
    target = desk.queue("out")
    rows = desk.spark.range(0, 45_000, 1, 1).selectExpr("rpad(string(id), 400, ' ') body")
    rows.write.format("escrowmq").mode("append").option("queue", target).save()
    assert desk.ready(target) == 45_000
    desk.channel.queue_purge(target)


def test_errors_are_one_line_without_credentials(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(1)), desk.queue("out")
    read = desk.spark.read.format("escrowmq")
    rows = desk.spark.range(1).selectExpr("string(id) body")
    for said, action in (
        ("unknown option of the source: topic", lambda: read.option("topic", source).load()),
        ("is a classic queue, which can only be read with option group", lambda: load(desk, subscribe=source)),
        ("404 NOT_FOUND - no queue 'none'", lambda: load(desk, subscribe="none", group="g")),
        ("environment variable UNSET is not set", lambda: load(desk, subscribe=source, connection="UNSET")),
        ("127.0.0.1:1: Connection refused", lambda: load(desk, subscribe=source, url="amqp://me:secret@127.0.0.1:1")),
        ("the broker refuses the login", lambda: load(desk, subscribe=source, url=stranger(desk))),
        ("the sink can only append messages; use mode append", lambda: save(rows, "overwrite", queue=target)),
        ("there is no queue 'none' to write to", lambda: save(rows, queue="none")),
        ("txn.app_id requires txn.version", lambda: save(rows, queue=target, **{"txn.app_id": "job"})),
        ("column body contains a null", lambda: save(desk.spark.sql("select string(null) body"), queue=target)),
        ("a queue's name may have at most 255 bytes", lambda: load(desk, subscribe="n" * 256, group="g")),
        (
            "column 'body' appears twice",
            lambda: load(desk, "body string, body binary", subscribe=source, group="g"),
        ),
        (
            "properties and headers take 200017 bytes; at most",
            lambda: save(with_headers(rows, "repeat('v', 200000)"), queue=target),
        ),
        ("406 PRECONDITION_FAILED - invalid expiration 'soon'", lambda: save(expiring(rows, "soon"), queue=target)),
        ("this task has no query and batch", lambda: save(rows, queue=target, **{"txn.sink_id": "one"})),
    ):
        with pytest.raises(PySparkException) as caught:
            action()
        assert said in cause(caught.value), cause(caught.value)
        assert "secret" not in str(caught.value)


@pytest.mark.rule("PIPE-2")
def test_too_many_branches_for_one_decision_are_an_error(desk: Desk) -> None:
    target = desk.queue("out")
    written = Written(Epoch(desk.name("job"), 0), tuple(b"%040d" % number for number in range(3000)))
    with pytest.raises(EscrowSparkError, match="3000 branches, too many for one decision"):
        decide(SinkOptions.of({"queue": target, "url": desk.broker.url}), [written])


def test_a_user_without_permission_is_refused(desk: Desk) -> None:
    mine, other = desk.queue("mine", numbered(2)), desk.queue("other", numbered(2))
    ask(desk.broker.data_dir, "user.add", name="clerk", password="secret")
    ask(desk.broker.data_dir, "permission.set", user="clerk", vhost="/", configure="", write="", read=mine)
    url = desk.broker.url.replace("guest:guest@", "").replace("amqp://", "amqp://clerk:secret@")
    assert load(desk, subscribe=mine, group="g", url=url) == 2
    assert load(desk, subscribePattern=desk.name(".*"), group="g", url=url) == 2
    rows = desk.spark.range(1).selectExpr("string(id) body")
    for action in (lambda: load(desk, subscribe=other, group="g", url=url), lambda: save(rows, queue=mine, url=url)):
        with pytest.raises(PySparkException) as caught:
            action()
        assert "ACCESS_REFUSED" in cause(caught.value)
        assert "secret" not in str(caught.value)


def test_a_pyspark_that_is_too_old_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.java.version", lambda _: "3.5.1")
    with pytest.raises(SparkUnavailableError, match=r"PySpark 3\.5\.1 is installed, but 4\.0 or newer"):
        escrowmq.spark.register(desk.spark)


def stranger(desk: Desk) -> str:
    return desk.broker.url.replace("amqp://", "amqp://nobody:secret@").replace("guest:guest@", "")


def load(desk: Desk, schema: str = "", **options: str) -> int:
    reader = desk.spark.read.format("escrowmq").options(**options)
    return (reader.schema(schema) if schema else reader).load().count()


def save(rows: DataFrame, mode: str = "append", **options: str) -> None:
    rows.write.format("escrowmq").mode(mode).options(**options).save()


def with_headers(rows: DataFrame, value: str) -> DataFrame:
    return rows.selectExpr("body", f"map('name', {value}) headers")


def expiring(rows: DataFrame, when: str) -> DataFrame:
    return rows.selectExpr("body", f"named_struct('expiration', '{when}') properties")


def test_a_thread_that_registers_the_session_can_write(desk: Desk) -> None:
    """By default Spark finds the format only in the thread that created the session."""
    target = desk.queue("out")

    def job() -> None:
        escrowmq.spark.register(desk.spark)
        save(desk.spark.range(3).selectExpr("string(id) body"), queue=target)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(job).result()
    assert desk.get(target) == numbered(3)


def test_plans_and_checkpoints_contain_no_credentials(desk: Desk) -> None:
    source, target = desk.queue("in", numbered(3)), desk.queue("out")
    url = desk.broker.url.replace("amqp://", "amqp://guest:guest@") if "@" not in desk.broker.url else desk.broker.url
    secret = url.replace("amqp://", "")
    rows = desk.spark.read.format("escrowmq").option("subscribe", source).option("group", "g").option("url", url).load()
    plan = rows._jdf.queryExecution().toString() + rows._jdf.queryExecution().explainString(
        desk.spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")  # type: ignore[union-attr]
    )
    assert "escrowmq" in plan.lower()
    assert secret not in plan
    escrowmq.spark.release(subscribe=source, group="g", url=url)
    query = desk.run(desk.read(source, url=url).select("body"), queue=target, url=url)
    assert desk.get(target) == numbered(3)
    assert secret not in str(query.lastProgress)
    query._jsq.explain(True)
    assert secret not in query._jsq.explainInternal(True)
    files = [path for path in desk.checkpoint().rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if secret.encode() in path.read_bytes()]

"""Build the gold tables violations, latency and throughput with SQL over silver and the previous run's gold."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from escrowmq.pipeline.findings import RULES, Finding
from escrowmq.pipeline.identity_columns import IdentityColumns
from escrowmq.pipeline.sums import HOUR, MINUTE, STEPS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from escrowmq.pipeline.store import Queue

FOUND_DDL: Final = (
    "rule string, name string, vhost string, queue string, position long, branch string, lsns array<long>, "
    "at timestamp_ltz, explanation string"
)
IDS: Final = IdentityColumns._fields
IDS_DDL: Final = ", ".join(f"{name} string" for name in IDS)
VIOLATIONS_DDL: Final = f"{FOUND_DDL}, {IDS_DDL}"
IDENTIFIED_DDL: Final = f"vhost string, queue string, position long, publish_lsn long, {IDS_DDL}"
"""The columns of messages from which violations take the ids."""
PERCENTILES: Final = (0.5, 0.9, 0.99, 0.999)

_NAMED: Final = "coalesce(vhost, '') vhost, coalesce(queue, concat('queue ', queue_id)) queue"
"""Only the number is known of a queue whose declaration was in a deleted part of the log."""


def of_messages(messages: DataFrame) -> DataFrame:
    """Return the new violations in `messages`. If there are none, Parquet's statistics let Spark skip the data."""
    bits = ", ".join(str(finding.value) for finding in Finding)
    return messages.sparkSession.sql(
        f"""
        select {_of_rule("rule")} rule, {_of_rule("name")} name, vhost, queue, position, finding, queue_id,
            {", ".join(IDS)},
            cast(coalesce(settle_branch, publish_branch) as string) branch,
            array_sort(array_distinct(filter(array(publish_lsn, settle_lsn, finding_lsn), x -> x is not null))) lsns,
            coalesce(settled_at, confirmed_at) at, settled_at, deliveries, snapshot_lsn, {_of_rule("text")} text
        from (
            select *, explode(filter(array({bits}), x -> findings & ~reported & x != 0)) finding
            from {{messages}} where findings > 0 and findings & ~reported != 0
        )""",
        messages=messages,
    )


def identified(found: DataFrame, *messages: DataFrame) -> DataFrame:
    """Return violations of the columns of FOUND_DDL with the ids of their messages, which are rows of `messages`. A
    queue that was deleted and declared again has two messages of one position; the newer one counts.
    """
    from pyspark.sql import functions as f

    place = ["vhost", "queue", "position"]
    few = found.where("position is not null").select(*place).distinct()
    chosen = [each.select(*place, "publish_lsn", *IDS).join(f.broadcast(few), place, "left_semi") for each in messages]
    rows = reduce(lambda one, other: one.unionAll(other), chosen)
    newest = f.max_by(f.struct(*IDS), f.coalesce("publish_lsn", f.lit(-1))).alias("said")
    ids = rows.groupBy(*place).agg(newest).select(*place, "said.*")
    return found.join(f.broadcast(ids), place, "left").select(*found.columns, *IDS)


def _of_rule(field: str) -> str:
    """Return an SQL expression for a field of the rule that belongs to the column `finding`."""
    said = ", ".join(f'{finding.value}, "{getattr(rule, field)}"' for finding, rule in RULES.items())
    return f"element_at(map({said}), finding)"


def names(spark: SparkSession, queues: Mapping[int, Queue]) -> DataFrame:
    """Return a table of the queues' numbers and names, which `_NAMED` needs."""
    known = [(ident, queue.vhost, queue.name) for ident, queue in queues.items()]
    columns = zip(*known, strict=True) if known else ((), (), ())
    types = {"queue_id": pa.int64(), "vhost": pa.string(), "queue": pa.string()}
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types.values(), strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, names=list(types)))


def throughput(flow: DataFrame, names: DataFrame) -> DataFrame:
    """Return the messages published since the last run, and settled, counted by queue and minute (`sums.FLOW`)."""
    return flow.sparkSession.sql(
        f"""
        select {_NAMED}, timestamp_micros(minute * {MINUTE}) minute, published, published_bytes, delivered, settled,
            accepted
        from (
            select queue_id, minute, sum(published) published, sum(published_bytes) published_bytes,
                sum(delivered) delivered, sum(settled) settled, sum(accepted) accepted
            from (
                select queue_id, stack(2,
                    came, messages, bytes, 0L, 0L, 0L,
                    went, 0L, 0L, deliveries, messages, if(outcome = 'accepted', messages, 0L)
                ) as (minute, published, published_bytes, delivered, settled, accepted)
                from {{flow}}
            ) where minute is not null group by queue_id, minute
        ) left join {{names}} using (queue_id)""",
        flow=flow,
        names=names,
    )


def latencies(classes: DataFrame, names: DataFrame) -> DataFrame:
    """Return counts of messages by queue, hour and class of latency, from commit to first delivery and to acceptance
    (`sums.LATENCIES`).
    """
    return classes.sparkSession.sql(
        f"""
        select {_NAMED}, timestamp_micros(hour * {HOUR}) hour,
            if(handed, 'published to delivered', 'published to settled') stage, class, messages
        from (
            select queue_id, hour, handed, class, sum(messages) messages from {{classes}}
            group by queue_id, hour, handed, class
        ) left join {{names}} using (queue_id)""",
        classes=classes,
        names=names,
    )


def merged(before: DataFrame | None, now: DataFrame, keys: list[str]) -> DataFrame:
    """Add this run's counts to those of earlier runs, by the columns `keys`."""
    whole = now if before is None else before.select(now.columns).unionAll(now)
    sums = {name: "sum" for name in now.columns if name not in keys}
    added = whole.groupBy(*keys).agg(sums)
    for name in sums:
        added = added.withColumnRenamed(f"sum({name})", name)
    return added.select(now.columns)


def percentiles(classes: DataFrame) -> DataFrame:
    """Return the table `latency`: percentiles in milliseconds, by queue, hour and stage."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    group = ["vhost", "queue", "hour", "stage"]
    window = Window.partitionBy(*group).orderBy("class")
    total = Window.partitionBy(*group)
    value = (f.pow(f.lit(2.0), (f.col("class") + 0.5) / STEPS) - 1) / 1000
    ranked = classes.withColumn("upto", f.sum("messages").over(window)).withColumn(
        "total", f.sum("messages").over(total)
    )
    columns = [f.max("total").alias("messages")]
    for share in PERCENTILES:
        name = f"p{share * 100:g}_ms".replace(".", "_")
        columns.append(f.min(f.when(f.col("upto") >= f.ceil(f.col("total") * share), value)).alias(name))
    columns.append(f.max(value).alias("max_ms"))
    return ranked.groupBy(*group).agg(*columns)

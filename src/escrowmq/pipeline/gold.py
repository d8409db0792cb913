"""The gold tables: violations, latency, throughput, undecided. Plain SQL over silver, and over the gold before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.pipeline.findings import RULES, Finding

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VIOLATIONS_DDL: Final = (
    "rule string, name string, vhost string, queue string, position long, branch string, lsns array<long>, "
    "at timestamp, explanation string"
)
STEPS: Final = 32
"""Latencies are counted in so many classes for each power of two: percentiles are right within 2.2 %."""
PERCENTILES: Final = (0.5, 0.9, 0.99, 0.999)


def of_messages(messages: DataFrame) -> DataFrame:
    """Breaches that show in `messages`, as far as they are new."""
    found = messages.where("findings & ~reported != 0")
    cases = "\nunion all\n".join(_select(finding) for finding in Finding)
    return messages.sparkSession.sql(cases, found=found)


def _select(finding: Finding) -> str:
    rule = RULES[finding]
    return f"""
        select '{rule.rule}' rule, '{rule.name}' name, vhost, queue, position, {finding.value} finding, queue_id,
            cast(coalesce(settle_branch, publish_branch) as string) branch,
            array_sort(array_distinct(filter(array(publish_lsn, settle_lsn, finding_lsn), x -> x is not null))) lsns,
            coalesce(settled_at, confirmed_at) at, settled_at, deliveries, snapshot_lsn, "{rule.text}" text
        from {{found}} where (findings & ~reported & {finding.value}) != 0"""


def throughput(messages: DataFrame, begin: int) -> DataFrame:
    """How many messages came and went, by queue and minute, of those that are new since LSN `begin`."""
    return messages.sparkSession.sql(
        f"""
        select vhost, queue, minute, sum(published) published, sum(published_bytes) published_bytes,
            sum(delivered) delivered, sum(settled) settled, sum(accepted) accepted
        from (
            select vhost, queue, date_trunc('minute', confirmed_at) minute, 1L published, bytes published_bytes,
                0L delivered, 0L settled, 0L accepted
            from {{messages}} where publish_lsn >= {begin}
            union all
            select vhost, queue, date_trunc('minute', settled_at), 0L, 0L, cast(deliveries as long), 1L,
                if(outcome = 'accepted', 1L, 0L)
            from {{messages}} where state = 'settled' and settled_at is not null
        ) group by vhost, queue, minute""",
        messages=messages,
    )


def latencies(messages: DataFrame) -> DataFrame:
    """How many accepted messages took how long from commit to settlement, by queue and hour, in classes."""
    return messages.sparkSession.sql(
        f"""
        select vhost, queue, hour, stage, class, count(1) messages from (
            select vhost, queue, date_trunc('hour', settled_at) hour, 'published to settled' stage,
                cast(floor(log2(greatest(unix_micros(settled_at) - unix_micros(confirmed_at), 0) + 1) * {STEPS}) as int)
                    class
            from {{messages}}
            where outcome = 'accepted' and confirmed_at is not null and settled_at is not null
            union all
            select vhost, queue, date_trunc('hour', first_delivered_at), 'published to delivered',
                cast(floor(log2(greatest(unix_micros(first_delivered_at) - unix_micros(confirmed_at), 0) + 1)
                    * {STEPS}) as int)
            from {{messages}}
            where state = 'settled' and confirmed_at is not null and first_delivered_at is not null
        ) group by vhost, queue, hour, stage, class""",
        messages=messages,
    )


def merged(before: DataFrame | None, now: DataFrame, keys: list[str]) -> DataFrame:
    """Counts of earlier runs and of this one, added up."""
    whole = now if before is None else before.select(now.columns).unionAll(now)
    sums = {name: "sum" for name in now.columns if name not in keys}
    added = whole.groupBy(*keys).agg(sums)
    for name in sums:
        added = added.withColumnRenamed(f"sum({name})", name)
    return added.select(now.columns)


def percentiles(classes: DataFrame) -> DataFrame:
    """The table `latency`: milliseconds by queue, hour and stage."""
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

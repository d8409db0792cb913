"""A query's progress names its sources as a person would, and gives lag, held messages and undecided branches."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from escrowmq.spark import offsets
from escrowmq.spark.progress import exposition, parse


def source(group: str, end: dict[str, int], latest: dict[str, int] | None, **streams: int) -> Any:
    return SimpleNamespace(
        endOffset=json.dumps(offsets.encode(group, end, streams)),
        latestOffset=None if latest is None else json.dumps(offsets.encode(group, latest)),
        numInputRows=5,
    )


def progress(*sources: Any, name: str | None = "bills") -> Any:
    return SimpleNamespace(id="e68d", name=name, batchId=7, sources=sources)


def test_a_queue_is_named_with_its_group_and_lag() -> None:
    found = parse(progress(source("billing", {"orders": 101}, {"orders": 1301})))
    assert str(found) == "query bills, epoch 7: escrowmq queue orders, group billing: 5 rows, lag 1,200"


def test_streams_and_several_queues_are_named() -> None:
    found = parse(progress(source("g", {"a": 1, "b": 2, "log": 3}, None, log=9), source("", {"log": 3}, None, log=9)))
    assert found is not None
    assert [each.name for each in found.sources] == [
        "escrowmq queues a, b and stream log, group g",
        "escrowmq stream log",
    ]
    assert "lag unknown" in str(found)


def test_what_the_broker_says_is_added() -> None:
    found = parse(progress(source("g", {"a": 1}, {"a": 1})))
    assert found is not None
    assert str(replace(found, held=(3,), undecided=2)).endswith("lag 0, held 3; undecided branches 2")


def test_other_sources_and_queries_are_left_out() -> None:
    other = SimpleNamespace(endOffset="41", latestOffset=None, numInputRows=0)
    assert parse(progress(other, SimpleNamespace(endOffset=None, latestOffset=None, numInputRows=0))) is None
    found = parse(progress(other, source("g", {"a": 1}, None), name=None))
    assert found is not None
    assert (found.name, len(found.sources)) == ("e68d", 1)


def test_metrics_have_prometheus_text_format() -> None:
    found = parse(progress(source("g", {'a"\\': 1}, {'a"\\': 4})))
    assert found is not None
    assert exposition([replace(found, held=(3,), undecided=0)]).splitlines() == [
        "# HELP escrowmq_spark_up 1 while the query runs, 0 after it has failed.",
        "# TYPE escrowmq_spark_up gauge",
        'escrowmq_spark_up{query="bills"} 1',
        "# HELP escrowmq_spark_lag_messages Messages that the query has not read yet.",
        "# TYPE escrowmq_spark_lag_messages gauge",
        'escrowmq_spark_lag_messages{query="bills",source="escrowmq queue a\\"\\\\, group g"} 3',
        "# HELP escrowmq_spark_held_messages Messages that are reserved for the query's group and not settled.",
        "# TYPE escrowmq_spark_held_messages gauge",
        'escrowmq_spark_held_messages{query="bills",source="escrowmq queue a\\"\\\\, group g"} 3',
        "# HELP escrowmq_spark_undecided_branches Prepared branches of all Spark queries that await their decision.",
        "# TYPE escrowmq_spark_undecided_branches gauge",
        'escrowmq_spark_undecided_branches{query="bills"} 0',
        "# HELP escrowmq_spark_epoch The number of the last micro-batch.",
        "# TYPE escrowmq_spark_epoch gauge",
        'escrowmq_spark_epoch{query="bills"} 7',
        "# HELP escrowmq_spark_rows Rows in the last micro-batch.",
        "# TYPE escrowmq_spark_rows gauge",
        'escrowmq_spark_rows{query="bills",source="escrowmq queue a\\"\\\\, group g"} 5',
    ]
    assert exposition([]) == ""

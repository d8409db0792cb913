"""The sums of a batch of messages are those of its rows."""

from __future__ import annotations

from collections import Counter
from functools import cache
from math import floor, log2
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.core.queues.outcome import Outcome
from escrowmq.pipeline.columns import integers
from escrowmq.pipeline.events import BUCKET_BITS
from escrowmq.pipeline.lifecycle import LATE
from escrowmq.pipeline.message_columns import MessageColumns
from escrowmq.pipeline.messages import Names, batches
from escrowmq.pipeline.sums import DDL, FLOW, HOUR, LATENCIES, MINUTE, ORDER, STEPS, of_messages

BEGIN, START = 100, 150
MOMENTS = st.sampled_from([-1, 0, MINUTE - 1, MINUTE + 5, 2 * HOUR])
FIELDS: dict[str, st.SearchStrategy[int]] = {
    "queue": st.integers(1, 2),
    "position": st.integers(1, 2) | st.integers(1 << BUCKET_BITS, (1 << BUCKET_BITS) + 1),
    "publish_lsn": st.sampled_from([-1, BEGIN - 1, BEGIN, START, START + 1]),
    "publish_order": st.sampled_from([LATE, 0, 3]),
    "publish_us": MOMENTS,
    "settle_us": MOMENTS,
    "first_delivered_us": MOMENTS,
    "outcome": st.sampled_from([0, int(Outcome.ACCEPTED), int(Outcome.REJECTED)]),
    "size": st.sampled_from([-1, 10]),
    "deliveries": st.integers(0, 2),
}
Row = dict[str, int]
ROWS = st.lists(st.fixed_dictionaries(FIELDS), min_size=1, max_size=20)


@cache
def _class(micros: int) -> int:
    return floor(log2(max(micros, 0) + 1) * STEPS)


def _summed(rows: list[Row]) -> dict[str, list[dict[str, Any]]]:
    messages = MessageColumns.empty(len(rows))
    for name in FIELDS:
        messages[name][:] = integers([row[name] for row in rows])
    (batch,) = batches(messages, Names({}))
    found = {name: sum_(batch) for name, sum_ in of_messages(BEGIN, START).items()}
    assert {name: ", ".join(each.schema.names) for name, each in found.items()} == {
        name: ", ".join(column.split()[0] for column in ddl.split(", ")) for name, ddl in DDL.items()
    }
    return {name: pa.Table.from_batches([each]).to_pylist() for name, each in found.items()}


@given(ROWS)
def test_messages_and_their_bytes_are_counted_by_the_minutes_of_publication_and_settlement(rows: list[Row]) -> None:
    wanted: Counter[tuple[Any, ...]] = Counter()
    sizes: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        outcome = Outcome(row["outcome"]).name.lower() if row["outcome"] else None
        came = row["publish_us"] // MINUTE if row["publish_lsn"] >= BEGIN and row["publish_us"] >= 0 else None
        went = row["settle_us"] // MINUTE if row["outcome"] and row["settle_us"] >= 0 else None
        key = (row["queue"], outcome, came, went)
        wanted[key] += 1
        sizes[key] += max(row["size"], 0)
    found = {(r["queue_id"], r["outcome"], r["came"], r["went"]): r for r in _summed(rows)[FLOW]}
    assert {key: row["messages"] for key, row in found.items()} == wanted
    assert {key: row["bytes"] or 0 for key, row in found.items()} == sizes
    assert sum(row["deliveries"] for row in found.values()) == sum(row["deliveries"] for row in rows)


@given(ROWS)
def test_messages_are_counted_by_class_of_latency(rows: list[Row]) -> None:
    wanted: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        for handed, end, chosen in (
            (False, row["settle_us"], row["outcome"] == Outcome.ACCEPTED),
            (True, row["first_delivered_us"], row["outcome"] != 0),
        ):
            if chosen and row["publish_us"] >= 0 and end >= 0:
                wanted[row["queue"], end // HOUR, handed, _class(end - row["publish_us"])] += 1
    found = {
        (row["queue_id"], row["hour"], row["handed"], row["class"]): row["messages"] for row in _summed(rows)[LATENCIES]
    }
    assert found == wanted


@given(ROWS)
def test_the_first_and_last_publications_of_each_bucket_are_found(rows: list[Row]) -> None:
    fresh = [row for row in rows if row["publish_lsn"] >= BEGIN and row["publish_order"] >= 0]
    buckets: dict[tuple[int, int], list[Row]] = {}
    for row in fresh:
        buckets.setdefault((row["queue"], row["position"] >> BUCKET_BITS), []).append(row)
    wanted = {
        key: (
            max(row["position"] for row in some),
            min(row["publish_lsn"] for row in some),
            max(row["publish_lsn"] for row in some),
            min((row["position"] for row in some if row["publish_lsn"] >= START), default=None),
        )
        for key, some in buckets.items()
    }
    found = {
        (row["queue_id"], row["bucket"]): (row["top"], row["low"], row["high"], row["known"])
        for row in _summed(rows)[ORDER]
    }
    assert found == wanted

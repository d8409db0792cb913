"""A failed query stays visible, with its last progress, until it runs again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from escrowmq.spark.listener import MOST_FAILED, ProgressListener
from tests.unit.spark.test_progress import progress, source


def report(listener: ProgressListener, query: str, name: str, read: int = 4) -> None:
    found = progress(source("g", {"orders": read}, {"orders": 6}), name=name)
    found.id = query
    listener.onQueryProgress(SimpleNamespace(progress=found))


def end(listener: ProgressListener, query: str, exception: str | None = None) -> None:
    event: Any = SimpleNamespace(id=query, exception=exception)
    listener.onQueryTerminated(event)


def samples(listener: ProgressListener) -> list[str]:
    return [line for line in listener.metrics().splitlines() if "_up{" in line or "_lag_messages{" in line]


LAG = 'escrowmq_spark_lag_messages{query="bills",source="escrowmq queue orders, group g"}'
UP = 'escrowmq_spark_up{query="bills"}'


def test_a_failed_query_is_shown_as_such_until_it_runs_again() -> None:
    listener = ProgressListener()
    report(listener, "1", "bills")
    assert samples(listener) == [f"{UP} 1", f"{LAG} 2"]
    end(listener, "1", "escrowmq.spark.errors.BrokerUnavailableError: …")
    assert samples(listener) == [f"{UP} 0", f"{LAG} 2"]
    report(listener, "1", "bills", read=5)
    assert samples(listener) == [f"{UP} 1", f"{LAG} 1"]


def test_a_query_with_another_checkpoint_takes_the_place_of_a_failed_one_of_its_name() -> None:
    listener = ProgressListener()
    report(listener, "1", "bills")
    end(listener, "1", "failed")
    report(listener, "2", "bills", read=6)
    assert samples(listener) == [f"{UP} 1", f"{LAG} 0"]


def test_a_stopped_query_is_no_longer_shown() -> None:
    listener = ProgressListener()
    report(listener, "1", "bills")
    end(listener, "1")
    assert samples(listener) == []


def test_only_the_latest_failed_queries_are_remembered() -> None:
    listener = ProgressListener()
    for number in range(MOST_FAILED + 1):
        report(listener, str(number), f"query {number}")
        end(listener, str(number), "failed")
    assert len(listener.latest) == MOST_FAILED
    assert "0" not in listener.latest

"""Concurrent work returns its results in order, and nothing keeps running after a failure."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from escrowmq.pipeline.concurrency import POOL, at_once


class Spark:
    """Records the scheduler pool that each thread has set."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.pools: dict[int, str] = {}

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - PySpark's name
        assert name == POOL
        self.pools[threading.get_ident()] = value


def test_results_are_in_order_and_each_has_a_pool_of_its_own() -> None:
    spark, all_there = Spark(), threading.Barrier(3, timeout=30)

    def work(result: str) -> tuple[str, str]:
        all_there.wait()  # passes only if all three run at the same time
        return result, spark.pools[threading.get_ident()]

    found = at_once(cast("Any", spark), *(lambda result=result: work(result) for result in "abc"))
    assert [result for result, _ in found] == ["a", "b", "c"]
    assert len({pool for _, pool in found}) == 3


def test_a_failure_is_raised_after_all_started_work_has_ended() -> None:
    begun, failed, ended = threading.Event(), threading.Event(), []

    def fail() -> None:
        assert begun.wait(30)
        failed.set()
        raise ValueError("first")

    def go_on() -> None:
        begun.set()
        assert failed.wait(30)
        ended.append(True)

    with pytest.raises(ValueError, match="first"):
        at_once(cast("Any", Spark()), fail, go_on)
    assert ended == [True]

"""Write independent tables at the same time, so that Spark executes one query while it plans another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL = "spark.scheduler.pool"


def at_once(spark: SparkSession, *works: Callable[[], Any]) -> list[Any]:
    """Call each of `works` in a separate thread, and return their results in order.

    Each thread has its own pool in Spark's scheduler. With the scheduling mode FAIR, small jobs then need not wait for
    large ones.

    Raises:
        Exception: the exception of the first of `works` that failed, after all of them have ended.
    """

    def work(number: int) -> Any:
        spark.sparkContext.setLocalProperty(POOL, f"audit {number}")
        return works[number]()

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(work, range(len(works))))

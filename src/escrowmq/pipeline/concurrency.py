"""Work on tables that do not depend on each other, at once: while Spark plans one, it works on another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL = "spark.scheduler.pool"


def at_once(spark: SparkSession, *works: Callable[[], Any]) -> list[Any]:
    """What each of `works` returns. Raises what the first of them raises, once all that began have ended.

    Each has a pool of Spark's scheduler, so that small jobs need not wait for the end of large ones if it is fair.
    """

    def work(number: int) -> Any:
        spark.sparkContext.setLocalProperty(POOL, f"audit {number}")
        return works[number]()

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(work, range(len(works))))

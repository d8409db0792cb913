"""The Spark query: sums by carrier and hour, and the late flights. It is independent of the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LATE_MINUTES: Final = 60
KEY: Final = ("carrier", "hour")
_FLIGHT: Final = (
    "id long, time_hour string, carrier string, flight int, origin string, dest string, hour int, arr_delay int"
)


def parsed(messages: DataFrame) -> DataFrame:
    """Return the flights in the column `body`, which holds JSON texts."""
    from pyspark.sql import functions as f

    return messages.select(f.from_json("body", _FLIGHT).alias("flight")).select("flight.*")


def sums(flights: DataFrame) -> DataFrame:
    """For each carrier and hour, return flights, arrived flights, minutes of delay, and late flights."""
    from pyspark.sql import functions as f

    delay = f.col("arr_delay")
    return flights.groupBy(*KEY).agg(
        f.count("*").alias("flights"),
        f.count(delay).alias("arrived"),
        f.coalesce(f.sum(delay), f.lit(0)).alias("delay"),
        f.count_if(delay >= LATE_MINUTES).alias("late"),
    )


def late(flights: DataFrame) -> DataFrame:
    """Return messages for the flights that arrived at least LATE_MINUTES late."""
    from pyspark.sql import functions as f

    return flights.where(f.col("arr_delay") >= LATE_MINUTES).select(f.to_json(f.struct("*")).alias("body"))

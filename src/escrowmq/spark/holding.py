"""Batch jobs over queues: a DataFrame of what is held, settled when the job is done (PIPE-1)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from escrowmq.client.escrow import Settle
from escrowmq.spark.batch import ROLE, ranges
from escrowmq.spark.options import SourceOptions
from escrowmq.spark.plan import STREAM
from escrowmq.spark.pool import escrow, explained
from escrowmq.spark.queues import Queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_NONE: Final = "(?!)"
"""A regular expression that fits no name."""


@contextmanager
def held(spark: SparkSession, options: Mapping[str, str]) -> Iterator[DataFrame]:
    """What the group holds of the queues, and all that they have now, as a DataFrame that can be read again and again.

    When the block ends it is settled. If the block raises, or the program is killed, it stays held, and the next `held`
    for this group begins with it. Options as of `spark.read`. Raises EscrowSparkError.
    """
    wanted = SourceOptions.of(options)
    spans = ranges(wanted)
    starting = json.dumps({span.queue: span.first for span in spans})
    ending = json.dumps({span.queue: span.end for span in spans})
    reader = spark.read.format("escrowmq").options(**options)
    if wanted.pattern:  # a queue that comes later is not among what is settled in the end
        names = "|".join(re.escape(span.queue) for span in spans)
        reader = reader.option("subscribePattern", names or _NONE)
    yield reader.option("startingPosition", starting).option("endingPosition", ending).load()
    with explained(wanted.endpoint):
        broker = escrow(wanted.endpoint, ROLE)
        for span in spans:
            if span.kind != STREAM:
                broker.settle(Settle(span.queue, wanted.group, span.end))


def release(options: Mapping[str, str]) -> int:
    """What the group holds goes back to its queues, marked as redelivered; how many messages that were.

    For a group that will read no more: a query that goes on afterwards misses what it had planned. Raises
    EscrowSparkError, also while a transaction that is in doubt settles some of it.
    """
    wanted = SourceOptions.of(options)
    with explained(wanted.endpoint):
        broker = escrow(wanted.endpoint, ROLE)
        queues = Queues(wanted)
        names = [name for name, state in queues.states(broker).items() if state.kind != STREAM]
        return sum(broker.release(name, wanted.group) for name in names)

"""Batch jobs over queues: read reserved messages as a DataFrame, and settle them when the job is done (PIPE-1)."""

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
"""A regular expression that matches no name."""


@contextmanager
def held(spark: SparkSession, options: Mapping[str, str]) -> Iterator[DataFrame]:
    """Yield a DataFrame of the messages already reserved for the group, and of all others that the queues have now.

    The DataFrame can be read repeatedly. Its messages are settled at the end of the block. If the block raises, or the
    program is killed, they stay reserved, and the next `held` for this group begins with them.

    Args:
        spark: the session.
        options: the options of `spark.read`.

    Raises:
        EscrowSparkError: an option is invalid, or the broker is unavailable or refuses.
    """
    wanted = SourceOptions.of(options)
    spans = ranges(wanted)
    starting = json.dumps({span.queue: span.first for span in spans})
    ending = json.dumps({span.queue: span.end for span in spans})
    reader = spark.read.format("escrowmq").options(**options)
    if wanted.pattern:  # a queue declared later is not settled at the end, so it must not be read either
        names = "|".join(re.escape(span.queue) for span in spans)
        reader = reader.option("subscribePattern", names or _NONE)
    yield reader.option("startingPosition", starting).option("endingPosition", ending).load()
    with explained(wanted.endpoint):
        broker = escrow(wanted.endpoint, ROLE)
        for span in spans:
            if span.kind != STREAM:
                broker.settle(Settle(span.queue, wanted.group, span.end))


def release(options: Mapping[str, str]) -> int:
    """Give the group's reserved messages back to their queues, marked as redelivered. Returns the number of messages.

    Use this for a group that will not read any more: a query that continues afterwards finds its planned messages gone.

    Raises:
        EscrowSparkError: an option is invalid, the broker is unavailable or refuses, or a transaction in doubt settles
            some of the messages.
    """
    wanted = SourceOptions.of(options)
    with explained(wanted.endpoint):
        broker = escrow(wanted.endpoint, ROLE)
        queues = Queues(wanted)
        names = [name for name, state in queues.states(broker).items() if state.kind != STREAM]
        return sum(broker.release(name, wanted.group) for name in names)

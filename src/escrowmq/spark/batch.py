"""The batch reader (`spark.read`). Its ranges are fixed when the DataFrame is loaded, and can be read repeatedly.

A batch of streams can be read from a standby, since it changes nothing.

Reading a stream changes nothing. The messages of a classic queue are reserved for the group, so that no other consumer
receives them, but they are not settled: `escrowmq.spark.held` settles them when its block ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader

from escrowmq.client.escrow import Escrow, QueueState
from escrowmq.client.reads import PLAN
from escrowmq.spark.options import SourceOptions
from escrowmq.spark.plan import STREAM, Part, Span, cut
from escrowmq.spark.pool import close_standby, escrow, explained
from escrowmq.spark.queues import Queues, position
from escrowmq.spark.reading import read

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ROLE: Final = "driver"
PLANNER: Final = "planner"
_NOTHING: Final = Part(Span("", STREAM, 0, 0))


class BatchReader(DataSourceReader):
    """Implements `spark.read.format("escrowmq")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[Part]:
        try:
            spans = ranges(self._options, PLANNER, PLAN)
        finally:
            close_standby(self._options.endpoint, PLANNER)
        pieces = cut(spans, self._options.most_of_partition, self._options.partitions)
        return [Part(piece) for piece in pieces] or [_NOTHING]

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        if partition.span.first < partition.span.end:
            yield from read(self._options, self._schema, partition, streaming=False)


def ranges(options: SourceOptions, role: str = ROLE, reads: str = "") -> list[Span]:
    """Return the messages that can be read now, as one range for each queue. Reserves those of classic queues.

    `role` and `reads` are those of the connection; see `pool.escrow`.

    Raises:
        OptionError: an option is invalid, or a queue does not exist.
        BrokerUnavailableError: the broker does not answer, or refuses the login.
    """
    with explained(options.endpoint):
        broker = escrow(options.endpoint, role, reads)
        queues = Queues(options)
        return [_range(broker, queues, options, name, state) for name, state in queues.states(broker).items()]


def _range(broker: Escrow, queues: Queues, options: SourceOptions, name: str, state: QueueState) -> Span:
    first = queues.begin(broker, name, state, options.starting)
    if state.kind == STREAM:
        end = min(position(state, name, options.ending), state.next)
        explicit = isinstance(options.starting, dict) and name in options.starting
        return Span(name, state.kind, first, max(end, first), exact=explicit, ident=state.ident)
    until = queues.end(broker, name) + state.ready
    if isinstance(options.ending, dict):
        until = options.ending.get(name, until)
    elif options.ending == "earliest":
        until = first
    return Span(name, state.kind, first, max(queues.hold(broker, name, until), first))

"""The streaming source (PIPE-1). For one run of a query, Spark calls all methods but `read` in one driver process."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader

from escrowmq.client import NotFound, PreconditionFailed
from escrowmq.client.escrow import Escrow, QueueState, Settle
from escrowmq.spark import offsets
from escrowmq.spark.errors import EscrowSparkError
from escrowmq.spark.features import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from escrowmq.spark.offsets import Offsets
from escrowmq.spark.options import SourceOptions
from escrowmq.spark.plan import STREAM, Part, Span, cut
from escrowmq.spark.pool import close, escrow, explained
from escrowmq.spark.queues import Queues, report_loss
from escrowmq.spark.reading import read
from escrowmq.spark.reconnect import RetryDeadline, persistent

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ROLE: Final = "driver"
_log: Final = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches as ranges of numbers, reserves their messages, and settles them when Spark commits.

    A reservation is durable, and its numbers always refer to the same messages. The driver may therefore be killed
    after it has extended the reservation and before it has recorded the offset: the next range that it plans contains
    the same messages.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._queues = Queues(options)
        self._target: Offsets | None = None
        self._available: Offsets = {}
        self._latest: Offsets | None = None
        self._settled: Offsets = {}

    # -- planning, in the driver

    @property
    def retry(self) -> RetryDeadline:
        return RetryDeadline(self._options.endpoint, ROLE, self._options.reconnect)

    @persistent
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with explained(self._options.endpoint):
            broker = self._broker()
            found = self._queues.states(broker)
            begin = {name: self._begin(broker, name, state) for name, state in found.items()}
        if self._options.starting == "latest":
            self._latest = begin
        return self._encode(begin)

    def _begin(self, broker: Escrow, name: str, state: QueueState) -> int:
        first = self._queues.begin(broker, name, state, self._options.starting)
        if state.kind == STREAM and first > state.next:
            text = (
                f"option startingPosition: stream {name!r} has not reached position {first}, its next position is "
                f"{state.next}"
            )
            report_loss(self._options, text, "to begin with the messages that it has")
            return state.first
        return first

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.most)

    @persistent
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with explained(self._options.endpoint):
            broker = self._broker()
            found = self._queues.states(broker)
            self._target = {name: self._come_to(broker, name, at) + waiting(at) for name, at in found.items()}

    @persistent
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        with explained(self._options.endpoint):
            broker = self._broker()
            begin, streams = offsets.decode(self._options.group, start), offsets.streams(start)
            found = self._queues.states(broker)
            # Spark does not record the offset at which a query begins. It asks again when it repeats the first epoch,
            # and "latest" is a different place by then. So the first epoch is empty, and its end records the place.
            beginning = begin == self._latest
            ends = dict(begin)
            available: Offsets = {}
            for name, state in found.items():
                come_to = self._come_to(broker, name, state)
                end = self._available[name] = come_to + waiting(state)
                if name not in begin:
                    begin[name] = self._queues.begin(broker, name, state, "earliest")
                if come_to < begin[name] or streams.get(name, state.ident) != state.ident:
                    self._queues.lost(name, begin[name])
                    begin[name] = ends[name] = end = self._queues.begin(broker, name, state, "earliest")
                elif name in ends:
                    # Spark asks from the end of the last completed epoch. `commit` tells of it, too, but only
                    # when there is another epoch, and therefore never at the end of a query.
                    self._settle(broker, {name: begin[name]})
                if self._target is not None:
                    end = min(end, self._target.get(name, begin[name]))
                available[name] = 0 if beginning else max(end - begin[name], 0)
            for name, count in share(available, _most(limit)).items():
                ends[name] = until = begin[name] + count
                if count and found[name].kind != STREAM:
                    ends[name] = max(self._queues.hold(broker, name, until), begin[name])
        self._latest = None
        return self._encode(ends, streams)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return offsets.encode(self._options.group, self._available) if self._available else None

    @persistent
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        with explained(self._options.endpoint):
            begin, ends = (offsets.decode(self._options.group, given) for given in (start, end))
            streams = offsets.streams(end)
            broker = self._broker()
            changed = {name: stop for name, stop in ends.items() if begin.get(name) != stop}
            spans = []
            for name, stop in changed.items():
                first, exact = begin.get(name), name in begin
                try:
                    kind = self._queues.kinds_of(broker, [name])[name]
                    if first is None:  # a new queue
                        first = 0 if kind == STREAM else self._queues.look(broker, name).first
                except NotFound:
                    self._queues.gone(name, first or 1, stop)
                    continue
                ident = streams.get(name, 0)
                if ident and self._queues.streams[name] != ident:
                    self._queues.gone(name, first, stop)
                elif first < stop:  # otherwise the queue was declared again, or is read from its latest position
                    spans.append(Span(name, kind, first, stop, exact, ident))
        pieces = cut(spans, self._options.most_of_partition, self._options.partitions)
        group = self._options.group
        settlements = tuple(Settle(span.queue, group, span.end) for span in spans if span.kind != STREAM)
        if not self._options.in_transaction:
            settlements = ()
        return [Part(piece, settlements if i == 0 else ()) for i, piece in enumerate(pieces)]

    @persistent
    def commit(self, end: dict[str, Any]) -> None:
        """Settle the messages below `end`, because Spark has recorded the epoch that ends there as done.

        If the sink's decision has settled them already, this does nothing.
        """
        with explained(self._options.endpoint):
            self._settle(self._broker(), offsets.decode(self._options.group, end))

    def _settle(self, broker: Escrow, ends: Offsets) -> None:
        for name, number in ends.items():
            if self._settled.get(name) == number:
                continue
            try:
                if self._queues.kinds_of(broker, [name])[name] != STREAM:
                    broker.settle(Settle(name, self._options.group, number))
            except (NotFound, PreconditionFailed) as error:
                _log.warning("queue %r: messages below %d were not settled: %s", name, number, error.text)
            self._settled[name] = number

    def stop(self) -> None:
        close(self._options.endpoint, ROLE)

    def _encode(self, numbers: Offsets, before: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Encode offsets with the IDs of the streams among the queues. `before` has the IDs of deleted streams."""
        known = {**(before or {}), **self._queues.streams}
        return offsets.encode(self._options.group, numbers, {name: known[name] for name in numbers if name in known})

    def _broker(self) -> Escrow:
        return escrow(self._options.endpoint, ROLE)

    def _come_to(self, broker: Escrow, name: str, state: QueueState) -> int:
        """Return the number after the last one assigned. A query that has read further has read another queue of this
        name.

        For a classic queue this is the end of the group's reservation, regardless of how many messages are waiting. It
        is requested each time, because another source of the query may use the same group.
        """
        return state.next if state.kind == STREAM else self._queues.look(broker, name).end

    # -- reading, in a task

    def read(self, partition: Part) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        return read(self._options, self._schema, partition, streaming=True)


def share(available: Offsets, most: int | None) -> Offsets:
    """Distribute a limit of `most` messages over queues in proportion to their messages, with at least one each."""
    total = sum(available.values())
    if most is None or total <= most:
        return available
    taken: Offsets = {}
    left = most
    for name, count in available.items():
        taken[name] = min(count, max(most * count // total, 1 if count else 0), left)
        left -= taken[name]
    for name, count in available.items():
        more = min(count - taken[name], left)
        taken[name] += more
        left -= more
    return taken


def waiting(state: QueueState) -> int:
    """Return the number of messages that have no number yet. In a stream, every message has one."""
    return 0 if state.kind == STREAM else state.ready


def _most(limit: ReadLimit) -> int | None:
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows
    if isinstance(limit, ReadAllAvailable):
        return None
    raise EscrowSparkError(f"the source does not support the limit {type(limit).__name__}, only numbers of messages")

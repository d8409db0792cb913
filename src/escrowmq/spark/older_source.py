"""The streaming source for PySpark 4.0 and 4.1, which tell it neither where a micro-batch begins nor its limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from escrowmq.spark.plan import Part
from escrowmq.spark.pool import explained
from escrowmq.spark.reconnect import persistent
from escrowmq.spark.source import StreamReader, share, waiting

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from escrowmq.spark.options import SourceOptions


class OlderStreamReader(StreamReader):
    """Remembers where the last micro-batch of this run ended, which is where the next one begins.

    In the first micro-batch of a run it does not know. A classic queue then continues at the end of the group's
    reservation, which is the end of the last micro-batch, or after it if the driver was killed while planning. The
    messages in between are part of the next micro-batch, too. A stream is read to its end.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._at: dict[str, Any] | None = None

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # noqa: N802 - Spark's name
        if self._at is not None:
            return super().latestOffset(self._at, self.getDefaultReadLimit())
        return self._continue()

    @persistent
    def _continue(self) -> dict[str, Any]:
        with explained(self._options.endpoint):
            broker = self._broker()
            found = self._queues.states(broker)
            ends = {name: self._come_to(broker, name, state) for name, state in found.items()}
            more = share({name: waiting(state) for name, state in found.items()}, self._options.most)
            for name, count in more.items():
                if count:
                    ends[name] = max(self._queues.hold(broker, name, ends[name] + count), ends[name])
        return self._encode(ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Part]:
        found = super().partitions(start, end)
        self._at = end
        return found

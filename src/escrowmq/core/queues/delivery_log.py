"""Records of deliveries for the audit: each message and the consumer that received it. `journal.detail` enables it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import ranges_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.queue import Queue
from escrowmq.core.records.deliveries import REDELIVERED, SETTLED, Delivered, Part, encode_deliveries


class Host(Protocol):
    """The part of the broker that recording needs."""

    now: int
    log: Log


class Deliveries:
    """The deliveries of this turn, until `flush` writes them."""

    __slots__ = ("_host", "_waiting")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: dict[Queue, list[Part]] = {}

    def note(self, queue: Queue, consumer: str, entries: Sequence[Entry], *, settled: bool) -> None:
        """Note that `entries` are delivered to a client. Entries that are not in the log are not recorded."""
        if not (queue.durable and queue.logged):
            return
        flags = SETTLED if settled else 0
        fresh = [e.position for e in entries if not e.deliveries and e.run.envelope.durable]
        again = [e.position for e in entries if e.deliveries and e.run.envelope.durable]
        parts = self._waiting.setdefault(queue, [])
        if again:
            parts.append(Part(consumer, flags | REDELIVERED, ranges_of(again)))
        if fresh:
            parts.append(Part(consumer, flags, ranges_of(fresh)))

    def flush(self) -> None:
        """Append the records. The caller records settlements of these deliveries only afterwards."""
        if not self._waiting:
            return
        for queue, parts in self._waiting.items():
            if parts:
                queue.record_delivered()  # so that the next delivery is marked as redelivered, too
                self._host.log.append(Kind.DELIVERIES, encode_deliveries(Delivered(queue.ident, self._host.now, parts)))
        self._waiting.clear()

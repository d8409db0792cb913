"""Deliveries that an operator takes from a queue over several turns: they are held until `end`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.returning import part_of

if TYPE_CHECKING:
    from escrowmq.core.engine import Engine
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.queue import Queue


class Taking:
    """Entries taken from one queue (`core.ports.Holder`). `label` names the operator in the log."""

    __slots__ = ("_consumer", "_engine", "_entries", "_label", "_queue")

    def __init__(self, engine: Engine, queue: Queue, label: str) -> None:
        self._engine = engine
        self._queue = queue
        self._label = label
        self._consumer = queue.getter
        self._entries: list[Entry] = []
        engine.holders[self] = None

    def take(self, most: int) -> list[Entry]:
        """Take up to `most` entries more. Raises UNAVAILABLE if the first one cannot be read."""
        if self._queue.deleted:
            return []
        found = self._engine.fetch(self._queue, most, auto_settle=False, label=self._label)
        self._entries += found
        return found

    def end(self, disposition: Disposition) -> None:
        """Settle everything that was taken."""
        del self._engine.holders[self]
        entries, self._entries = self._entries, []
        if entries:
            self._engine.settle_together(self._consumer, entries, disposition)

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """See `Holder.held`."""
        return [(self._consumer, self._entries.copy())]

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """See `Holder.copy_ahead`. Nothing is copied in advance, since there are few entries."""
        del at, most
        return 1, 0

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """See `Holder.held_part`."""
        return part_of([(self._consumer, self._entries)], start, most)

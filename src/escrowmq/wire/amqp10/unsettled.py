"""The unsettled deliveries of one consuming link, by numbers that the link gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.messages.marks import Modification
from escrowmq.core.queues.outcome import Disposition
from escrowmq.core.queues.unsettled import Unsettled, entries_by_consumer

if TYPE_CHECKING:
    from escrowmq.core.engine import Engine
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer


class LinkDeliveries:
    """The unsettled deliveries of a link (`core.ports.Holder`, and `MemoryOwner` of the server's relief)."""

    __slots__ = ("__weakref__", "_engine", "_unsettled")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._unsettled = Unsettled()
        engine.holders[self] = None

    @property
    def count(self) -> int:
        """The number of unsettled deliveries."""
        return self._unsettled.count

    def acquire(self, consumer: Consumer, entries: list[Entry]) -> int:
        """Keep deliveries until they are settled. Return the number of the first one; the others follow it."""
        first = self._unsettled.next_tag
        self._unsettled.add(entries, consumer)
        return first

    def settle(self, first: int, last: int, disposition: Disposition | Modification) -> int:
        """Settle the unsettled ones of the deliveries from `first` to `last`. Return their number."""
        before = self._unsettled.count
        taken = self._unsettled.take_between(first, last)
        for consumer, entries in entries_by_consumer(taken).items():
            if isinstance(disposition, Modification):
                self._engine.modify(consumer, entries, disposition)
            else:
                self._engine.settle(consumer, entries, disposition)
        return before - self._unsettled.count

    def close(self, disposition: Disposition | Modification) -> None:
        """Settle everything in this way, because the link's terminus is gone."""
        if disposition is Disposition.MODIFIED:
            self._engine.give_back([(consumer, entries) for _, entries, consumer in self._unsettled.clear()])
        else:
            self.settle(1, self._unsettled.next_tag, disposition)
        self._engine.holders.pop(self, None)

    # -- core.ports.Holder

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """Return copies of all unsettled deliveries."""
        return self._unsettled.copies()

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """Return at most `most` of them, from number `start` on."""
        return self._unsettled.part(start, most)

    # -- server.relief.MemoryOwner

    @property
    def next_tag(self) -> int:
        """The number of the next delivery."""
        return self._unsettled.next_tag

    def held_bytes(self, before: int) -> int:
        """The bytes of unsettled deliveries with numbers less than `before`, about."""
        return self._unsettled.bytes_before(before)

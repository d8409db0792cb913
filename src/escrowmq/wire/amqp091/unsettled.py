"""Deliveries of a channel that are not settled, by delivery tag."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import repeat

from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.recovery.copying import part_of

Item = tuple[Entry, Consumer]


class Unsettled:
    """Tags count from 1 and belong to the channel; most are settled near the front, in order.

    A slot is None when its delivery is settled, or needed no settlement.
    """

    __slots__ = ("_base", "_slots", "count")

    def __init__(self) -> None:
        self._base = 1  # tag of the first slot
        self._slots: deque[Item | None] = deque()
        self.count = 0

    def __iter__(self) -> Iterator[Item]:
        return (slot for slot in self._slots if slot is not None)

    @property
    def places(self) -> int:
        """How many tags `part` knows, settled ones among them."""
        return len(self._slots)

    def part(self, start: int, most: int) -> list[Item | None]:
        """At most `most` deliveries from place `start` on, the first being 0; None for those that are settled."""
        return part_of(self._slots, start, most)

    @property
    def next_tag(self) -> int:
        """The tag that the next delivery gets."""
        return self._base + len(self._slots)

    def add(self, entries: list[Entry], consumer: Consumer) -> None:
        """Deliveries that wait for a settlement take the next tags."""
        self._slots.extend(zip(entries, repeat(consumer)))
        self.count += len(entries)

    def skip(self, number: int) -> None:
        """The next `number` tags belong to deliveries that need no settlement."""
        if self._slots:
            self._slots.extend(repeat(None, number))
        else:
            self._base += number

    def take(self, tag: int) -> Item | None:
        """Remove and return the delivery with this tag; None if there is none."""
        slots = self._slots
        i = tag - self._base
        if not 0 <= i < len(slots):
            return None
        if i == 0:
            item = slots.popleft()
            self._base += 1
        else:
            item = slots[i]
            slots[i] = None
        if item is not None:
            self.count -= 1
            if slots and slots[0] is None:
                self._trim()
        return item

    def take_through(self, tag: int) -> list[tuple[int, Item]]:
        """Remove and return all deliveries up to this tag (0: all), with their tags; nothing if it is unknown."""
        slots = self._slots
        i = len(slots) - 1 if tag == 0 else tag - self._base
        if not 0 <= i < len(slots) or (tag and slots[i] is None):
            return []
        pop = slots.popleft
        taken = [(self._base + k, slot) for k in range(i + 1) if (slot := pop()) is not None]
        self._base += i + 1
        self.count -= len(taken)
        self._trim()
        return taken

    def settle_through(self, tag: int) -> list[Item]:
        """As `take_through`, without the tags, for those who will not need them again."""
        slots = self._slots
        number = len(slots) if tag == 0 else tag - self._base + 1
        if not 0 < number <= len(slots) or (tag and slots[number - 1] is None):
            return []
        if number == len(slots):
            taken = [slot for slot in slots if slot is not None]
            slots.clear()
        else:
            pop = slots.popleft
            taken = [slot for _ in range(number) if (slot := pop()) is not None]
        self._base += number
        self.count -= len(taken)
        self._trim()
        return taken

    def restore(self, items: Iterable[tuple[int, Item]]) -> None:
        """Put deliveries back under their old tags (TX-4)."""
        # Only the slots concerned are touched: a client may hold a million deliveries, and roll back often.
        returned = dict(items)
        first = min(returned, default=self._base)
        if first < self._base:
            self._slots.extendleft(repeat(None, self._base - first))
            self._base = first
        for tag, item in returned.items():
            self._slots[tag - self._base] = item
        self.count += len(returned)

    def clear(self) -> list[Item]:
        """Remove and return everything, in order."""
        items = list(self)
        self._base = self.next_tag
        self._slots.clear()
        self.count = 0
        return items

    def _trim(self) -> None:
        slots = self._slots
        while slots and slots[0] is None:
            slots.popleft()
            self._base += 1


def by_consumer(items: list[Item]) -> Iterable[tuple[Consumer, list[Entry]]]:
    """Deliveries grouped by the consumer that got them, order kept within each."""
    consumer = items[0][1]
    entries = [entry for entry, holder in items if holder is consumer]
    if len(entries) == len(items):
        return ((consumer, entries),)
    groups: dict[Consumer, list[Entry]] = {}
    for entry, holder in items:
        groups.setdefault(holder, []).append(entry)
    return groups.items()

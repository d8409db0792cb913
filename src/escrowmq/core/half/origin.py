"""The facts that many half messages share: topic, producer group, destination and owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.records.half import OriginFields


class HalfOrigin:
    """Shared facts with their number. `queue` is the destination, None if it is gone; `count` half messages have it."""

    __slots__ = ("count", "key", "number", "queue")

    def __init__(self, key: OriginFields, number: int, queue: Queue | None = None) -> None:
        self.key = key
        self.number = number
        self.queue = queue
        self.count = 0


class Origins:
    """The origins of the half messages of a virtual host."""

    __slots__ = ("_by_key", "_by_number", "_last")

    def __init__(self) -> None:
        self._by_key: dict[OriginFields, HalfOrigin] = {}
        self._by_number: dict[int, HalfOrigin] = {}
        self._last = 0

    def __getitem__(self, number: int) -> HalfOrigin:
        return self._by_number[number]

    def of(self, key: OriginFields, queue: Queue | None = None) -> HalfOrigin:
        """Return the origin with this key, which is made if need be."""
        found = self._by_key.get(key)
        if found is None:
            self._last = self._last % 0xFFFF_FFFF + 1
            while self._last in self._by_number:
                self._last = self._last % 0xFFFF_FFFF + 1
            found = self._by_key[key] = self._by_number[self._last] = HalfOrigin(key, self._last, queue)
        return found

    def restore(self, key: OriginFields, number: int) -> None:
        """Add an origin that a snapshot names."""
        self._by_key[key] = self._by_number[number] = HalfOrigin(key, number)

    def let_go(self, origin: HalfOrigin) -> None:
        """Note that a half message of `origin` is forgotten."""
        origin.count -= 1
        if not origin.count:
            del self._by_key[origin.key], self._by_number[origin.number]

    def all(self) -> list[HalfOrigin]:
        """Return all origins."""
        return list(self._by_number.values())

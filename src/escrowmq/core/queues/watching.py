"""Watchers of a stream: each waits for a message at a position, and is called once."""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from escrowmq.core.budget import Budget

_FEW: Final = 64
CALL: Final = 2
"""The cost of a call, in units of the turn's budget, apart from the work that the watcher charges itself."""


class Watcher(Protocol):
    """Waits for a message."""

    def ready(self) -> None:
        """Note that there is a message, or that the stream is deleted. It may watch again."""
        ...


class Watchers:
    """The watchers of one stream. They are called in the order in which they could have been called first, so one that
    watches again waits for its turn.
    """

    __slots__ = ("_due", "_heap", "_numbers", "_waiting")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Watcher]] = []
        self._due: deque[tuple[int, Watcher]] = deque()
        self._numbers = count()
        self._waiting: dict[Watcher, int] = {}  # the number of the item that counts

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, position: int, watcher: Watcher) -> None:
        """Wait for a message at `position` or later."""
        number = next(self._numbers)
        self._waiting[watcher] = number
        heapq.heappush(self._heap, (position, number, watcher))
        if len(self._heap) > _FEW and len(self._heap) > 2 * len(self._waiting):
            self._heap = [item for item in self._heap if self._waiting.get(item[2]) == item[1]]
            heapq.heapify(self._heap)

    def remove(self, watcher: Watcher) -> None:
        """Do not call `watcher` any more."""
        self._waiting.pop(watcher, None)

    def call(self, end: int, budget: Budget) -> bool:
        """Call the watchers that wait for positions before `end`. Return False if others are left because the budget is
        used up, or because they have begun to watch meanwhile.
        """
        heap, due = self._heap, self._due
        while heap and heap[0][0] < end:
            due.append(heapq.heappop(heap)[1:])
        while due and budget.left > 0:
            number, watcher = due.popleft()
            if self._waiting.get(watcher) == number:
                budget.left -= CALL
                del self._waiting[watcher]
                watcher.ready()
        return not (due or (self._heap and self._heap[0][0] < end))

    def end(self) -> None:
        """Call everyone: the stream is deleted."""
        waiting, self._waiting = list(self._waiting), {}
        self._heap.clear()
        self._due.clear()
        for watcher in waiting:
            watcher.ready()

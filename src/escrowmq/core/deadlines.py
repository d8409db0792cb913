"""All deadlines of the broker in one heap, driven by the time that is passed in."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

_FEW: Final = 64


class Deadline:
    """A call that is due at `at` (milliseconds since the epoch). After `cancel()` it is never made."""

    __slots__ = ("_owner", "action", "at")

    def __init__(self, at: int, action: Callable[[], None], owner: Deadlines) -> None:
        self.at = at
        self.action: Callable[[], None] | None = action
        self._owner = owner

    def cancel(self) -> None:
        if self.action is not None:
            self.action = None
            self._owner.cancelled()


class Deadlines:
    """A heap of deadlines. Those with equal times run in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Deadline]] = []
        self._numbers = count()
        self._dead = 0  # number of cancelled deadlines in the heap
        self._stopped = False

    def __len__(self) -> int:
        """Return the number of deadlines in the heap, including cancelled ones."""
        return len(self._heap)

    def set(self, at: int, action: Callable[[], None]) -> Deadline:
        """Call `action` once the time has reached `at`."""
        deadline = Deadline(at, action, self)
        heapq.heappush(self._heap, (at, next(self._numbers), deadline))
        return deadline

    def stop(self) -> None:
        """Let no deadline be due any more, neither those that are set nor later ones."""
        self._stopped = True

    def cancelled(self) -> None:
        """Count a cancelled deadline. When most are cancelled, remove them, since every transaction leaves one
        behind.
        """
        self._dead += 1
        if self._dead > _FEW and self._dead * 2 > len(self._heap):
            self._heap = [item for item in self._heap if item[2].action is not None]
            heapq.heapify(self._heap)
            self._dead = 0

    def next(self) -> int | None:
        """Return the time of the earliest deadline that is not cancelled; None if there is none."""
        if self._stopped:
            return None
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
            self._dead -= 1
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> Iterator[Callable[[], None]]:
        """Remove and yield the actions that are due, earliest first, including due ones that are set meanwhile."""
        while self._heap and self._heap[0][0] <= now and not self._stopped:
            deadline = heapq.heappop(self._heap)[2]
            if deadline.action is None:
                self._dead -= 1
            else:
                action, deadline.action = deadline.action, None
                yield action

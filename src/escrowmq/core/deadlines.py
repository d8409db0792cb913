"""All deadlines of the broker in one heap, driven by the time that is passed in."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count


class Deadline:
    """A call that is due at `at` (milliseconds since the epoch). `cancel()` makes it nothing."""

    __slots__ = ("action", "at")

    def __init__(self, at: int, action: Callable[[], None]) -> None:
        self.at = at
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class Deadlines:
    """A heap of deadlines; those of equal time come in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Deadline]] = []
        self._numbers = count()

    def set(self, at: int, action: Callable[[], None]) -> Deadline:
        """Call `action` when the time has reached `at`."""
        deadline = Deadline(at, action)
        heapq.heappush(self._heap, (at, next(self._numbers), deadline))
        return deadline

    def next(self) -> int | None:
        """When the earliest live deadline is due; None if there is none."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> Iterator[Callable[[], None]]:
        """Remove and yield the actions that are due, earliest first; also those set meanwhile that are due."""
        while self._heap and self._heap[0][0] <= now:
            deadline = heapq.heappop(self._heap)[2]
            if deadline.action is not None:
                action, deadline.action = deadline.action, None
                yield action

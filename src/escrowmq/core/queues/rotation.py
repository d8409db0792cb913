"""Whose turn it is on a queue: higher priority first, in turn within a priority.

Only consumers that may be able to take something are in line. A consumer that is found unable at its turn leaves the
line, and comes back to its end when it is woken. So serving a message costs the same however many consumers wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from escrowmq.core.queues.consumer import Consumer

_GHOSTS: Final = 8  # consumers that have gone may stay in line up to this number, and up to that of the others


class Consumers:
    """The consumers of one queue. With `single`, only the active one is served."""

    __slots__ = ("_count", "_groups", "_lines", "active", "draining", "exclusive", "single")

    def __init__(self, *, single: bool = False) -> None:
        self.single = single
        self.active: Consumer | None = None  # the one that is served, when only one may be
        self.exclusive: Consumer | None = None  # the one that has the queue for itself
        self.draining: dict[Consumer, None] = {}
        self._count = 0
        self._groups: dict[int, dict[Consumer, None]] = {}  # by priority, the highest first
        self._lines: dict[int, deque[Consumer]] = {}

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __iter__(self) -> Iterator[Consumer]:
        return chain.from_iterable(self._groups.values())

    def add(self, consumer: Consumer) -> None:
        """A consumer comes, to the end of the line."""
        group = self._groups.get(consumer.priority)
        if group is None:
            group = self._groups[consumer.priority] = {}
            self._lines[consumer.priority] = deque()
            self._groups = dict(sorted(self._groups.items(), reverse=True))
            self._lines = dict(sorted(self._lines.items(), reverse=True))
        group[consumer] = None
        self._count += 1
        consumer.attached = True
        if consumer.exclusive:
            self.exclusive = consumer
        if self.single and self.active is None:
            self.active = consumer
        self.admit(consumer)

    def remove(self, consumer: Consumer) -> bool:
        """Take it out; False if it was not there. With `single`, the next one becomes active."""
        group = self._groups.get(consumer.priority)
        if group is None or consumer not in group:
            return False
        del group[consumer]
        self._count -= 1
        consumer.attached = False
        self.draining.pop(consumer, None)
        if consumer.window is not None:
            consumer.window.waiting.pop(consumer, None)
        if self.exclusive is consumer:
            self.exclusive = None
        self._tidy(consumer.priority, group)
        if self.active is consumer:
            self.active = next(iter(self), None)
            if self.active is not None:
                self.admit(self.active)
        return True

    def _tidy(self, priority: int, group: dict[Consumer, None]) -> None:
        """Forget a priority that nobody has, and consumers in line that have gone."""
        line = self._lines[priority]
        if group and len(line) <= 2 * len(group) + _GHOSTS:
            return
        for consumer in line:
            consumer.listed = consumer.attached
        if group:
            self._lines[priority] = deque(consumer for consumer in line if consumer.attached)
        else:
            del self._groups[priority], self._lines[priority]

    def admit(self, consumer: Consumer) -> None:
        """It may have room again: it joins the end of the line, unless it is in line already."""
        if consumer.listed or not consumer.attached or (self.single and consumer is not self.active):
            return
        consumer.listed = True
        self._lines[consumer.priority].append(consumer)

    def next(self, most: int) -> list[Consumer]:
        """At most `most` of the next consumers that can be served, all of one priority; they go to the end of the line.

        None are left when nobody can be served.
        """
        found: list[Consumer] = []
        for line in self._lines.values():
            for _ in range(len(line)):
                consumer = line.popleft()
                if consumer.attached and consumer.ready():
                    line.append(consumer)
                    found.append(consumer)
                    if len(found) == most:
                        return found
                else:
                    consumer.listed = False
            if found:
                return found
        return found

    def in_line(self, priority: int) -> int:
        """How many consumers of `priority` are in line; some of them may turn out to be unable."""
        return len(self._lines[priority])

    def defer(self, served: list[Consumer], more: int) -> None:
        """The first `more` of `served`, which `next` has just found, got one entry more: they come after the rest."""
        line = self._lines[served[0].priority]
        for _ in served:
            line.pop()
        line.extend(served[more:])
        line.extend(served[:more])

    def rest(self, consumer: Consumer) -> None:
        """`consumer`, the last one that `next` has found, needs nothing now: it leaves the line."""
        self._lines[consumer.priority].pop()
        consumer.listed = False

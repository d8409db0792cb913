"""The order in which a queue serves its consumers: higher priority first, in turn within a priority.

Only consumers that may be able to take an entry are in line. A consumer that turns out to be unable leaves the line,
and joins its end again when it is woken. The cost of serving a message is therefore independent of the number of
waiting consumers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from escrowmq.core.queues.consumer import Consumer

_GHOSTS: Final = 8  # removed consumers may stay in line up to this number, and up to the number of the others


class Consumers:
    """The consumers of one queue. With `single`, only the active consumer is served."""

    __slots__ = (
        "_count",
        "_groups",
        "_lines",
        "_news_below",
        "active",
        "draining",
        "exclusive",
        "idle",
        "selective",
        "sighted",
        "single",
        "weighing",
    )

    def __init__(self, *, single: bool = False) -> None:
        self.single = single
        self.active: Consumer | None = None  # the only consumer that is served, with `single`
        self.exclusive: Consumer | None = None  # the consumer with exclusive use of the queue
        self.draining: dict[Consumer, None] = {}
        self.selective = 0  # consumers with a selector
        self.weighing: dict[Consumer, None] = {}  # consumers with a credit in bytes
        self.sighted: dict[Consumer, None] = {}  # consumers that remember how far they have looked
        self.idle: dict[Consumer, None] = {}  # consumers that have looked at everything below `_news_below`
        self._news_below = 0
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
        """Add a consumer at the end of the line."""
        group = self._groups.get(consumer.priority)
        if group is None:
            group = self._groups[consumer.priority] = {}
            self._lines[consumer.priority] = deque()
            self._groups = dict(sorted(self._groups.items(), reverse=True))
            self._lines = dict(sorted(self._lines.items(), reverse=True))
        group[consumer] = None
        self._count += 1
        self.selective += consumer.selects is not None
        consumer.attached = True
        if consumer.exclusive:
            self.exclusive = consumer
        if self.single and self.active is None:
            self.active = consumer
        self.admit(consumer)

    def remove(self, consumer: Consumer) -> bool:
        """Remove a consumer; return False if it was not there. With `single`, the next one becomes active."""
        group = self._groups.get(consumer.priority)
        if group is None or consumer not in group:
            return False
        del group[consumer]
        self._count -= 1
        self.selective -= consumer.selects is not None
        consumer.attached = False
        for some in (self.draining, self.sighted, self.idle, self.weighing):
            some.pop(consumer, None)
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
        """Forget a priority without consumers, and removed consumers that are still in line."""
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
        """Put a consumer that may have credit again at the end of the line, unless it is already in line."""
        if consumer.listed or not consumer.attached or (self.single and consumer is not self.active):
            return
        consumer.listed = True
        self._lines[consumer.priority].append(consumer)

    def weigh(self, consumer: Consumer) -> None:
        """Note whether `consumer` has a credit in bytes."""
        if consumer.byte_credit is not None and consumer.attached:
            self.weighing[consumer] = None
        else:
            self.weighing.pop(consumer, None)

    def admit_halted(self) -> None:
        """Put consumers back in line whose credit in bytes was not enough for a message: another one may be next."""
        for consumer in self.weighing:
            if consumer.byte_credit is not None and consumer.byte_credit.halted:
                self.admit(consumer)

    def admit_news(self, end: int) -> None:
        """Put the consumers in `idle` back in line if messages have arrived since: those from the former `end` on."""
        if end > self._news_below:
            self._news_below = end
            for consumer in self.idle:
                self.admit(consumer)
            self.idle.clear()

    def next(self, most: int) -> list[Consumer]:
        """Return at most `most` of the next consumers that can be served, all of one priority. They move to the end of
        the line. The list is empty if no consumer can be served.
        """
        found: list[Consumer] = []
        for line in self._lines.values():
            if len(line) == 1:
                consumer = line[0]
                if consumer.attached and consumer.ready():
                    return [consumer]
                line.clear()
                consumer.listed = False
                continue
            writable = None
            for _ in range(len(line)):
                consumer = line.popleft()
                if consumer.attached and consumer.ready(writable):
                    writable = consumer.receiver
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
        """Return how many consumers of `priority` are in line. Some of them may turn out to be unable to take an
        entry.
        """
        return len(self._lines[priority])

    def defer(self, served: list[Consumer], more: int) -> None:
        """Move the first `more` of `served`, which `next` has just returned and which got one entry more, behind the
        rest.
        """
        line = self._lines[served[0].priority]
        for _ in served:
            line.pop()
        line.extend(served[more:])
        line.extend(served[:more])

    def rest(self, consumer: Consumer) -> None:
        """Take `consumer`, the last one that `next` has returned, out of the line. It needs no entries now."""
        line = self._lines[consumer.priority]
        if line[-1] is consumer:
            line.pop()
        else:  # others have joined the line since
            line.remove(consumer)
        consumer.listed = False

"""Deliveries that a client gave back all together, such as those of a lost connection: they return in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.ports import Holder
    from escrowmq.core.queues.consumer import Consumer

PIECE: Final = 2000
"""Deliveries that return in one turn. Each costs about half a microsecond."""


class Returning:
    """Deliveries that are on their way back to their queues. It holds them until then (`core.ports.Holder`).

    While some of a queue's messages return, the queue delivers nothing: a later message would overtake them.
    """

    __slots__ = ("_waiting",)

    def __init__(self, waiting: Iterable[tuple[Consumer, list[Entry]]]) -> None:
        """The lists of entries belong to this object from now on."""
        self._waiting = deque((consumer, entries) for consumer, entries in waiting if entries)
        for consumer, _ in self._waiting:
            consumer.queue.returning += 1

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def step(self, requeue: Callable[[Consumer, list[Entry]], None], most: int = PIECE) -> None:
        """Return up to `most` deliveries."""
        while self._waiting and most > 0:
            consumer, entries = self._waiting[0]
            some = entries[:most]
            del entries[:most]
            most -= len(some)
            if not entries:
                self._waiting.popleft()
                consumer.queue.returning -= 1
            requeue(consumer, some)

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """Copies of the deliveries that have not returned yet."""
        return [(consumer, entries.copy()) for consumer, entries in self._waiting]

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """At most `most` of them, from number `start` on."""
        found: list[tuple[Consumer, Entry]] = []
        for consumer, entries in self._waiting:
            if start < len(entries):
                found += [(consumer, entry) for entry in islice(entries, start, start + most - len(found))]
                if len(found) == most:
                    break
            start = max(start - len(entries), 0)
        return found


class Host(Protocol):
    """The part of the engine that returns need."""

    holders: dict[Holder, None]

    def requeue(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Return deliveries to their places."""
        ...


class Returns:
    """All deliveries that are on their way back to their queues. `piece` is the number that returns in one turn."""

    __slots__ = ("_host", "_waiting", "piece")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: deque[Returning] = deque()
        self.piece = PIECE

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, deliveries: list[tuple[Consumer, list[Entry]]]) -> None:
        """Requeue deliveries, in order: at once if they are few. The lists belong to this object from now on."""
        if sum([len(entries) for _, entries in deliveries]) > self.piece:
            returning = Returning(deliveries)
            self._host.holders[returning] = None
            self._waiting.append(returning)
            return
        groups: dict[Consumer, list[Entry]] = {}
        for consumer, entries in deliveries:
            groups.setdefault(consumer, []).extend(entries)
        for consumer, entries in groups.items():
            self._host.requeue(consumer, entries)

    def step(self) -> None:
        """Return a piece, if anything waits."""
        if self._waiting:
            returning = self._waiting[0]
            returning.step(self._host.requeue, self.piece)
            if not returning:
                self._waiting.popleft()
                del self._host.holders[returning]

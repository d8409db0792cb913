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
    from escrowmq.core.queues.queue import Queue

PIECE: Final = 1000
"""Deliveries that return in one turn. Each costs about half a microsecond, or 2 without neighbours of the same run."""
TOGETHER: Final = 250
"""Deliveries that are taken at once. Those of one consumer return together."""
_GROUP: Final = 6  # deliveries that cost as much as a consumer

Deliveries = list[tuple["Consumer", "list[Entry]"]]


class Returnable(Protocol):
    """Deliveries that are to return. It is true as long as there are any."""

    def __bool__(self) -> bool: ...

    def take_some(self, most: int) -> Deliveries:
        """Remove and return the first deliveries, at most `most` of them. A step does not depend on their number."""
        ...

    def copies(self) -> Deliveries:
        """Return copies of all of them."""
        ...

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """Copy some in advance, as `Holder.copy_ahead` does."""
        ...

    def part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """Return at most `most` of them, from number `start` on."""
        ...


class Lists:
    """Lists of deliveries as a source. They belong to this object from now on."""

    __slots__ = ("_waiting",)

    def __init__(self, waiting: Iterable[tuple[Consumer, list[Entry]]]) -> None:
        self._waiting = deque((consumer, entries) for consumer, entries in waiting if entries)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take_some(self, most: int) -> Deliveries:
        """See `Returnable.take_some`."""
        found = []
        while self._waiting and most > 0:
            consumer, entries = self._waiting[0]
            found.append((consumer, entries[:most]))
            del entries[:most]
            most -= len(found[-1][1])
            if not entries:
                self._waiting.popleft()
        return found

    def copies(self) -> Deliveries:
        """See `Returnable.copies`."""
        return [(consumer, entries.copy()) for consumer, entries in self._waiting]

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """See `Returnable.copy_ahead`. Nothing is copied in advance."""
        del at, most
        return 1, 0

    def part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """See `Returnable.part`."""
        return part_of(self._waiting, start, most)


def part_of(deliveries: Iterable[tuple[Consumer, list[Entry]]], start: int, most: int) -> list[tuple[Consumer, Entry]]:
    """Return at most `most` of `deliveries`, from number `start` on."""
    found: list[tuple[Consumer, Entry]] = []
    for consumer, entries in deliveries:
        if start < len(entries):
            found += [(consumer, entry) for entry in islice(entries, start, start + most - len(found))]
            if len(found) == most:
                break
        start = max(start - len(entries), 0)
    return found


class Standstill:
    """While some of a queue's messages return, the queue delivers nothing: a later message would overtake them."""

    __slots__ = ("_queues",)

    def __init__(self, queues: Iterable[Queue]) -> None:
        self._queues = list(queues)
        for queue in self._queues:
            queue.returning += 1

    def end(self, dirty: dict[Queue, None]) -> None:
        """Let the queues deliver again: those that have consumers become dirty."""
        for queue in self._queues:
            queue.returning -= 1
            if queue.consumers:
                dirty[queue] = None
        self._queues.clear()


class Returning:
    """Deliveries on their way back to their queues. It holds them until then (`core.ports.Holder`)."""

    __slots__ = ("_pause", "_source")

    def __init__(self, source: Returnable, queues: Iterable[Queue]) -> None:
        """`queues` has those of all deliveries of `source`, and perhaps others."""
        self._source = source
        self._pause = Standstill(queues)

    def step(self, requeue: Callable[[Consumer, list[Entry]], None], dirty: dict[Queue, None], most: int) -> bool:
        """Return up to `most` deliveries, fewer if they belong to many consumers. Return whether all are back."""
        while self._source and most > 0:
            for consumer, entries in self._source.take_some(min(most, TOGETHER)):
                requeue(consumer, entries)
                most -= len(entries) + _GROUP
        if self._source:
            return False
        self._pause.end(dirty)
        return True

    def held(self) -> Deliveries:
        """Copies of the deliveries that have not returned yet."""
        return self._source.copies()

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """See `Holder.copy_ahead`."""
        return self._source.copy_ahead(at, most)

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """At most `most` of them, from number `start` on."""
        return self._source.part(start, most)


class Host(Protocol):
    """The part of the engine that returns need."""

    dirty: dict[Queue, None]
    holders: dict[Holder, None]

    def requeue(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Return deliveries to their places. Each counts as a failed delivery."""
        ...

    def release(self, consumer: Consumer, entries: list[Entry]) -> None:
        """Return deliveries that have not failed to their places."""
        ...


class Returns:
    """All deliveries that are on their way back to their queues. `piece` is the number that returns in one turn."""

    __slots__ = ("_host", "_waiting", "piece")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: deque[tuple[Returning, Callable[[Consumer, list[Entry]], None]]] = deque()
        self.piece = PIECE

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, source: Returnable, count: int, queues: Iterable[Queue], *, failed: bool = True) -> None:
        """Requeue `count` deliveries of `queues`, or release them if they have not `failed`, in order: at once if they
        are few. The source belongs to this object from now on.
        """
        back = self._host.requeue if failed else self._host.release
        if count > self.piece:
            returning = Returning(source, queues)
            self._host.holders[returning] = None
            self._waiting.append((returning, back))
            return
        groups: dict[Consumer, list[Entry]] = {}
        for consumer, entries in source.take_some(count) if count else ():
            groups.setdefault(consumer, []).extend(entries)
        for consumer, entries in groups.items():
            back(consumer, entries)

    def step(self) -> None:
        """Return a piece, if anything waits."""
        if self._waiting:
            returning, back = self._waiting[0]
            if returning.step(back, self._host.dirty, self.piece):
                self._waiting.popleft()
                del self._host.holders[returning]

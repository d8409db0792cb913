"""The priority discipline: highest priority first, publication order within each priority (ORD-6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import ref

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.queues.discipline import TAKEN_BYTES, Detached, Discipline, Pager
from escrowmq.core.queues.fifo import Fifo
from escrowmq.core.queues.withdrawal import Withdrawal
from escrowmq.core.records.references import Reference
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.queues.host import Host
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.sealed import LevelRuns


class Priority:
    """Highest priority first, publication order within each priority (ORD-6). Each priority has a `Fifo`.

    `_unsorted` are references from recovery whose priorities have not been read: reading them failed. Until that
    succeeds, no message can be taken, since one of these could be the next (DUR-4).
    """

    __slots__ = ("_delivered_below", "_deliveries", "_highest", "_levels", "_make", "_pager", "_unsorted")

    def __init__(self, highest: int, pager: Pager, make: Callable[[], Fifo]) -> None:
        self._highest = highest
        self._pager = pager
        self._make = make
        self._levels: dict[int, Fifo] = {}
        self._unsorted = Backlog()
        self._deliveries: dict[int, int] = {}
        self._delivered_below = 0

    def _level(self, envelope: Envelope) -> Fifo:
        return self._at(self.level(envelope))

    def _at(self, priority: int) -> Fifo:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = self._make()
            self._levels = dict(sorted(self._levels.items(), reverse=True))
        return level

    def __len__(self) -> int:
        return len(self._unsorted) + sum(map(len, self._levels.values()))

    def append(self, run: Run, contents: Sequence[bytes]) -> None:
        self._level(run.envelope).append(run, contents)

    def level(self, envelope: Envelope) -> int:
        return min(envelope.priority, self._highest)

    def keeps(self, level: int, size: int) -> bool:
        return self._at(level).keeps(0, size)

    def admit(self, level: int, runs: LevelRuns) -> None:
        self._at(level).admit(0, runs)

    def take(self, most: int) -> list[Entry]:
        if len(self._unsorted):
            self._sort()
        taken: list[Entry] = []
        size = 0
        for level in self._levels.values():
            while len(taken) < most and len(level):
                try:
                    some = level.take(most - len(taken))
                except LogUnreadable:
                    if not taken:
                        raise
                    return taken
                taken += some
                if len(taken) < most:
                    size += sum([len(entry.content) for entry in some])
                    if size >= TAKEN_BYTES // 2:  # the level has perhaps left more for that reason
                        return taken
            if len(taken) >= most:
                break
        return taken

    def put_back(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._level(entry.run.envelope).put_back([entry])

    def peek(self) -> Entry | None:
        if len(self._unsorted):
            self._sort()
        for level in self._levels.values():
            if len(level):
                return level.peek()
        return None

    def levels(self) -> Iterator[tuple[int, Fifo]]:
        return iter(list(self._levels.items()))

    def withdraw(self) -> Withdrawal:
        gone = Withdrawal(self.in_memory(), [backlog.withdraw() for backlog in self.backlogs()])
        self._deliveries = {}
        for level in self._levels.values():
            level.withdraw()
        return gone

    def references(self) -> Iterator[Reference]:
        for level in self._levels.values():
            yield from level.references()
        yield from self._unsorted

    def in_memory(self) -> list[Entry]:
        return [entry for level in self._levels.values() for entry in level.in_memory()]

    def loaded(self, start: int, most: int) -> list[Entry]:
        found: list[Entry] = []
        for level in self._levels.values():
            if len(found) < most:
                found += level.loaded(start, most - len(found))
            start = max(start - level.in_memory_count, 0)
        return found

    def backlogs(self) -> list[Backlog]:
        return [*(level.tail for level in self._levels.values()), self._unsorted]

    def known_deliveries(self) -> dict[int, int]:
        levels = {position: n for level in self._levels.values() for position, n in level.deliveries.items()}
        return self._deliveries | levels

    def restore(self, found: Backlog, deliveries: dict[int, int], delivered_below: int) -> None:
        self._unsorted.replace(found)
        self._deliveries = deliveries
        self._delivered_below = delivered_below
        with suppress(LogUnreadable):  # `take` and `peek` try again
            self._sort()

    def _sort(self) -> None:
        """Give each level its part of the messages that recovery has found. Raises LogUnreadable, with nothing
        changed.
        """
        lsns = self._unsorted.columns()[1]
        priorities = bytes([min(envelope.priority, self._highest) for envelope in self._pager.envelopes(lsns)])
        found, deliveries = self._unsorted.withdraw(), self._deliveries
        self._deliveries = {}
        for priority in set(priorities):
            chosen = bytearray(256)
            chosen[priority] = 1
            level = self._at(priority)
            level.restore(found.select(priorities.translate(chosen)), deliveries, self._delivered_below)

    def limit_memory(self, limit: int) -> None:
        for level in self._levels.values():
            level.limit_memory(limit)

    def detach(self, most: int, parts: int) -> list[Detached]:
        found: list[Detached] = []
        for level in self._levels.values():
            some = level.detach(most, parts)
            found += some
            parts -= sum([part.parts for part in some])
            most -= sum([part.messages for part in some])
        return found

    def attach(self, found: list[Reference], deliveries: dict[int, int]) -> None:
        levels: dict[int, tuple[Fifo, list[Reference], dict[int, int]]] = {}
        for reference in found:
            level = self._level(self._pager.load(reference._replace(length=1)).envelope)
            _, some, counts = levels.setdefault(id(level), (level, [], {}))
            some.append(reference)
            positions = range(reference.first, reference.first + reference.length)
            counts.update((position, deliveries[position]) for position in positions if position in deliveries)
        for level, some, counts in levels.values():
            level.attach(some, counts)


def discipline_of(queue: Queue, host: Host) -> Discipline:
    """Return a new discipline for `queue`: by priority if it has any, or else in order of publication."""
    owner = ref(queue)  # a weak reference: the memory of a deleted queue must be free at once

    def expiry(envelope: Envelope, time: int) -> int:
        queue = owner()
        return 0 if queue is None else queue.expiry(envelope, time)

    def make() -> Fifo:
        return Fifo(host.pager, host.resident_limit, expiry)

    highest = queue.options.max_priority
    return Priority(highest, host.pager, make) if highest else make()

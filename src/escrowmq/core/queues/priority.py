"""The priority discipline: highest priority first, publication order within each priority (ORD-6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.queues.discipline import Detached, Pager
from escrowmq.core.queues.fifo import Fifo
from escrowmq.core.queues.withdrawal import Withdrawal
from escrowmq.core.records.references import Reference
from escrowmq.core.records.unreadable import LogUnreadable


class Priority:
    """Highest priority first, publication order within each priority (ORD-6). Each priority has a `Fifo`."""

    __slots__ = ("_highest", "_levels", "_make", "_pager")

    def __init__(self, highest: int, pager: Pager, make: Callable[[], Fifo]) -> None:
        self._highest = highest
        self._pager = pager
        self._make = make
        self._levels: dict[int, Fifo] = {}

    def _level(self, envelope: Envelope) -> Fifo:
        return self._at(min(envelope.priority, self._highest))

    def _at(self, priority: int) -> Fifo:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = self._make()
            self._levels = dict(sorted(self._levels.items(), reverse=True))
        return level

    def __len__(self) -> int:
        return sum(map(len, self._levels.values()))

    def append(self, run: Run, contents: Sequence[bytes]) -> None:
        self._level(run.envelope).append(run, contents)

    def take(self, most: int) -> list[Entry]:
        taken: list[Entry] = []
        for level in self._levels.values():
            while len(taken) < most and len(level):
                try:
                    taken += level.take(most - len(taken))
                except LogUnreadable:
                    if not taken:
                        raise
                    return taken
            if len(taken) >= most:
                break
        return taken

    def put_back(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._level(entry.run.envelope).put_back([entry])

    def peek(self) -> Entry | None:
        for level in self._levels.values():
            if len(level):
                return level.peek()
        return None

    def withdraw(self) -> Withdrawal:
        gone = Withdrawal(self.in_memory(), [level.tail.withdraw() for level in self._levels.values()])
        for level in self._levels.values():
            level.withdraw()
        return gone

    def references(self) -> Iterator[Reference]:
        for level in self._levels.values():
            yield from level.references()

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
        return [level.tail for level in self._levels.values()]

    def known_deliveries(self) -> dict[int, int]:
        return {position: n for level in self._levels.values() for position, n in level.deliveries.items()}

    def restore(self, found: Backlog, deliveries: dict[int, int], delivered_below: int) -> None:
        lsns = found.columns()[1]
        priorities = bytes([min(envelope.priority, self._highest) for envelope in self._pager.envelopes(lsns)])
        for priority in set(priorities):
            chosen = bytearray(256)
            chosen[priority] = 1
            level = self._at(priority)
            level.restore(found.select(priorities.translate(chosen)), deliveries, delivered_below)

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

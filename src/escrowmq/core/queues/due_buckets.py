"""The discipline of delayed messages: references in buckets by the time at which they are due (DLY-1, DLY-3).

All messages are only in the log, so a delayed message costs a reference in memory, however long it waits. A bucket
holds the messages that are due within one minute, in order of position. Shortly before that minute the bucket is
opened: the due time of each of its messages is read from the log, in pieces. Messages that are due at the same time
leave in order of position.

The due time of a message follows from its content and the time of its block, so nothing else needs to be stored. After
a restart the messages are sorted into buckets in pieces, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat, takewhile
from typing import TYPE_CHECKING, Final, TypeAlias

from escrowmq.core.budget import HEADERS, Budget
from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.queues.discipline import Detached, Pager
from escrowmq.core.queues.withdrawal import Withdrawal
from escrowmq.core.records.references import Reference
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.queues.fifo import Fifo
    from escrowmq.core.queues.sealed import LevelRuns

WIDTH_MS: Final = 60_000
AHEAD_MS: Final = 30_000
"""How long before its first due time a bucket is opened."""
PIECE: Final = 100
"""Messages that are read at one time."""
Due: TypeAlias = Callable[[Envelope, bytes, int], int]
"""Returns when a message with this envelope and content, which arrived at this time, is due."""
_Key: TypeAlias = tuple[int, int]
"""The minute, and whether the bucket holds messages of before the restart (0) or later ones (1)."""


class DueBuckets:
    """Messages by due time. Those in open buckets also have a row in a heap for each run that is due at one time."""

    __slots__ = ("_buckets", "_count", "_due", "_keys", "_open", "_opening", "_pager", "_soon", "_unsorted")

    def __init__(self, pager: Pager, due: Due) -> None:
        self._pager = pager
        self._due = due
        self._count = 0
        self._buckets: dict[_Key, Backlog] = {}
        self._keys: list[_Key] = []  # a heap of the buckets that are not open
        self._open: set[_Key] = set()
        self._opening: tuple[_Key, int] | None = None  # the bucket that is being opened, and from which position on
        self._soon: list[tuple[int, int, int, _Key]] = []  # a heap: due time, first position, count, bucket
        self._unsorted = Backlog()  # messages that recovery has found

    def __len__(self) -> int:
        return self._count

    def append(self, run: Run, contents: Sequence[bytes]) -> None:
        lsn = run.lsn or self._pager.store(run, contents)
        self._count += len(contents)
        for due, first, count in self._parts(run.envelope, contents, run.time, run.first):
            self._add(due, 1, Reference(first, count, lsn, run.index + first - run.first))

    def _parts(
        self, envelope: Envelope, contents: Sequence[bytes], time: int, first: int
    ) -> Iterator[tuple[int, int, int]]:
        """Yield due time, first position and count of consecutive messages that are due at the same time."""
        begin, last = first, -1
        for position, content in enumerate(contents, first):
            due = self._due(envelope, content, time)
            if due != last and position > begin:
                yield last, begin, position - begin
                begin = position
            last = due
        if contents:
            yield last, begin, first + len(contents) - begin

    def _add(self, due: int, later: int, reference: Reference) -> None:
        key = due // WIDTH_MS, later
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Backlog()
            heapq.heappush(self._keys, key)
        bucket.append(*reference)
        if key in self._open:
            heapq.heappush(self._soon, (due, reference.first, reference.length, key))

    # -- work in pieces

    def next_event(self) -> int | None:
        """Return when there is work: a message is due, or a bucket is to be opened. None if there is no message."""
        if self._unsorted.messages or self._opening is not None:
            return 0
        times = [self._soon[0][0]] if self._soon else []
        if self._keys:
            times.append(self._keys[0][0] * WIDTH_MS - AHEAD_MS)
        return min(times, default=None)

    def prepare(self, now: int, budget: Budget) -> bool:
        """Sort and open what must be, as far as the budget allows. Return False if it does not suffice.

        Raises LogUnreadable if messages cannot be read, which stay where they are.
        """
        while budget.left > 0:
            if self._unsorted.messages:
                self._sort_some(budget)
            elif self._opening is not None:
                self._open_some(*self._opening, budget)
            elif self._keys and self._keys[0][0] * WIDTH_MS - AHEAD_MS <= now:
                self._opening = heapq.heappop(self._keys), 0
            else:
                return True
        return False

    def _sort_some(self, budget: Budget) -> None:
        reference = self._unsorted.peek()
        reference = reference._replace(length=min(reference.length, PIECE))
        block = self._pager.load(reference)
        budget.left -= HEADERS * reference.length
        for due, first, count in self._parts(block.envelope, block.contents, block.time, reference.first):
            self._add(due, 0, Reference(first, count, reference.lsn, reference.start + first - reference.first))
        self._unsorted.take(reference.length)

    def _open_some(self, key: _Key, begin: int, budget: Budget) -> None:
        bucket = self._buckets[key]
        reference = next(bucket.within(begin, (1 << 62) - begin), None)
        if reference is None:
            self._opening = None
            self._open.add(key)
            self._drop_empty(key)
            return
        reference = reference._replace(length=min(reference.length, PIECE))
        block = self._pager.load(reference)
        budget.left -= HEADERS * reference.length
        for due, first, count in self._parts(block.envelope, block.contents, block.time, reference.first):
            heapq.heappush(self._soon, (due, first, count, key))
        self._opening = key, reference.first + reference.length

    def take_due(self, now: int, most: int, admits: Callable[[Entry], bool]) -> list[Entry]:
        """Remove and return messages that are due, at most about `most`, in order of due time and position, up to one
        that `admits` does not want. `prepare` must have succeeded for this time.

        Raises LogUnreadable if the first one cannot be read.
        """
        found: list[Entry] = []
        gone: dict[_Key, list[int]] = {}
        while self._soon and self._soon[0][0] <= now and len(found) < most:
            _, first, count, key = self._soon[0]
            try:
                some = self._load(self._buckets.get(key), first, min(count, PIECE))
            except LogUnreadable:
                if not found:
                    raise
                break
            wanted = list(takewhile(admits, some))
            found += wanted
            gone.setdefault(key, []).extend([entry.position for entry in wanted])
            due, first, count, key = heapq.heappop(self._soon)
            taken = PIECE if len(wanted) == len(some) else some[len(wanted)].position - first
            if count > taken:
                heapq.heappush(self._soon, (due, first + taken, count - taken, key))
            if len(wanted) < len(some):
                break
        for key, positions in gone.items():
            if positions:
                self._buckets[key].take_out(sorted(positions))
                self._count -= len(positions)
                self._drop_empty(key)
        return found

    def find(self, position: int, due: int) -> Entry | None:
        """Return the message at `position`, which is due at `due`; None if it is not there. Raises LogUnreadable."""
        holder = self._holder(position, due)
        return None if holder is None else self._load(holder[1], position, 1)[0]

    def next_due(self) -> int | None:
        """Return when the next message is due, or the beginning of that minute; None if that is not known yet, or
        there is no message.
        """
        times = [self._soon[0][0]] if self._soon else []
        if self._keys:
            times.append(self._keys[0][0] * WIDTH_MS)
        return min(times, default=None)

    def first(self, most: int) -> list[tuple[int, Entry]]:
        """Return the first messages, at most `most`, with the times at which they are due, in order of these. They stay
        where they are. Of the messages that are due in the last minute shown, it may be any. Raises LogUnreadable.
        """
        found: list[tuple[int, Entry]] = []
        keys = heapq.nsmallest(most, (key for key, bucket in self._buckets.items() if bucket.messages))
        for bucket in (self._unsorted, *map(self._buckets.__getitem__, keys)):
            for reference in bucket:
                wanted = min(reference.length, most - len(found))
                found += [
                    (self._due(entry.run.envelope, entry.content, entry.run.time), entry)
                    for entry in self._load(bucket, reference.first, wanted)
                ]
                if len(found) == most:
                    break
            if len(found) == most:
                break
        return sorted(found, key=lambda each: (each[0], each[1].position))

    def take_out(self, position: int, due: int) -> None:
        """Remove a message that `find` has found. A row of an open bucket may still cover its position."""
        holder = self._holder(position, due)
        if holder is not None:
            key, bucket = holder
            bucket.take_out([position])
            self._count -= 1
            self._drop_empty(key)

    def _holder(self, position: int, due: int) -> tuple[_Key, Backlog] | None:
        for later in (0, 1):
            key = due // WIDTH_MS, later
            bucket = self._buckets.get(key)
            if bucket is not None and position in bucket:
                return key, bucket
        return ((0, 0), self._unsorted) if position in self._unsorted else None

    def _load(self, bucket: Backlog | None, first: int, count: int) -> list[Entry]:
        entries: list[Entry] = []
        if bucket is None:  # everything in it was taken out
            return entries
        for reference in bucket.within(first, count):
            block = self._pager.load(reference)
            run = Run(block.envelope, reference.first, block.time, reference.lsn, reference.start)
            positions = range(reference.first, reference.first + reference.length)
            entries += map(Entry, positions, block.contents, repeat(run))
        return entries

    def _drop_empty(self, key: _Key) -> None:
        """Forget an open bucket without messages."""
        if key in self._open and not self._buckets[key].messages:
            del self._buckets[key]
            self._open.discard(key)

    # -- the interface of disciplines; no consumer takes anything from here

    def take(self, most: int) -> list[Entry]:
        """Return nothing: only messages that are due leave, by `take_due`."""
        return []

    def put_back(self, entries: list[Entry]) -> None:
        """Do nothing: nothing was taken."""

    def peek(self) -> Entry | None:
        """Return nothing, but read the messages that are needed next. Raises LogUnreadable while that is impossible."""
        if self._unsorted.messages:
            self._pager.load(self._unsorted.peek()._replace(length=1))
        if self._opening is not None:
            key, begin = self._opening
            for reference in self._buckets[key].within(begin, (1 << 62) - begin):
                self._pager.load(reference._replace(length=1))
                break
        if self._soon:
            _, first, _, key = self._soon[0]
            self._load(self._buckets.get(key), first, 1)
        return None

    def level(self, envelope: Envelope) -> int:
        return 0

    def keeps(self, level: int, size: int) -> bool:
        """Return False: messages are only in the log."""
        return False

    def admit(self, level: int, runs: LevelRuns) -> None:
        """Do nothing: the queue appends run by run."""

    def levels(self) -> Iterator[tuple[int, Fifo]]:
        return iter(())

    def withdraw(self) -> Withdrawal:
        gone = Withdrawal([], [backlog.withdraw() for backlog in self.backlogs()])
        self._buckets.clear()
        self._keys.clear()
        self._open.clear()
        self._soon.clear()
        self._opening = None
        self._count = 0
        return gone

    def references(self) -> Iterator[Reference]:
        for backlog in self.backlogs():
            yield from backlog

    def in_memory(self) -> list[Entry]:
        return []

    def loaded(self, start: int, most: int) -> list[Entry]:
        return []

    def backlogs(self) -> list[Backlog]:
        return [self._unsorted, *self._buckets.values()]

    def known_deliveries(self) -> dict[int, int]:
        return {}

    def restore(self, found: Backlog, deliveries: dict[int, int], delivered_below: int) -> None:
        self._count += found.messages
        self._unsorted.replace(found)

    def limit_memory(self, limit: int) -> None:
        """Do nothing: no messages are kept in memory."""

    def detach(self, most: int, parts: int) -> list[Detached]:
        return []

    def attach(self, found: list[Reference], deliveries: dict[int, int]) -> None:
        """Do nothing: nothing was detached."""

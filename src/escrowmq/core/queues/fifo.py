"""The first-in-first-out discipline: publication order, with the front of the queue in memory (ORD-1, ORD-2)."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from escrowmq.core.messages.entry import Entry, Run
from escrowmq.core.messages.envelope import Envelope
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.queues.discipline import ENTRY_COST, HEAVY, TAKEN_BYTES, Detached, Pager
from escrowmq.core.queues.withdrawal import Withdrawal
from escrowmq.core.records.references import Reference
from escrowmq.core.records.unreadable import LogUnreadable
from escrowmq.core.recovery.copying import part_of

if TYPE_CHECKING:
    from escrowmq.core.queues.sealed import LevelRuns

FILL_RUNS: Final = 256
FILL_BYTES: Final = 256 * 1024
"""The most that is loaded from the log at one time: a turn serves many queues, and other clients wait for its end."""


_position = attrgetter("position")


class Place(NamedTuple):
    """A position of one priority's messages."""

    level: Fifo
    position: int


class Fifo:
    """A queue discipline: messages leave in the order in which they were published.

    `returned` contains requeued entries, `head` the entries that consumers will need next, `tail` references to the
    rest, which is in the log. Every position in `head` is below every position in `tail`. The next message is the one
    with the lower position among the first of `returned` and the first of `head`.
    """

    __slots__ = (
        "_expiry",
        "_heavy",
        "_pager",
        "_returned",
        "_sorted",
        "delivered_below",
        "deliveries",
        "head",
        "resident",
        "resident_limit",
        "tail",
    )

    def __init__(self, pager: Pager, resident_limit: int, expiry: Callable[[Envelope, int], int]) -> None:
        self._pager = pager
        self._expiry = expiry
        self._returned: list[Entry] = []
        self._sorted = True  # `_returned` is not only a heap
        self.head: deque[Entry] = deque()
        self.tail = Backlog()
        self.resident = 0
        self._heavy: deque[tuple[int, int]] = deque()  # long headers in `head`: last position, bytes
        self.resident_limit = resident_limit
        self.deliveries: dict[int, int] = {}  # of entries in `tail`
        self.delivered_below = 0  # entries in `tail` below this position may have been delivered before the restart

    def __len__(self) -> int:
        return len(self._returned) + len(self.head) + self.tail.messages

    @property
    def in_memory_count(self) -> int:
        """The number of entries that are in memory."""
        return len(self._returned) + len(self.head)

    def append(self, run: Run, contents: Sequence[bytes]) -> None:
        count = len(contents)
        in_memory = isinstance(contents, list) or not run.lsn  # others are loaded when they are needed
        if in_memory and not self.tail.messages and self.resident < self.resident_limit:
            if len(run.envelope.header) > HEAVY:
                self._weigh(run.envelope, run.first + count - 1)
            if count == 1:
                content = contents[0]
                self.resident += len(content) + ENTRY_COST
                self.head.append(Entry(run.first, content, run))
                return
            self.resident += sum(map(len, contents)) + ENTRY_COST * count
            self.head.extend(map(Entry, range(run.first, run.first + count), contents, repeat(run)))
            return
        lsn = run.lsn or self._pager.store(run, contents)
        self.tail.append(run.first, count, lsn, run.index)

    def level(self, envelope: Envelope) -> int:
        return 0

    def keeps(self, level: int, size: int) -> bool:
        return not self.tail.messages and self.resident + size < self.resident_limit

    def admit(self, level: int, runs: LevelRuns) -> None:
        if self.tail.messages:
            runs.page_out(self._pager)
        self.head.extend(runs.entries)
        self.resident += runs.resident
        self._heavy.extend(runs.heavy)
        self.tail.join(runs.tail, 0)

    def _weigh(self, envelope: Envelope, last: int) -> None:
        """Count a long header that comes into memory, with entries up to position `last`."""
        if not self.head or self.head[-1].run.envelope is not envelope:
            self.resident += len(envelope.header)
            self._heavy.append((last, len(envelope.header)))

    def _lighten(self, position: int) -> None:
        """Stop counting the headers of entries up to `position`, which have left."""
        while self._heavy and self._heavy[0][0] <= position:
            self.resident -= self._heavy.popleft()[1]

    def take(self, most: int) -> list[Entry]:
        if self._returned:
            return self._take_merged(most)
        head = self.head
        if not head:
            if not self.tail.messages:
                return []
            self._fill()
        if len(head) <= most and self.resident <= TAKEN_BYTES:
            taken = list(head)
            head.clear()
            self._heavy.clear()
            self.resident = 0
            return taken
        pop = head.popleft
        taken = [pop() for _ in range(min(most, len(head)))]
        size = sum([len(entry.content) for entry in taken])
        if size > TAKEN_BYTES and len(taken) > 1:
            size -= self._leave_excess(taken)
        self.resident -= size + ENTRY_COST * len(taken)
        if self._heavy:
            self._lighten(taken[-1].position)
        return taken

    def _leave_excess(self, taken: list[Entry]) -> int:
        """Put entries back that exceed `TAKEN_BYTES`, but not the first one. Return their bytes."""
        fits = bisect_right(list(accumulate([len(entry.content) for entry in taken])), TAKEN_BYTES)
        excess = taken[max(fits, 1) :]
        del taken[max(fits, 1) :]
        self.head.extendleft(reversed(excess))
        return sum([len(entry.content) for entry in excess])

    def _take_merged(self, most: int) -> list[Entry]:
        """Like `take`, but merge requeued entries with the others by position."""
        taken: list[Entry] = []
        returned, size = self._returned, 0
        while len(taken) < most and returned and size < TAKEN_BYTES:
            if self._tail_is_next():
                try:
                    self._fill()
                except LogUnreadable:
                    if not taken:
                        raise
                    break
            if self.head and self.head[0].position < returned[0].position:
                entry = self.head.popleft()
                self.resident -= len(entry.content) + ENTRY_COST
                self._lighten(entry.position)
            else:
                entry = heapq.heappop(returned)
                self._sorted = False
            taken.append(entry)
            size += len(entry.content)
        return taken

    def put_back(self, entries: list[Entry]) -> None:
        if sum([len(entry.content) for entry in entries]) + ENTRY_COST * len(entries) > self.resident_limit:
            entries = self._page_out(entries)
        self._sorted = False
        if len(entries) > len(self._returned):
            self._returned.extend(entries)
            heapq.heapify(self._returned)
            return
        for entry in entries:
            heapq.heappush(self._returned, entry)

    def _page_out(self, entries: list[Entry]) -> list[Entry]:
        """Return requeued entries to their places as references, and return those that are only in memory."""
        logged = [entry for entry in entries if entry.run.lsn]
        if not logged:
            return entries
        # A count of 1 is the default for the positions that `attach` notes as delivered.
        deliveries = {entry.position: entry.deliveries for entry in logged if entry.deliveries != 1}
        self.attach([Reference(entry.position, 1, entry.run.lsn, entry.start) for entry in logged], deliveries)
        return [entry for entry in entries if not entry.run.lsn]

    def peek(self) -> Entry | None:
        if self._tail_is_next():
            self._fill(1)
        if self._returned and (not self.head or self._returned[0].position < self.head[0].position):
            return self._returned[0]
        return self.head[0] if self.head else None

    def _tail_is_next(self) -> bool:
        """Return whether the next message is in the tail."""
        tail, returned = self.tail, self._returned
        if self.head or not tail.messages:
            return False
        return not returned or tail.firsts[tail.begin] < returned[0].position

    def _fill(self, share: int = 0) -> None:
        """Load the front of the tail, up to `share` bytes or the limit of one fill, but at least one run.

        Looking at the first message needs no more, and a restart looks at the first message of every queue.

        Raises LogUnreadable, with nothing changed, if the first run cannot be loaded.
        """
        share = share or min(self.resident_limit // 2, FILL_BYTES)
        runs = 0
        while self.tail.messages and (not self.head or (self.resident < share and runs < FILL_RUNS)):
            runs += 1
            reference = self.tail.peek()
            try:
                block = self._pager.load(reference)
            except LogUnreadable:
                if not self.head:
                    raise
                break
            expires_at = self._expiry(block.envelope, block.time)
            run = Run(block.envelope, reference.first, block.time, reference.lsn, reference.start, expires_at)
            entries = list(map(Entry, range(run.first, run.first + reference.length), block.contents, repeat(run)))
            if self.deliveries or run.first < self.delivered_below:
                for entry in entries:
                    known = 1 if entry.position < self.delivered_below else 0
                    entry.deliveries = self.deliveries.pop(entry.position, known)
            if len(block.envelope.header) > HEAVY:
                self._weigh(block.envelope, entries[-1].position)
            self.head.extend(entries)
            self.tail.take(reference.length)  # only now that its messages are in memory
            self.resident += sum(map(len, block.contents)) + ENTRY_COST * reference.length

    def withdraw(self) -> Withdrawal:
        gone = Withdrawal(self.in_memory(), [self.tail.withdraw()])
        self._returned.clear()
        self.head.clear()
        self._heavy.clear()
        self.deliveries.clear()
        self.resident = 0
        return gone

    def references(self) -> Iterator[Reference]:
        for entry in self.in_memory():
            yield Reference(entry.position, 1, entry.run.lsn, entry.start)
        yield from self.tail

    def in_memory(self) -> list[Entry]:
        if not self._returned:
            return list(self.head)
        if self._sorted and (not self.head or self._returned[-1].position < self.head[0].position):
            return [*self._returned, *self.head]  # sorting 100,000 entries would take 10 ms
        return sorted((*self._returned, *self.head), key=attrgetter("position"))

    def loaded(self, start: int, most: int) -> list[Entry]:
        found = self._returned[start : start + most]
        begin = max(start - len(self._returned), 0)
        return found + part_of(self.head, begin, most - len(found))

    def backlogs(self) -> list[Backlog]:
        return [self.tail]

    def known_deliveries(self) -> dict[int, int]:
        return self.deliveries.copy()

    def restore(self, found: Backlog, deliveries: dict[int, int], delivered_below: int) -> None:
        if len(self):  # some have arrived while those that were found could not be read
            self._empty_head()
            found.join(self.tail.withdraw(), 0)
            deliveries = deliveries | self.deliveries
        self.tail.replace(found)
        self.deliveries = deliveries
        self.delivered_below = max(self.delivered_below, delivered_below)

    def limit_memory(self, limit: int) -> None:
        self.resident_limit = limit

    def detach(self, most: int, parts: int) -> list[Detached]:
        found: list[Detached] = []
        returned, head, tail = self._returned, self.head, self.tail
        while most > 0 and parts > 0:
            back = returned[0].position if returned else 0
            if head and not 0 < back < head[0].position:
                entry = head.popleft()
                self.resident -= len(entry.content) + ENTRY_COST
                self._lighten(entry.position)
            elif tail.messages and not head and not 0 < back < tail.firsts[tail.begin]:
                some = list(self._from_tail(most, parts, back))
                found += some
                most -= sum([part.messages for part in some])
                parts -= sum([part.parts for part in some])
                continue
            elif returned:
                entry = heapq.heappop(returned)
                self._sorted = False
            else:
                break
            found.append(Detached(entry, entry.deliveries))
            most -= 1
            parts -= 1
        return found

    def _from_tail(self, most: int, parts: int, before: int) -> Iterator[Detached]:
        """Return the next part of the tail as references whose messages were delivered equally often."""
        tail, known = self.tail, 0
        first, length, _, _ = tail.peek()
        if self.deliveries or first < self.delivered_below < first + length:
            yield from self._counted(tail.take(min(most, before - first) if before else most))
            return
        if first < self.delivered_below:
            known = 1
            last = tail.at(tail.find(self.delivered_below - 1) or 0)
            bound = last.first if last.first + last.length > self.delivered_below else self.delivered_below
            before = min(before or bound, bound)
        yield Detached(tail.split(most, parts, before), known)

    def _counted(self, reference: Reference) -> Iterator[Detached]:
        first, length, lsn, start = reference
        at, count = 0, 0
        for i in range(length):
            position = first + i
            known = self.deliveries.pop(position, 1 if position < self.delivered_below else 0)
            if known != count and i > at:
                yield Detached(Backlog.of(Reference(first + at, i - at, lsn, start + at)), count)
                at = i
            count = known
        yield Detached(Backlog.of(Reference(first + at, length - at, lsn, start + at)), count)

    def _note_delivered(self, found: list[Reference]) -> None:
        """Count the messages of `found`, which are in order, as delivered once."""
        below, end = self.delivered_below, found[-1].first + found[-1].length
        if end <= below:
            return
        if next(self.tail.within(below, end - below), None) is None:
            # Everything below the last of them that is only in the log was detached before, and therefore delivered.
            self.delivered_below = end
            return
        # Consumers that select messages have passed over some, which were not delivered.
        for first, length, _, _ in found:
            for position in range(max(first, below), first + length):
                self.deliveries.setdefault(position, 1)

    def levels(self) -> Iterator[tuple[int, Fifo]]:
        yield 0, self

    def scan(self, first: int, end: int, most: int) -> list[Entry]:
        """Return entries with positions from `first` to `end` - 1, in order, without removing them: at most `most`, and
        at least one if there is any. Those that are only in the log are loaded, but not kept in memory.

        Raises LogUnreadable if the first one of them cannot be loaded.
        """
        if not self._sorted:
            self._returned.sort(key=_position)
            self._sorted = True
        found: list[Entry] = []
        head = self.head
        if head and head[-1].position >= first:
            found = part_of(head, bisect_left(head, first, key=_position), most)
        if self._returned and self._returned[-1].position >= first:
            begin = bisect_left(self._returned, first, key=_position)
            found = sorted([*self._returned[begin : begin + most], *found], key=_position)[:most]
        if found and found[-1].position >= end:
            del found[bisect_left(found, end, key=_position) :]
        if len(found) < most and self.tail.messages and not (head and head[-1].position >= end):
            found = self._with_tail(found, first, end, most)
        return found

    def _with_tail(self, found: list[Entry], first: int, end: int, most: int) -> list[Entry]:
        """Return `found` with the entries of the tail in [`first`, `end`), in order, and at most `most` of them."""
        loaded: list[Entry] = []
        size = 0
        for reference in self.tail.within(first, end - first):
            if len(loaded) >= most or size >= FILL_BYTES:
                break
            try:
                entries = self._load(reference._replace(length=min(reference.length, most - len(loaded))))
            except LogUnreadable:
                found = [entry for entry in found if entry.position < reference.first]
                if not loaded and not found:
                    raise
                break
            loaded += entries
            size += sum([len(entry.content) for entry in entries])
        if not found or not loaded:
            return loaded or found
        if found[-1].position > loaded[-1].position:  # what lies between them in the log may not have been loaded
            end = loaded[-1].position
            found = [entry for entry in found if entry.position < end]
        return sorted([*found, *loaded], key=_position)[:most]

    def _load(self, reference: Reference) -> list[Entry]:
        """Return the entries of `reference`, which stay in the tail."""
        block = self._pager.load(reference)
        run = Run(
            block.envelope,
            reference.first,
            block.time,
            reference.lsn,
            reference.start,
            self._expiry(block.envelope, block.time),
        )
        entries = list(map(Entry, range(run.first, run.first + reference.length), block.contents, repeat(run)))
        if self.deliveries or run.first < self.delivered_below:
            for entry in entries:
                known = 1 if entry.position < self.delivered_below else 0
                entry.deliveries = self.deliveries.get(entry.position, known)
        return entries

    def pluck(self, entries: list[Entry]) -> None:
        """Remove entries that `scan` has just returned, in their order."""
        rest: list[int] = []
        for entry in entries:
            i = bisect_left(self._returned, entry.position, key=_position)
            if i < len(self._returned) and self._returned[i].position == entry.position:
                del self._returned[i]
            else:
                rest.append(entry.position)
        if self.head and rest:
            count = bisect_right(rest, self.head[-1].position)
            if count:
                self._pluck_head(rest[:count])
                del rest[:count]
        if rest:
            self.tail.take_out(rest)
            if self.deliveries:
                for position in rest:
                    self.deliveries.pop(position, None)

    def _pluck_head(self, positions: list[int]) -> None:
        head, gone = self.head, set(positions)
        before = bisect_left(head, positions[0], key=_position)
        head.rotate(-before)
        kept: list[Entry] = []
        while gone:
            entry = head.popleft()
            if entry.position in gone:
                gone.discard(entry.position)
                self.resident -= len(entry.content) + ENTRY_COST
            else:
                kept.append(entry)
        head.extendleft(reversed(kept))
        head.rotate(before)
        if not head:
            self._heavy.clear()
            self.resident = 0
        elif self._heavy:
            self._lighten(head[0].position - 1)

    def attach(self, found: list[Reference], deliveries: dict[int, int]) -> None:
        found.sort()
        self._note_delivered(found)
        self.deliveries.update(deliveries)
        self._empty_head()
        tail = self.tail
        begin = bisect_left(tail.firsts, found[0].first, tail.begin)
        end = bisect_left(tail.firsts, found[-1].first, begin)
        tail.substitute([(begin, end, sorted([*found, *map(tail.at, range(begin, end))]))])
        tail.messages += sum([reference.length for reference in found])

    def _empty_head(self) -> None:
        """Treat the entries in `head` as requeued ones: no others in memory may lie between positions in the log."""
        self._returned.extend(self.head)
        heapq.heapify(self._returned)
        self._sorted = False
        self.head.clear()
        self._heavy.clear()
        self.resident = 0

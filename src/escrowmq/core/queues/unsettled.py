"""Unsettled deliveries, by delivery tag. Tags count from 1 and belong to one channel or link.

Deliveries are stored in runs of consecutive tags of one consumer, as they were delivered. Most deliveries are settled
in order, so a whole run, or the front of one, leaves at a time. A delivery that leaves from the middle of a run leaves
a hole. A run that is mostly holes is divided, so memory stays in proportion to the unsettled deliveries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from escrowmq.core.messages.entry import Entry
from escrowmq.core.queues.consumer import Consumer
from escrowmq.core.queues.discipline import ENTRY_COST

Stretch = tuple[int, list[Entry], Consumer]
"""Deliveries of one consumer with consecutive tags: the first tag, the entries, the consumer."""

_LONGEST: Final = 1024  # the most entries of a run; removing the first one moves the others
_SHORT: Final = 16  # a run of at most this many slots is not divided, however few are in use
_UNWEIGHED: Final = 64  # new runs whose sizes are estimated together; by then most may have been settled
_GHOSTS: Final = 32  # empty runs that may stay in the middle, in addition to as many as there are other runs


class _Run:
    """Consecutive tags from `first` on. A settled delivery's entry is None; `count` is the number of the others. `each`
    is the estimated memory of one of them, in bytes; 0 while it is not estimated.
    """

    __slots__ = ("consumer", "count", "each", "entries", "first")

    def __init__(self, first: int, entries: list[Any], consumer: Consumer, count: int, each: int = 0) -> None:
        self.each = each
        self.first = first
        self.entries = entries
        self.consumer = consumer
        self.count = count

    def living(self) -> list[Entry]:
        """Return a copy of the list of entries, without holes."""
        if self.count == len(self.entries):
            return self.entries.copy()
        return [entry for entry in self.entries if entry is not None]

    def stretches(self, begin: int, end: int) -> Iterator[Stretch]:
        """Yield the entries in the slots from `begin` to `end`, divided at holes."""
        first, found = self.first + begin, []
        for tag, entry in enumerate(self.entries[begin:end], first):
            if entry is not None:
                found.append(entry)
                continue
            if found:
                yield first, found, self.consumer
                found = []
            first = tag + 1
        if found:
            yield first, found, self.consumer


def size_of_one(entries: list[Entry]) -> int:
    """Return the mean size of entries in memory. A sample is looked at."""
    count = len(entries)
    some = entries if count < _SHORT else entries[:: count // _SHORT + 1]
    return ENTRY_COST + sum([len(entry.content) for entry in some]) // len(some)


class Unsettled:
    """The unsettled deliveries of a channel or link. `count` is their number, `next_tag` the tag of the next one."""

    __slots__ = (
        "_begun",
        "_bytes",
        "_firsts",
        "_ghosts",
        "_head",
        "_reached",
        "_runs",
        "_unweighed",
        "count",
        "next_tag",
    )

    def __init__(self) -> None:
        self.next_tag = 1
        self.count = 0
        self._bytes = 0  # the estimated size of the runs that are not in `_unweighed`
        self._unweighed: list[_Run] = []
        # In order of their tags. The runs before `_head` were removed; some of the others may be empty.
        self._runs: list[_Run] = []
        self._firsts: list[int] = []  # the first tags of the runs, for searching
        self._head = 0
        self._ghosts = 0  # empty runs behind the head
        self._begun = self._reached = (0, 0)  # number and tag at which the last `part` began and ended

    # -- reading

    @property
    def bytes(self) -> int:
        """The estimated size of the deliveries in memory."""
        if self._unweighed:
            self._weigh()
        return self._bytes

    def _weigh(self) -> None:
        """Estimate the sizes of the new runs. Those that were settled in the meantime have cost nothing."""
        size = 0
        for run in self._unweighed:
            count, entries = run.count, run.entries
            if count:
                if count == 1 == len(entries):
                    run.each = ENTRY_COST + len(entries[0].content)
                else:
                    run.each = size_of_one(entries if count == len(entries) else run.living())
                size += count * run.each
        self._bytes += size
        self._unweighed.clear()

    def copies(self) -> list[tuple[Consumer, list[Entry]]]:
        """Copies of the runs, in order. It takes a step for each run, not for each delivery."""
        return [(run.consumer, run.living()) for run in islice(self._runs, self._head, None) if run.count]

    def slots(self) -> list[tuple[int, list[Entry | None], Consumer]]:
        """Copies of the runs with their first tags, in order. Settled deliveries are None. It takes a step for each
        run, not for each delivery.
        """
        return [(run.first, run.entries.copy(), run.consumer) for run in islice(self._runs, self._head, None)]

    def stretches(self, first: int = 0) -> Iterator[Stretch]:
        """Yield the deliveries, in order of their tags, from the run with the tag `first` on. Nothing may be added or
        removed meanwhile.
        """
        for run in islice(self._runs, max(self._index(first), self._head), None):
            yield from run.stretches(0, len(run.entries))

    def find(self, tag: int) -> Stretch | None:
        """Return the delivery with this tag without removing it; None if there is none."""
        i = self._index(tag)
        run = self._runs[i] if i >= self._head else None
        entry = run.entries[tag - run.first] if run is not None and tag - run.first < len(run.entries) else None
        return None if run is None or entry is None else (tag, [entry], run.consumer)

    def bytes_before(self, tag: int) -> int:
        """The size of the deliveries with tags less than `tag`, in memory. It is an estimate: a few of each run are
        looked at.
        """
        size = 0
        for run in islice(self._runs, self._head, None):
            if run.first >= tag:
                break
            count = min(run.count, tag - run.first)
            some = [entry for entry in islice(run.entries, _SHORT) if entry is not None]
            if some:
                size += count * (ENTRY_COST + sum([len(entry.content) for entry in some]) // len(some))
        return size

    def __contains__(self, tag: int) -> bool:
        i = self._index(tag)
        run = self._runs[i] if i >= self._head else None
        return run is not None and tag - run.first < len(run.entries) and run.entries[tag - run.first] is not None

    @property
    def last_tag(self) -> int:
        """The last tag that is outstanding; 0 if there is none."""
        for run in reversed(self._runs):
            if run.count:
                return run.first + max(i for i, entry in enumerate(run.entries) if entry is not None)
        return 0

    def reach(self, tag: int, most: int) -> int:
        """The tag of the `most`-th delivery, or `tag`, which must be outstanding, if that comes first."""
        for run in islice(self._runs, self._head, None):
            if run.first > tag:
                break
            if run.count < most:
                most -= run.count
                continue
            living = (i for i, entry in enumerate(run.entries) if entry is not None)
            return min(run.first + next(islice(living, most - 1, None)), tag)
        return tag

    def part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """Return at most `most` deliveries from number `start` on, where the first delivery has number 0.

        A call that continues where the last one ended misses nothing, even if deliveries were settled between the
        calls.
        """
        skip, tag = self._way_to(start)
        found: list[tuple[Consumer, Entry]] = []
        for run in islice(self._runs, max(self._index(tag), self._head), None):
            if skip >= run.count and run.first >= tag:
                skip -= run.count
                continue
            for number, entry in enumerate(run.entries, run.first):
                if entry is None or number < tag:
                    continue
                if skip:
                    skip -= 1
                    continue
                if not found:
                    self._begun = (start, number)
                found.append((run.consumer, entry))
                if len(found) == most:
                    self._reached = (start + most, number + 1)
                    return found
        self._reached = (start + len(found), self.next_tag)
        return found

    def _way_to(self, start: int) -> tuple[int, int]:
        """Return the number of deliveries to skip, and the tag from which to skip them, to reach number `start`."""
        place, tag = self._reached
        if start == place > 0:
            return 0, tag
        place, tag = self._begun
        return (start - place, tag) if start >= place > 0 else (start, 0)

    def _index(self, tag: int) -> int:
        """Return the number of the last run whose first tag is at most `tag`; one less than the head if none is."""
        return bisect_right(self._firsts, tag, self._head) - 1

    # -- adding

    def add(self, entries: list[Entry], consumer: Consumer) -> None:
        """Give the next tags to deliveries that wait for a settlement."""
        count = len(entries)
        if not 0 < count <= _LONGEST:
            for at in range(0, count, _LONGEST):
                self.add(entries[at : at + _LONGEST], consumer)
            return
        tag = self.next_tag
        run = _Run(tag, entries[:], consumer, count)
        self._runs.append(run)
        self._firsts.append(tag)
        self._unweighed.append(run)
        if len(self._unweighed) >= _UNWEIGHED:
            self._weigh()
        self.next_tag = tag + count
        self.count += count

    def add_each(self, deliveries: list[tuple[Consumer, list[Entry]]]) -> int:
        """Do `add` for deliveries to several consumers, in order. Return the first tag. The lists are kept."""
        first = tag = self.next_tag
        runs, firsts, unweighed = self._runs, self._firsts, self._unweighed
        for consumer, entries in deliveries:
            count = len(entries)
            if not 0 < count <= _LONGEST:
                self.add(entries, consumer)
                tag += count
                continue
            run = _Run(tag, entries, consumer, count)
            runs.append(run)
            firsts.append(tag)
            unweighed.append(run)
            tag += count
            self.next_tag = tag
            self.count += count
        if len(unweighed) >= _UNWEIGHED:
            self._weigh()
        return first

    def skip(self, number: int) -> None:
        """Reserve the next `number` tags for deliveries that need no settlement."""
        self.next_tag += number

    # -- removing

    def take(self, tag: int) -> Stretch | None:
        """Remove and return the delivery with this tag; None if there is none."""
        i = self._index(tag)
        if i < self._head:
            return None
        run = self._runs[i]
        at = tag - run.first
        if at >= len(run.entries):
            return None
        entry = run.entries[at]
        if entry is None:
            return None
        if at:
            run.entries[at] = None
        else:
            del run.entries[0]
            run.first = self._firsts[i] = tag + 1
        run.count -= 1
        self.count -= 1
        self._bytes -= run.each
        if run.count != len(run.entries) or not run.count:
            self._shrink(i, run)
        return tag, [entry], run.consumer

    def take_each(self, tags: list[int]) -> list[Stretch]:
        """Remove and return the deliveries with these tags, in their order, up to the first tag that is unknown."""
        taken: list[Stretch] = []
        at = 0
        while at < len(tags):
            tag = tags[at]
            i = self._index(tag)
            run = self._runs[i] if i >= self._head else None
            most = 1
            if run is not None and run.first == tag and run.count == len(run.entries):
                most = min(run.count, len(tags) - at)
                if most == 1 or tags[at : at + most] == list(range(tag, tag + most)):
                    taken.append(self._take_front(i, run, most))
                    at += most
                    continue
            for tag in tags[at : at + most]:
                one = self.take(tag)
                if one is None:
                    return taken
                taken.append(one)
            at += most
        return taken

    def take_through(self, tag: int) -> list[Stretch]:
        """Remove and return all deliveries up to this tag (0: all); nothing if it is unknown."""
        if tag == 0:
            return self.clear()
        last = self._index(tag)
        if last < self._head:
            return []
        run = self._runs[last]
        behind = tag - run.first + 1
        if behind > len(run.entries) or run.entries[behind - 1] is None:
            return []
        taken: list[Stretch] = []
        for before in islice(self._runs, self._head, last):
            if before.count:
                self._collect(before, taken)
            else:
                self._ghosts -= 1
        self._head = last
        if behind == len(run.entries):
            self._collect(run, taken)
        else:
            found = list(run.stretches(0, behind))
            del run.entries[:behind]
            run.first = self._firsts[last] = tag + 1
            count = sum([len(entries) for _, entries, _ in found])
            run.count -= count
            self._bytes -= count * run.each
            taken += found
        self.count -= sum([len(entries) for _, entries, _ in taken])
        self._shrink(last, run)
        return taken

    def take_between(self, first: int, last: int) -> list[Stretch]:
        """Remove and return the deliveries with tags from `first` to `last`; tags without a delivery are skipped."""
        taken: list[Stretch] = []
        while first <= last:
            i = max(self._index(first), self._head)
            if i >= len(self._runs) or self._runs[i].first > last:
                break
            run = self._runs[i]
            behind = run.first + len(run.entries)
            if behind <= first:
                if i + 1 == len(self._firsts):
                    break
                first = self._firsts[i + 1]
                continue
            begin, end = max(first - run.first, 0), min(last + 1 - run.first, len(run.entries))
            first = behind
            if begin == 0 and run.count == len(run.entries):
                taken.append(self._take_front(i, run, end))
                continue
            found = list(run.stretches(begin, end))
            run.entries[begin:end] = [None] * (end - begin)
            count = sum([len(entries) for _, entries, _ in found])
            run.count -= count
            self.count -= count
            self._bytes -= count * run.each
            taken += found
            if count:
                self._shrink(i, run)
        return taken

    def clear(self) -> list[Stretch]:
        """Remove and return everything, in order."""
        taken: list[Stretch] = []
        for run in islice(self._runs, self._head, None):
            self._collect(run, taken)
        self._runs.clear()
        self._firsts.clear()
        self._head = self._ghosts = self.count = self._bytes = 0
        self._unweighed.clear()
        return taken

    def _take_front(self, i: int, run: _Run, count: int) -> Stretch:
        """Remove and return the first `count` entries of a run without holes."""
        first, found = run.first, run.entries
        self.count -= count
        self._bytes -= count * run.each
        run.count -= count
        if run.count:
            found = found[:count]
            del run.entries[:count]
            run.first = self._firsts[i] = first + count
        else:
            self._drop(i, run)
        return first, found, run.consumer

    def _collect(self, run: _Run, taken: list[Stretch]) -> None:
        """Move everything from a run to `taken`; the run is empty then."""
        self._bytes -= run.count * run.each
        if run.count == len(run.entries):
            if run.count:
                taken.append((run.first, run.entries, run.consumer))
        else:
            taken += run.stretches(0, len(run.entries))
        run.entries = []
        run.count = 0

    # -- restoring

    def restore(self, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
        """Put deliveries back under their old tags (TX-4). The cost grows with their number, not with `count`."""
        begin, last = 0, len(tags) - 1
        for i, tag in enumerate(tags):
            if i == last or tags[i + 1] != tag + 1 or i - begin == _LONGEST - 1:
                self._put_back(tags[begin], [*entries[begin : i + 1]], consumer)
                begin = i + 1

    def _put_back(self, first: int, entries: list[Entry], consumer: Consumer) -> None:
        """Put back deliveries with consecutive tags, which may belong to several runs."""
        while entries:
            i = self._index(first)
            count = len(entries)
            if i + 1 < len(self._firsts):
                count = min(count, self._firsts[i + 1] - first)
            self._put_back_at(i, first, entries[:count], consumer)
            first += count
            del entries[:count]

    def _put_back_at(self, i: int, first: int, entries: list[Entry], consumer: Consumer) -> None:
        """Put back deliveries whose tags lie after the first tag of run number `i` and before the next run."""
        runs, firsts = self._runs, self._firsts
        count = len(entries)
        self.count += count
        run = runs[i] if i >= self._head else None
        if run is not None and run.count and first - run.first + count <= len(run.entries):
            run.entries[first - run.first : first - run.first + count] = entries
            run.count += count
            self._bytes += count * run.each
            return
        back = _Run(first, entries, consumer, count, size_of_one(entries))
        self._bytes += count * back.each
        if run is not None and not run.count:
            runs[i], firsts[i] = back, first
            self._ghosts -= 1
        elif 0 <= i < self._head:
            runs[i], firsts[i] = back, first
            self._head = i
        else:
            runs.insert(i + 1, back)
            firsts.insert(i + 1, first)

    # -- keeping memory in proportion

    def _shrink(self, i: int, run: _Run) -> None:
        """Drop, trim or divide run number `i`, from which deliveries were removed."""
        entries = run.entries
        if not run.count:
            self._drop(i, run)
            return
        while entries[-1] is None:
            entries.pop()
        holes = 0
        while entries[holes] is None:
            holes += 1
        if holes:
            del entries[:holes]
            run.first += holes
            self._firsts[i] = run.first
        if len(entries) > max(_SHORT, 4 * run.count):
            if not run.each:
                self._weigh()
            each = run.each
            parts = [_Run(at, some, run.consumer, len(some), each) for at, some, _ in run.stretches(0, len(entries))]
            self._runs[i : i + 1] = parts
            self._firsts[i : i + 1] = [part.first for part in parts]

    def _drop(self, i: int, run: _Run) -> None:
        """Remove run number `i`, which is empty, and sometimes other empty runs with it."""
        runs, firsts = self._runs, self._firsts
        run.entries = []
        self._ghosts += 1
        if i == self._head:
            while i < len(runs) and not runs[i].count:
                i += 1
                self._ghosts -= 1
            if i == len(runs) or i > max(_GHOSTS, len(runs) // 2):
                del runs[:i], firsts[:i]
                i = 0
            self._head = i
        elif self._ghosts > max(_GHOSTS, (len(runs) - self._head) // 2):
            self._runs = [one for one in runs if one.count]
            self._firsts = [one.first for one in self._runs]
            self._head = self._ghosts = 0


def entries_by_consumer(taken: list[Stretch]) -> dict[Consumer, list[Entry]]:
    """Like `by_consumer`, without the tags. The lists in `taken` are reused."""
    groups: dict[Consumer, list[Entry]] = {}
    for _, entries, consumer in taken:
        group = groups.get(consumer)
        if group is None:
            groups[consumer] = entries
        else:
            group += entries
    return groups


def by_consumer(taken: list[Stretch]) -> list[tuple[Consumer, Sequence[int], list[Entry]]]:
    """Deliveries and their tags, grouped by the consumer that received them; order is kept within each group."""
    if len(taken) == 1:
        ((first, entries, consumer),) = taken
        return [(consumer, range(first, first + len(entries)), entries)]
    groups: dict[Consumer, tuple[list[int], list[Entry]]] = {}
    for first, entries, consumer in taken:
        group = groups.get(consumer)
        if group is None:
            group = groups[consumer] = ([], [])
        group[0].extend(range(first, first + len(entries)))
        group[1].extend(entries)
    return [(consumer, tags, entries) for consumer, (tags, entries) in groups.items()]

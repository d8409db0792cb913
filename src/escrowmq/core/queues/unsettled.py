"""Unsettled deliveries, by delivery tag. Tags count from 1 and belong to one channel or link.

Deliveries are stored in runs of consecutive tags of one consumer, as they were delivered. Most deliveries are settled
in order, so a whole run, or the front of one, leaves at a time. A delivery that leaves from the middle of a run leaves
a hole. A run that is mostly holes is divided, so memory stays in proportion to the unsettled deliveries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from escrowmq.core.queues.discipline import ENTRY_COST
from escrowmq.core.queues.runs import Runs, Stretch, TagRun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.runs import RunBlock

_LONGEST: Final = 1024  # the most entries of a run; removing the first one moves the others
_SHORT: Final = 16  # a run of at most this many slots is not divided, however few are in use
_COPIED: Final = 30  # copied deliveries that cost as much as a run
_UNWEIGHED: Final = 64  # new runs whose sizes are estimated together; by then most may have been settled


def size_of_one(entries: list[Entry]) -> int:
    """Return the mean size of entries in memory. A sample is looked at."""
    count = len(entries)
    some = entries if count < _SHORT else entries[:: count // _SHORT + 1]
    return ENTRY_COST + sum([len(entry.content) for entry in some]) // len(some)


class Unsettled:
    """The unsettled deliveries of a channel or link. `count` is their number, `next_tag` the tag of the next one."""

    __slots__ = ("_begun", "_bytes", "_reached", "_runs", "_unweighed", "count", "next_tag")

    def __init__(self) -> None:
        self.next_tag = 1
        self.count = 0
        self._bytes = 0  # the estimated size of the runs that are not in `_unweighed`
        self._unweighed: list[TagRun] = []
        self._runs = Runs()
        self._begun = self._reached = (0, 0)  # number and tag at which the last `part` began and ended

    def __bool__(self) -> bool:
        return self.count > 0

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
        """Copies of the runs, in order. It takes a step for each run of which `copy_ahead` has made no copy; copies are
        returned only once.
        """
        found: list[tuple[Consumer, list[Entry]]] = []
        for block in self._runs.blocks if self.count else ():
            copies, block.copies = block.copies, None
            found += _copies_of(block) if copies is None else copies
        return found

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """Copy runs for `copies` in advance, from the block with the tag `at` on, until the cost reaches `most`. Return
        the cost, which counts runs, and the tag to go on from, 0 at the end. Copies of runs that have not changed are
        kept.
        """
        if not self.count:
            return 1, 0
        cost = 0
        blocks = self._runs.blocks
        for number in range(self._runs.locate(at)[0], len(blocks)):
            block = blocks[number]
            if cost >= most:
                return cost, block.firsts[0]
            if block.copies is None:
                block.copies = _copies_of(block)
                cost += len(block.runs) + sum([run.count for run in block.runs]) // _COPIED
        return max(cost, 1), 0

    def slots(self) -> list[tuple[int, list[Entry | None], Consumer]]:
        """Copies of the runs with their first tags, in order. Settled deliveries are None. It takes a step for each
        run, not for each delivery.
        """
        return [(run.first, run.entries.copy(), run.consumer) for run in self._runs]

    def stretches(self, first: int = 0, last: int | None = None) -> Iterator[Stretch]:
        """Yield the deliveries with tags from `first` to `last`, in order. Without `last`, yield all from `first` on.
        Nothing may be added or removed meanwhile.
        """
        for run in self._runs.from_tag(first):
            end = len(run.entries) if last is None else min(last + 1 - run.first, len(run.entries))
            if end <= 0:
                return
            yield from run.stretches(max(first - run.first, 0), end)

    def find(self, tag: int) -> Stretch | None:
        """Return the delivery with this tag without removing it; None if there is none."""
        run = self._run_at(*self._runs.locate(tag))
        entry = run.entries[tag - run.first] if run is not None and tag - run.first < len(run.entries) else None
        return None if run is None or entry is None else (tag, [entry], run.consumer)

    def queues(self) -> set[Queue]:
        """Return the queues of all deliveries, and perhaps of some former ones. It takes a step for each consumer and
        for every few hundred runs.
        """
        return {consumer.queue for consumer in self._runs.consumers()}

    def _run_at(self, at: int, i: int) -> TagRun | None:
        return self._runs.blocks[at].runs[i] if i >= 0 else None

    def bytes_before(self, tag: int) -> int:
        """The size of the deliveries with tags less than `tag`, in memory. It is an estimate: a few of each run are
        looked at.
        """
        size = 0
        for run in self._runs:
            if run.first >= tag:
                break
            count = min(run.count, tag - run.first)
            some = [entry for entry in islice(run.entries, _SHORT) if entry is not None]
            if some:
                size += count * (ENTRY_COST + sum([len(entry.content) for entry in some]) // len(some))
        return size

    def __contains__(self, tag: int) -> bool:
        return self.find(tag) is not None

    @property
    def first_tag(self) -> int:
        """The tag of the first delivery; 0 if there is none."""
        if not self.count:
            return 0
        run = next(iter(self._runs))
        return run.first + next(i for i, entry in enumerate(run.entries) if entry is not None)

    @property
    def last_tag(self) -> int:
        """The tag of the last delivery; 0 if there is none."""
        if not self.count:
            return 0
        run = self._runs.blocks[-1].runs[-1]
        return run.first + max(i for i, entry in enumerate(run.entries) if entry is not None)

    def reach(self, tag: int, most: int) -> int:
        """The tag of the `most`-th delivery, or `tag`, which must be outstanding, if that comes first."""
        for run in self._runs:
            if run.first > tag:
                break
            if run.count < most:
                most -= run.count
                continue
            if run.count == len(run.entries):  # without holes, no entry has to be looked at
                return min(run.first + most - 1, tag)
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
        for run in self._runs.from_tag(tag):
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

    # -- adding

    def add(self, entries: list[Entry], consumer: Consumer) -> None:
        """Give the next tags to deliveries that wait for a settlement."""
        count = len(entries)
        if not 0 < count <= _LONGEST:
            for at in range(0, count, _LONGEST):
                self.add(entries[at : at + _LONGEST], consumer)
            return
        tag = self.next_tag
        run = TagRun(tag, entries[:], consumer, count)
        self._runs.append(run)
        self._unweighed.append(run)
        if len(self._unweighed) >= _UNWEIGHED:
            self._weigh()
        self.next_tag = tag + count
        self.count += count

    def add_each(self, deliveries: list[tuple[Consumer, list[Entry]]]) -> int:
        """Do `add` for deliveries to several consumers, in order. Return the first tag. The lists are kept."""
        first = tag = self.next_tag
        append, unweighed = self._runs.append, self._unweighed
        for consumer, entries in deliveries:
            count = len(entries)
            if not 0 < count <= _LONGEST:
                self.add(entries, consumer)
                tag += count
                continue
            run = TagRun(tag, entries, consumer, count)
            append(run)
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
        at, i = self._runs.locate(tag)
        if i < 0:
            return None
        block = self._runs.blocks[at]
        run = block.runs[i]
        slot = tag - run.first
        if slot >= len(run.entries):
            return None
        entry = run.entries[slot]
        if entry is None:
            return None
        block.copies = None
        run.count -= 1
        self.count -= 1
        self._bytes -= run.each
        if not run.count:
            run.entries = []
            self._runs.remove(at, i, i + 1)
        elif slot:
            run.entries[slot] = None
            self._shrink(at, i, run)
        else:
            del run.entries[0]
            run.first = block.firsts[i] = tag + 1
            if run.count != len(run.entries):
                self._shrink(at, i, run)
        return tag, [entry], run.consumer

    def take_each(self, tags: list[int]) -> list[Stretch]:
        """Remove and return the deliveries with these tags, in their order, up to the first tag that is unknown."""
        taken: list[Stretch] = []
        begin = 0
        while begin < len(tags):
            tag = tags[begin]
            at, i = self._runs.locate(tag)
            run = self._run_at(at, i)
            most = 1
            if run is not None and run.first == tag and run.count == len(run.entries):
                most = min(run.count, len(tags) - begin)
                if most == 1 or tags[begin : begin + most] == list(range(tag, tag + most)):
                    taken.append(self._take_front(at, i, run, most))
                    begin += most
                    continue
            for tag in tags[begin : begin + most]:
                one = self.take(tag)
                if one is None:
                    return taken
                taken.append(one)
            begin += most
        return taken

    def take_through(self, tag: int) -> list[Stretch]:
        """Remove and return all deliveries up to this tag (0: all); nothing if it is unknown."""
        if tag == 0:
            return self.clear()
        at, i = self._runs.locate(tag)
        run = self._run_at(at, i)
        if run is None or tag - run.first >= len(run.entries) or run.entries[tag - run.first] is None:
            return []
        if at == i == 0 and run.count == len(run.entries):  # usually the tag is in the first run
            return [self._take_front(0, 0, run, tag - run.first + 1)]
        return self.take_between(self._runs.blocks[0].firsts[0], tag)

    def take_some(self, most: int) -> list[tuple[Consumer, list[Entry]]]:
        """Remove and return the first deliveries, at most `most` of them, by consumer."""
        taken = self.take_through(self.reach(self.last_tag, most)) if most < self.count else self.clear()
        return [*entries_by_consumer(taken).items()]

    def take_between(self, first: int, last: int) -> list[Stretch]:
        """Remove and return the deliveries with tags from `first` to `last`; tags without a delivery are skipped."""
        taken: list[Stretch] = []
        runs = self._runs
        while first <= last:
            at, i = runs.locate(first)
            run = self._run_at(at, i)
            if run is None or run.first + len(run.entries) <= first:  # go on with the next run
                following = self._after(at, i)
                if following is None or following > last:
                    break
                first = following
                continue
            block = runs.blocks[at]
            if first <= run.first:
                end = bisect_right(block.firsts, last)
                behind = block.runs[end - 1].first + len(block.runs[end - 1].entries)
                if behind <= last + 1 or end > i + 1:
                    if behind > last + 1:
                        end -= 1
                        behind = block.firsts[end]
                    first = behind
                    self._take_runs(at, i, end, taken)
                    continue
            begin, end = max(first - run.first, 0), min(last + 1 - run.first, len(run.entries))
            first = run.first + len(run.entries)
            if begin == 0 and run.count == len(run.entries):
                taken.append(self._take_front(at, i, run, end))
                continue
            found = list(run.stretches(begin, end))
            count = sum([len(entries) for _, entries, _ in found])
            if count:
                block.copies = None
                run.entries[begin:end] = [None] * (end - begin)
                run.count -= count
                self.count -= count
                self._bytes -= count * run.each
                taken += found
                self._shrink(at, i, run)
        return taken

    def _after(self, at: int, i: int) -> int | None:
        """Return the first tag of the run that follows run number `i` of block number `at`."""
        blocks = self._runs.blocks
        if i + 1 < len(blocks[at].runs):
            return blocks[at].firsts[i + 1]
        return blocks[at + 1].firsts[0] if at + 1 < len(blocks) else None

    def clear(self) -> list[Stretch]:
        """Remove and return everything, in order."""
        taken: list[Stretch] = []
        while self.count:
            self._take_runs(0, 0, len(self._runs.blocks[0].runs), taken)
        self._bytes = 0
        self._unweighed.clear()
        return taken

    def _take_runs(self, at: int, begin: int, end: int, taken: list[Stretch]) -> None:
        """Move the runs from number `begin` to `end` of block number `at` to `taken`."""
        for run in self._runs.blocks[at].runs[begin:end]:
            count = run.count
            self.count -= count
            self._bytes -= count * run.each
            if count == len(run.entries):
                taken.append((run.first, run.entries, run.consumer))
            else:
                taken += run.stretches(0, len(run.entries))
            run.entries, run.count = [], 0
        self._runs.remove(at, begin, end)

    def _take_front(self, at: int, i: int, run: TagRun, count: int) -> Stretch:
        """Remove and return the first `count` entries of a run without holes."""
        first, found = run.first, run.entries
        self.count -= count
        self._bytes -= count * run.each
        run.count -= count
        if run.count:
            found = found[:count]
            del run.entries[:count]
            block = self._runs.blocks[at]
            block.copies = None
            run.first = block.firsts[i] = first + count
        else:
            run.entries = []  # it may be among those that have to be weighed
            self._runs.remove(at, i, i + 1)
        return first, found, run.consumer

    # -- restoring

    def restore(self, consumer: Consumer, tags: Sequence[int], entries: Sequence[Entry]) -> None:
        """Put deliveries back under their old tags (TX-4). The cost grows with their number, not with `count`."""
        begin, last = 0, len(tags) - 1
        if last > _LONGEST and tags[last] - tags[0] == last and tags == [*range(tags[0], tags[0] + last + 1)]:
            for begin in range(0, last + 1, _LONGEST):  # many are usually consecutive
                self._put_back(tags[begin], [*entries[begin : begin + _LONGEST]], consumer)
            return
        for i, tag in enumerate(tags):
            if i == last or tags[i + 1] != tag + 1 or i - begin == _LONGEST - 1:
                self._put_back(tags[begin], [*entries[begin : i + 1]], consumer)
                begin = i + 1

    def _put_back(self, first: int, entries: list[Entry], consumer: Consumer) -> None:
        """Put back deliveries with consecutive tags, which may belong to several runs."""
        while entries:
            at, i = self._runs.locate(first)
            following = self._after(at, i)
            count = len(entries) if following is None else min(len(entries), following - first)
            self._put_back_at(at, i, first, entries[:count], consumer)
            first += count
            del entries[:count]

    def _put_back_at(self, at: int, i: int, first: int, entries: list[Entry], consumer: Consumer) -> None:
        """Put back deliveries whose tags lie after the first tag of run number `i` of block number `at` and before the
        next run.
        """
        count = len(entries)
        self.count += count
        run = self._run_at(at, i)
        if run is not None and first - run.first + count <= len(run.entries):
            self._runs.blocks[at].copies = None
            run.entries[first - run.first : first - run.first + count] = entries
            run.count += count
            self._bytes += count * run.each
            return
        back = TagRun(first, entries, consumer, count, size_of_one(entries))
        self._bytes += count * back.each
        self._runs.insert(at, i + 1, back)

    # -- keeping memory in proportion

    def _shrink(self, at: int, i: int, run: TagRun) -> None:
        """Drop, trim or divide run number `i` of block number `at`, from which deliveries were removed."""
        entries = run.entries
        if not run.count:
            run.entries = []
            self._runs.remove(at, i, i + 1)
            return
        while entries[-1] is None:
            entries.pop()
        holes = 0
        while entries[holes] is None:
            holes += 1
        if holes:
            del entries[:holes]
            run.first += holes
            self._runs.blocks[at].firsts[i] = run.first
        if len(entries) > max(_SHORT, 4 * run.count):
            if not run.each:
                self._weigh()
            found = run.stretches(0, len(entries))
            parts = [TagRun(first, some, consumer, len(some), run.each) for first, some, consumer in found]
            self._runs.replace(at, i, parts)


def _copies_of(block: RunBlock) -> list[tuple[Consumer, list[Entry]]]:
    return [(run.consumer, run.living()) for run in block.runs]


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

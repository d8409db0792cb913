"""Runs of deliveries with consecutive tags, in order of their tags, and their order in blocks.

A block has a bounded number of runs, so that finding, adding and removing one costs about the same however many there
are, and no step moves or frees all of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer

Stretch = tuple[int, "list[Entry]", "Consumer"]
"""Deliveries of one consumer with consecutive tags: the first tag, the entries, the consumer."""

BLOCK: Final = 512
"""Runs in a block. One with twice as many is divided."""


class TagRun:
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


class RunBlock:
    """Consecutive runs, and their first tags. `consumers` has those of all runs that were ever in it. `copies` are
    those of the runs as they are now, for a snapshot, or None; each change of the block or of a run in it drops them.
    """

    __slots__ = ("consumers", "copies", "firsts", "runs")

    def __init__(self, runs: list[TagRun]) -> None:
        self.copies: list[tuple[Consumer, list[Entry]]] | None = None
        self.runs = runs
        self.firsts = [run.first for run in runs]
        self.consumers: dict[Consumer, None] = dict.fromkeys([run.consumer for run in runs])


class Runs:
    """The runs of one channel or link. `blocks` is never empty, and of its blocks only the first one may be."""

    __slots__ = ("_starts", "blocks")

    def __init__(self) -> None:
        self.blocks = [RunBlock([])]
        self._starts = [0]  # for each block, a tag between the last one of the block before and its first one

    def __iter__(self) -> Iterator[TagRun]:
        for block in self.blocks:
            yield from block.runs

    def from_tag(self, tag: int) -> Iterator[TagRun]:
        """Yield the runs in order, from the one that has `tag` or precedes it."""
        at, i = self.locate(tag)
        runs = self.blocks[at].runs
        for number in range(max(i, 0), len(runs)):
            yield runs[number]
        for number in range(at + 1, len(self.blocks)):
            yield from self.blocks[number].runs

    def consumers(self) -> dict[Consumer, None]:
        """Return the consumers of all runs, and perhaps some of former ones."""
        if len(self.blocks) == 1:
            return self.blocks[0].consumers
        found: dict[Consumer, None] = {}
        for block in self.blocks:
            found.update(block.consumers)
        return found

    def locate(self, tag: int) -> tuple[int, int]:
        """Return the number of the block where `tag` belongs, and the number of the last run in it whose first tag is
        at most `tag`: -1 if there is none.
        """
        at = bisect_right(self._starts, tag) - 1 if len(self.blocks) > 1 else 0
        return at, bisect_right(self.blocks[at].firsts, tag) - 1

    def append(self, run: TagRun) -> None:
        """Add a run behind all others."""
        block = self.blocks[-1]
        if len(block.runs) >= BLOCK:
            block = RunBlock([])
            self.blocks.append(block)
            self._starts.append(run.first)
        block.copies = None
        block.runs.append(run)
        block.firsts.append(run.first)
        block.consumers[run.consumer] = None

    def insert(self, at: int, i: int, run: TagRun) -> None:
        """Add a run as number `i` of block number `at`."""
        block = self.blocks[at]
        block.copies = None
        block.runs.insert(i, run)
        block.firsts.insert(i, run.first)
        block.consumers[run.consumer] = None
        self._divide(at)

    def replace(self, at: int, i: int, parts: list[TagRun]) -> None:
        """Replace run number `i` of block number `at`."""
        block = self.blocks[at]
        block.copies = None
        block.runs[i : i + 1] = parts
        block.firsts[i : i + 1] = [part.first for part in parts]
        self._divide(at)

    def remove(self, at: int, begin: int, end: int) -> None:
        """Remove the runs from number `begin` to `end` of block number `at`."""
        block = self.blocks[at]
        block.copies = None
        del block.runs[begin:end], block.firsts[begin:end]
        if block.runs:
            return
        if len(self.blocks) == 1:
            block.consumers.clear()
            return
        del self.blocks[at], self._starts[at]
        self._starts[0] = 0

    def _divide(self, at: int) -> None:
        runs = self.blocks[at].runs
        if len(runs) < 2 * BLOCK:
            return
        parts = [RunBlock(runs[begin : begin + BLOCK]) for begin in range(0, len(runs), BLOCK)]
        self.blocks[at : at + 1] = parts
        self._starts[at : at + 1] = [self._starts[at], *[part.firsts[0] for part in parts[1:]]]

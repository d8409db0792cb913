"""Names in order, in blocks: a new name moves only those of its block, and those behind any name are found at once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from itertools import chain, islice
from typing import Final

BLOCK: Final = 1000
"""Names in a block, at most."""


class SortedNames:
    """A set of names that can be read in order."""

    __slots__ = ("_blocks", "_firsts")

    def __init__(self) -> None:
        self._blocks: list[list[str]] = []  # none is empty
        self._firsts: list[str] = []  # the first name of each, or one that was removed from its beginning

    def _at(self, name: str) -> int:
        """The number of the block in which a name belongs."""
        return max(bisect_right(self._firsts, name) - 1, 0)

    def add(self, name: str) -> None:
        """Add a name that is not in the set."""
        if not self._blocks:
            self._blocks.append([name])
            self._firsts.append(name)
            return
        at = self._at(name)
        block = self._blocks[at]
        insort(block, name)
        self._firsts[at] = min(self._firsts[at], name)
        if len(block) > BLOCK:
            half = block[BLOCK // 2 :]
            del block[BLOCK // 2 :]
            self._blocks.insert(at + 1, half)
            self._firsts.insert(at + 1, half[0])

    def remove(self, name: str) -> None:
        """Remove a name. Raises KeyError if it is not in the set."""
        at = self._at(name)
        block = self._blocks[at] if self._blocks else []
        i = bisect_left(block, name)
        if i == len(block) or block[i] != name:
            raise KeyError(name)
        del block[i]
        if not block:
            del self._blocks[at], self._firsts[at]

    def behind(self, name: str, most: int) -> list[str]:
        """Return the next names behind `name`, at most `most`."""
        if not self._blocks:
            return []
        at = self._at(name)
        blocks = islice(self._blocks, at, None)
        begin = bisect_right(self._blocks[at], name)
        return list(islice(chain.from_iterable(blocks), begin, begin + most))

"""The settled positions of a cursor: all before a floor, and ranges above it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class Settled:
    """Every position before `floor` is settled. The position `floor` itself is not."""

    __slots__ = ("_ends", "_firsts", "floor")

    def __init__(self, floor: int = 1) -> None:
        self.floor = floor
        self._firsts: list[int] = []
        self._ends: list[int] = []

    def __contains__(self, position: int) -> bool:
        if position < self.floor:
            return True
        i = bisect_right(self._firsts, position) - 1
        return i >= 0 and position < self._ends[i]

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges above the floor: first positions, and numbers of positions."""
        if not self._firsts:
            return []
        return [(first, end - first) for first, end in zip(self._firsts, self._ends, strict=True)]

    @property
    def end(self) -> int:
        """The position after the last settled one."""
        return self._ends[-1] if self._ends else self.floor

    def first_open(self, position: int) -> int:
        """Return the first position at `position` or later that is not settled."""
        if position < self.floor:
            return self.floor
        i = bisect_right(self._firsts, position) - 1
        return max(position, self._ends[i]) if i >= 0 else position

    def add(self, first: int, length: int) -> None:
        """Settle `length` positions from `first` on. Some of them may be settled already."""
        end = first + length
        if first <= self.floor:
            self.raise_to(end)
            return
        firsts, ends = self._firsts, self._ends
        i = bisect_right(firsts, first)
        if i and ends[i - 1] >= first:
            i -= 1
            first = firsts[i]
        j = bisect_right(firsts, end)
        if j > i:
            end = max(end, ends[j - 1])
        firsts[i:j] = [first]
        ends[i:j] = [end]

    def add_all(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Do `add` for each range."""
        for first, length in ranges:
            self.add(first, length)

    def raise_to(self, floor: int) -> None:
        """Settle everything before `floor`. A floor that is lower than before has no effect."""
        if floor <= self.floor:
            return
        i = bisect_right(self._firsts, floor)
        if i and self._ends[i - 1] > floor:
            floor = self._ends[i - 1]
        del self._firsts[:i], self._ends[:i]
        self.floor = floor

    def would_be(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Return the floor after these ranges, which are in order, have been added."""
        floor = self.floor
        for first, length in ranges:
            if self.first_open(floor) < first:
                break
            floor = max(floor, first + length)
        return self.first_open(floor)

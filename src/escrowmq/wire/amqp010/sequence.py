"""Numbers of commands: 32 bits on the wire, compared as RFC 1982 does, and counting without end in the broker."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from escrowmq.core.conditions import BrokerError, Condition

if TYPE_CHECKING:
    from escrowmq.wire.amqp010.codec.types import Ranges

MASK: Final = 0xFFFFFFFF
_HALF: Final = 0x80000000
LONGEST: Final = 0x40000000
"""The most numbers that one range on the wire spans, so that its ends can be compared."""


def unwrapped(number: int, near: int) -> int:
    """Return the count whose last 32 bits are `number`, next to the count `near`. It may be negative."""
    return near + ((number - near + _HALF) & MASK) - _HALF


def counted(ranges: Ranges, near: int) -> list[tuple[int, int]]:
    """Return the ranges as counts next to `near`, in their order. Raises INVALID_ARGUMENT if one ends before it
    begins.
    """
    found = []
    for lower, upper in ranges:
        first = unwrapped(lower, near)
        last = unwrapped(upper, first)
        if last < first:
            raise BrokerError(Condition.INVALID_ARGUMENT, f"the range of commands from {lower} to {upper} is empty")
        found.append((first, last))
    return found


def wire_ranges(ranges: list[tuple[int, int]]) -> Ranges:
    """Return the ranges as they are sent. Of a range that is too long to be compared, the last part is sent."""
    return tuple((max(first, last - LONGEST) & MASK, last & MASK) for first, last in ranges)


class Numbers:
    """A set of counts, as disjoint ranges in ascending order. Adding behind the last range is cheap."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self._ranges)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self._ranges, (number + 1,))
        return at > 0 and self._ranges[at - 1][1] >= number

    def add(self, first: int, last: int) -> list[tuple[int, int]]:
        """Add the counts from `first` to `last`. Return the ranges of those that were not in the set."""
        ranges = self._ranges
        if ranges and ranges[-1][1] == first - 1:
            ranges[-1] = (ranges[-1][0], last)
            return [(first, last)]
        at = bisect_left(ranges, (first,))
        if at and ranges[at - 1][1] >= first - 1:
            at -= 1
        behind, begin, end, missing = at, first, last, first
        new = []
        while behind < len(ranges) and ranges[behind][0] <= last + 1:
            lower, upper = ranges[behind]
            if lower > missing:
                new.append((missing, lower - 1))
            missing, begin, end = max(missing, upper + 1), min(begin, lower), max(end, upper)
            behind += 1
        if missing <= last:
            new.append((missing, last))
        ranges[at:behind] = [(begin, end)]
        return new

    def take(self) -> list[tuple[int, int]]:
        """Remove and return all ranges."""
        ranges, self._ranges = self._ranges, []
        return ranges

"""References to messages in records: positions in queues, and addresses of blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

TRANSIENT: Final = 1 << 31
"""A flag in the start of a reference whose content does not survive a restart (it is in a PAGE record)."""


class Target(NamedTuple):
    """A target of a run: the queue, and the position of the run's first message there."""

    queue: int
    first: int


class Reference(NamedTuple):
    """Messages of a queue that are in one block: positions `first`…, numbers `start`… of the block at `lsn`."""

    first: int
    length: int
    lsn: int
    start: int


class Range(NamedTuple):
    """`length` positions, beginning with `first`."""

    first: int
    length: int


def merged(ranges: Iterable[tuple[int, int]]) -> list[Range]:
    """Return the ranges in order; ranges that touch or overlap become one."""
    found: list[Range] = []
    for first, count in sorted(ranges):
        if found and first <= found[-1].first + found[-1].length:
            last = found[-1]
            found[-1] = Range(last.first, max(last.length, first + count - last.first))
        else:
            found.append(Range(first, count))
    return found


def ranges_of(positions: Iterable[int]) -> list[Range]:
    """Return sorted positions as ranges without gaps."""
    ordered = sorted(positions)
    if not ordered:
        return []
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return [Range(ordered[0], len(ordered))]
    ranges = []
    first = last = ordered[0]
    for position in ordered[1:]:
        if position != last + 1:
            ranges.append(Range(first, last - first + 1))
            first = position
        last = position
    ranges.append(Range(first, last - first + 1))
    return ranges

"""The state of consumer groups as records, for a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from escrowmq.core.groups.registry import set_fields
from escrowmq.core.records.changes import encode_change
from escrowmq.core.records.groups import (
    ProgressCause,
    SettledCause,
    SettledRange,
    encode_group_progress,
    encode_group_settled,
    encode_leased,
    encode_locked,
    leased_ranges,
)
from escrowmq.core.records.kinds import Kind

if TYPE_CHECKING:
    from escrowmq.core.groups.cursor import Out
    from escrowmq.core.groups.group import Group

Record = tuple[Kind, list[bytes]]


class CapturedGroup:
    """A copy of the state of a group. It has a copy of a dictionary for each cursor with messages that are out. All
    groups are copied between two turns, so what never changes is encoded later.
    """

    __slots__ = ("_cursors", "_group", "_locks", "_number", "_options")

    def __init__(self, group: Group) -> None:
        self._number = group.number
        self._group = group
        self._options = group.options
        self._cursors = [
            (stream, cursor.floor, cursor.settled.ranges(), cursor.out.copy() if cursor.out else {})
            for stream, cursor in group.cursors.items()
        ]
        self._locks = list(group.locks.items()) if group.locks else []

    def records(self) -> Iterator[Record]:
        """Return the records that rebuild the group."""
        yield Kind.GROUP_SET, [encode_change(**set_fields(self._group, self._options))]
        number = self._number
        for stream, floor, settled, out in self._cursors:
            yield Kind.GROUP_PROGRESS, [encode_group_progress(number, stream, ProgressCause.RESET, floor)]
            if settled:
                ranges = [SettledRange(first, length, 0) for first, length in settled]
                yield Kind.GROUP_SETTLED, [encode_group_settled(number, stream, SettledCause.HANDLED, floor, ranges)]
            for (generation, due), attempts in _by_lease(out).items():
                yield (
                    Kind.GROUP_LEASED,
                    [encode_leased(number, stream, generation, due, leased_ranges(attempts))],
                )
        for stream, lock in self._locks:
            yield Kind.GROUP_LOCKED, [encode_locked(number, stream, lock.until, lock.owner)]


def _by_lease(out: dict[int, Out]) -> dict[tuple[int, int], dict[int, int]]:
    """Return the attempts by position, for each generation and end of a lease."""
    found: dict[tuple[int, int], dict[int, int]] = {}
    for position, (due, attempts, generation) in out.items():
        found.setdefault((generation, due), {})[position] = attempts
    return found


def captured(groups: Iterable[Group]) -> list[CapturedGroup]:
    """Return copies of groups."""
    return [CapturedGroup(group) for group in groups]

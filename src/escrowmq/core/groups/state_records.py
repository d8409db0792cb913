"""The state of consumer groups as records, for a snapshot. It is copied in pieces, with turns in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from escrowmq.core.groups.group import Group
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
    from escrowmq.core.groups.cursor import Cursor, Out
    from escrowmq.core.groups.registry import Groups

Record = tuple[Kind, list[bytes]]
_COPIED: Final = 4  # looks at a cursor that cost as much as its copy
_ITEMS: Final = 16  # locks, ranges or leases whose copy costs as much as a look


class CapturedGroup:
    """A copy of a group without its cursors. `cost` is that of the copy, in looks at a cursor."""

    __slots__ = ("_group", "_locks", "_options", "cost")

    def __init__(self, group: Group) -> None:
        self._group = group
        self._options = group.options
        self._locks = list(group.locks.items()) if group.locks else []
        self.cost = _COPIED + len(self._locks) // _ITEMS

    def records(self) -> Iterator[Record]:
        """Return the records that rebuild the group."""
        yield Kind.GROUP_SET, [encode_change(**set_fields(self._group, self._options))]
        for stream, lock in self._locks:
            yield Kind.GROUP_LOCKED, [encode_locked(self._group.number, stream, lock.until, lock.owner)]


class CapturedCursor:
    """A copy of a cursor. `cost` is that of the copy, in looks at a cursor."""

    __slots__ = ("_cursor", "_floor", "_out", "_settled", "cost")

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._floor = cursor.floor
        self._settled = cursor.settled.ranges()
        self._out = cursor.out.copy() if cursor.out else {}
        self.cost = _COPIED + (len(self._settled) + len(self._out)) // _ITEMS

    def records(self) -> Iterator[Record]:
        """Return the records that rebuild the cursor, after those of its group."""
        number, stream, floor = self._cursor.group.number, self._cursor.stream.ident, self._floor
        yield Kind.GROUP_PROGRESS, [encode_group_progress(number, stream, ProgressCause.RESET, floor)]
        if self._settled:
            ranges = [SettledRange(first, length, 0) for first, length in self._settled]
            yield Kind.GROUP_SETTLED, [encode_group_settled(number, stream, SettledCause.HANDLED, floor, ranges)]
        for (generation, due), attempts in _by_lease(self._out).items():
            yield Kind.GROUP_LEASED, [encode_leased(number, stream, generation, due, leased_ranges(attempts))]


def _by_lease(out: dict[int, Out]) -> dict[tuple[int, int], dict[int, int]]:
    """Return the attempts by position, for each generation and end of a lease."""
    found: dict[tuple[int, int], dict[int, int]] = {}
    for position, (due, attempts, generation) in out.items():
        found.setdefault((generation, due), {})[position] = attempts
    return found


class GroupCaptures:
    """Copies of all groups and cursors. What changes after it was copied is copied again; nothing else is looked at
    twice, since a broker may have very many cursors.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._copies: dict[Group, CapturedGroup] = {}
        self._cursors: dict[Cursor, CapturedCursor] = {}
        groups.changes.seen = None

    def outdated(self) -> Sequence[Group | Cursor]:
        """Return everything when called first, and then what has changed since it was called last."""
        changes = self._groups.changes
        seen, changes.seen = changes.seen, {}
        if seen is not None:
            return list(seen)
        every = list(self._groups.every())
        return [*every, *chain.from_iterable([group.cursors.values() for group in every])]

    def take(self, changed: Group | Cursor) -> int:
        """Copy a group or cursor, or forget the copy of one that is gone. Return the cost."""
        if isinstance(changed, Group):
            if changed.deleted:
                self._copies.pop(changed, None)
                return 1
            self._copies[changed] = copy = CapturedGroup(changed)
            return copy.cost
        if changed.group.cursors.get(changed.stream.ident) is not changed:
            self._cursors.pop(changed, None)
            return 1
        self._cursors[changed] = taken = CapturedCursor(changed)
        return taken.cost

    def finish(self) -> Iterator[Record]:
        """Return the records of all copies, which are encoded as they are iterated, on any thread. The caller has made
        sure that none is outdated.
        """
        self._groups.changes.seen = None
        groups = chain.from_iterable(copy.records() for copy in self._copies.values())
        return chain(groups, chain.from_iterable(copy.records() for copy in self._cursors.values()))

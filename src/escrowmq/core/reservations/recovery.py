"""Recovery of reservations: the groups that a queue's messages belong to, and the messages' numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.records.references import Reference, merged
from escrowmq.core.records.reservations import Held, HeldRange, Released
from escrowmq.core.reservations.reservation import Reservation

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue


class _Group:
    """One group as found in the records: the settled numbers, and the messages that it holds from number `first` on."""

    __slots__ = ("end", "first", "holder", "ranges", "settled")

    def __init__(self, settled: int, first: int) -> None:
        self.settled = settled
        self.first = self.end = first
        self.ranges: list[HeldRange] = []
        self.holder = ""


class FoundReservations:
    """The reservations of one queue as found in the records."""

    __slots__ = ("_copies", "_groups")

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._copies: list[Reference] = []

    # -- while records are applied

    def held(self, held: Held) -> int:
        """Apply a HELD record. Return the position after the last one that it names."""
        group = self._groups.get(held.group)
        if group is None:
            group = self._groups[held.group] = _Group(held.settled, held.first)
        group.holder = held.user
        group.ranges += held.ranges
        group.end += sum([each.length for each in held.ranges])
        self._copies += held.copies
        return max((first + length for first, length, _ in held.ranges), default=0)

    def released(self, released: Released) -> dict[int, int]:
        """Apply a RELEASED record. Return, by position, the delivery counts above 1 of the returned messages."""
        group = self._groups[released.group]
        back: dict[int, int] = {}
        while group.first < released.first:
            first, length, deliveries = group.ranges[0]
            taken = min(length, released.first - group.first)
            if deliveries and released.settled < released.first:
                back.update(dict.fromkeys(range(first, first + taken), deliveries + 1))
            group.first += taken
            if taken == length:
                del group.ranges[0]
            else:
                group.ranges[0] = HeldRange(first + taken, length - taken, deliveries)
        group.settled = released.settled
        return back

    # -- at the end

    def complete(self, references: Backlog) -> None:
        """Add references to content that was written when it was reserved to `references`."""
        if self._copies:
            whole = Backlog()
            for reference in sorted([*references, *self._copies]):
                whole.append(*reference)
            references.replace(whole)

    def restore(self, queue: Queue, references: Backlog, now_ms: int) -> None:
        """Restore the reservations of `queue`, whose messages then count as reserved at `now_ms`. Remove their messages
        from `references`, which hold all of its messages.
        """
        held: list[tuple[int, int]] = []
        for name, group in self._groups.items():
            reservation = queue.reservations[name] = Reservation(queue, name, group.settled, group.first, group.holder)
            reservation.note_time(now_ms)
            for first, length, deliveries in group.ranges:
                held.append((first, length))
                found = Backlog.of(*references.within(first, length))
                if len(found):
                    reservation.add(found, deliveries)
            if reservation.end != group.end:
                raise AssertionError(f"{reservation}, but its records say that it goes to {group.end}")
        if held:
            references.remove(merged(held))

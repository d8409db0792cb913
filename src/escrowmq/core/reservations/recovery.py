"""Recovery of holds: which of a queue's messages belong to which group, and under which numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.records.references import Reference, merged
from escrowmq.core.records.reservations import Held, HeldRange, Released
from escrowmq.core.reservations.reservation import Reservation

if TYPE_CHECKING:
    from escrowmq.core.queues.queue import Queue


class _Group:
    """What the records say of one group: numbers that are settled, and what it holds from number `first` on."""

    __slots__ = ("end", "first", "ranges", "settled")

    def __init__(self, settled: int, first: int) -> None:
        self.settled = settled
        self.first = self.end = first
        self.ranges: list[HeldRange] = []


class FoundReservations:
    """What the records say of the holds of one queue."""

    __slots__ = ("_copies", "_groups")

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._copies: list[Reference] = []

    # -- while records are applied

    def held(self, held: Held) -> int:
        """A HELD record; the position behind the last one that it names."""
        group = self._groups.get(held.group)
        if group is None:
            group = self._groups[held.group] = _Group(held.settled, held.first)
        group.ranges += held.ranges
        group.end += sum([each.length for each in held.ranges])
        self._copies += held.copies
        return max((first + length for first, length, _ in held.ranges), default=0)

    def released(self, released: Released) -> dict[int, int]:
        """A RELEASED record; how often what has come back to the queue was delivered, where that was more than once."""
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
        """Add content to `references` that was written when it was held."""
        if self._copies:
            whole = Backlog()
            for reference in sorted([*references, *self._copies]):
                whole.append(*reference)
            references.replace(whole)

    def restore(self, queue: Queue, references: Backlog) -> None:
        """Give `queue` its holds; take what they hold out of `references`, which are all that it has."""
        held: list[tuple[int, int]] = []
        for name, group in self._groups.items():
            reservation = queue.reservations[name] = Reservation(queue, name, group.settled, group.first)
            for first, length, deliveries in group.ranges:
                held.append((first, length))
                found = Backlog.of(*references.within(first, length))
                if len(found):
                    reservation.add(found, deliveries)
            if reservation.end != group.end:
                raise AssertionError(f"{reservation}, but its records say that it goes to {group.end}")
        if held:
            references.remove(merged(held))

"""The settled deliveries of a branch that was undone, on their way back to their queues (`core.queues.returning`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from escrowmq.core.queues.returning import part_of

if TYPE_CHECKING:
    from escrowmq.core.branches.branch import Settlement
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer
    from escrowmq.core.queues.returning import Deliveries


class Undone:
    """The deliveries of settlements, in order. The list of settlements belongs to this object from now on. They are
    freed as their deliveries are taken, so no step frees many.
    """

    __slots__ = ("_settlements",)

    def __init__(self, settlements: list[Settlement]) -> None:
        settlements.reverse()
        self._settlements = settlements

    def __bool__(self) -> bool:
        return bool(self._settlements)

    def take_some(self, most: int) -> Deliveries:
        """See `Returnable.take_some`."""
        groups: dict[Consumer, list[Entry]] = {}
        while self._settlements and most > 0:
            settlement = self._settlements[-1]
            some = settlement.take_front(most)
            groups.setdefault(settlement.consumer, []).extend(some)
            if not settlement.entries:
                self._settlements.pop()
            most -= max(len(some), 1)
        return [*groups.items()]

    def copies(self) -> Deliveries:
        """See `Returnable.copies`."""
        return [(settlement.consumer, settlement.entries.copy()) for settlement in reversed(self._settlements)]

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """See `Returnable.copy_ahead`. Nothing is copied in advance."""
        del at, most
        return 1, 0

    def part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """See `Returnable.part`."""
        settled = ((settlement.consumer, settlement.entries) for settlement in reversed(self._settlements))
        return part_of(settled, start, most)

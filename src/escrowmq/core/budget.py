"""The work that one turn may do for queues, so that no turn keeps clients waiting for long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry

TURN: Final = 1000
QUEUE: Final = 3  # a visit to a queue, with the records that it leads to
LOAD: Final = 3  # a block loaded from the log
LOADED_BYTES: Final = 16 * 1024  # bytes of such a block that cost as much as a unit of work
_HANDOVER: Final = 1
_ALIKE: Final = 4


class Budget:
    """Work that is left in this turn, in units of about 4 microseconds. Work is counted and not clocked, so that the
    same calls always divide into the same turns.

    An entry costs 1 where it is delivered and settled, or a quarter of that among entries of its own run. The last
    piece of a turn may overdraw the budget.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = TURN

    def renew(self) -> None:
        """A turn's deliveries begin."""
        self.left = TURN

    def charge(self, entries: list[Entry]) -> None:
        """`entries`, at least one, are handed to a consumer. The two in the middle tell whether runs are long."""
        size = len(entries)
        middle = size >> 1
        alike = entries[middle].run is entries[middle - 1].run
        self.left -= _HANDOVER + (size // _ALIKE if alike else size)

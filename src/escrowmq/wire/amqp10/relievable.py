"""What the memory of a connection's work has in common that can be taken back, and that is not in deliveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.consumer import Consumer


class WithoutDeliveries:
    """A holder (`core.ports.Holder`) of memory that can be taken back (`server.relief.MemoryOwner`), but of no
    deliveries.
    """

    __slots__ = ()

    @property
    def next_tag(self) -> int:
        """0: no part of it is taken back alone."""
        return 0

    def held(self) -> list[tuple[Consumer, list[Entry]]]:
        """Return nothing: there are no deliveries."""
        return []

    def copy_ahead(self, at: int, most: int) -> tuple[int, int]:
        """See `Holder.copy_ahead`. There is nothing to copy."""
        del at, most
        return 1, 0

    def held_part(self, start: int, most: int) -> list[tuple[Consumer, Entry]]:
        """Return nothing, likewise."""
        del start, most
        return []

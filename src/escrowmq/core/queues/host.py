"""The part of the broker that a queue needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from escrowmq.core.budget import Budget
    from escrowmq.core.deadlines import Deadlines
    from escrowmq.core.leftover import LeftOver
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.availability import Unavailable
    from escrowmq.core.queues.delivery_log import Deliveries
    from escrowmq.core.queues.discipline import Pager
    from escrowmq.core.queues.outcome import Outcome
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.settlement import Settlements
    from escrowmq.core.records.references import Reference


class Host(Protocol):
    """The part of the broker that a queue needs."""

    now: int
    budget: Budget
    deadlines: Deadlines
    log: Log
    settlements: Settlements
    deliveries: Deliveries | None
    pager: Pager
    resident_limit: int
    dirty: dict[Queue, None]
    uncaptured: dict[Queue, None] | None
    promised: dict[Queue, tuple[int, int]]
    unavailable: Unavailable
    left_over: LeftOver

    def dead_letter(self, queue: Queue, entries: list[Entry], outcome: Outcome) -> None:
        """Dead-letter entries that leave `queue`, if the queue has a dead-letter exchange."""
        ...

    def forget(self, queue: Queue, references: list[Reference], outcome: Outcome) -> None:
        """Note that the messages of `references` have left `queue` for good."""
        ...

"""The part of the broker that a queue needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from escrowmq.core.budget import Budget
    from escrowmq.core.deadlines import Deadlines
    from escrowmq.core.leftover import LeftOver
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.availability import Unavailable
    from escrowmq.core.queues.dead_letters import DeadLetters
    from escrowmq.core.queues.delivery_log import Deliveries
    from escrowmq.core.queues.discipline import Pager
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.removals import Removals
    from escrowmq.core.queues.settlement import Settlements
    from escrowmq.core.watch import ChangeWatch


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
    watches: list[ChangeWatch[Queue]]
    promised: dict[Queue, tuple[int, int]]
    unavailable: Unavailable
    left_over: LeftOver
    dead_letters: DeadLetters
    removals: Removals

"""The row of a queue in lists, and the two parts from which it is made: what never changes, and what may.

`variable_part` has everything that a row shows of a queue that changes. Two equal parts therefore mean two equal rows,
on which `admin.changes` relies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from escrowmq.admin.operation import Row
from escrowmq.admin.policies import effective_row
from escrowmq.core.counters import arrived
from escrowmq.core.policies.merging import Effective
from escrowmq.core.queues.queue import Queue

COUNTERS: Final = (
    "arrived",
    "delivered",
    "auto_settled",
    "fetched",
    "auto_fetched",
    "redelivered",
    "requeued",
    "acknowledged",
)
"""What happened to the messages of a queue, at the end of its variable part."""


def fixed_part(queue: Queue) -> Row:
    """Return the fields of a queue's row that stay the same until the queue is deleted."""
    return {
        "vhost": queue.vhost,
        "name": queue.name,
        "type": queue.options.queue_type,
        "durable": queue.durable,
        "exclusive": queue.exclusive,
        "auto_delete": queue.auto_delete,
        "arguments": queue.arguments,
    }


def variable_part(queue: Queue, locked: int = 0, withheld: int = 0, reserved: int = 0) -> tuple[Any, ...]:
    """Return the rest of what a row shows, as plain values in the order in which `queue_row` takes them. The numbers
    are those of messages in doubt (`TransactionAdmin.by_queue`).

    A monitoring system may ask every second for 10,000 queues, and the clients' messages wait meanwhile. So this makes
    no dictionary.
    """
    counters, reservations = queue.counters, queue.reservations
    return (
        queue.ready,
        queue.unsettled,
        sum(map(len, reservations.values())) if reservations else 0,
        locked,
        withheld,
        reserved,
        len(queue.consumers),
        queue.fault,
        queue.effective,
        arrived(queue),
        counters.delivered,
        counters.auto_settled,
        counters.fetched,
        counters.auto_fetched,
        counters.redelivered,
        counters.requeued,
        counters.acknowledged,
    )


def queue_row(fixed: Mapping[str, Any], variable: Sequence[Any], *, counters: bool) -> Row:
    """Return the row of a queue, in which each message is counted once. With `counters`, it has those of messages, too.

    Branches are counted a moment before the queue, so the numbers may not fit together.
    """
    ready, unsettled, held, locked, withheld, locked_reserved, consumers, fault, effective, *counts = variable
    row = {
        **fixed,
        "ready": ready,
        "unsettled": max(unsettled - (locked - locked_reserved), 0),
        "held": max(held - locked_reserved, 0),
        "locked": locked,
        "withheld": withheld,
        "consumers": consumers,
        "unavailable": fault,
        **effective_row(None if effective is None else Effective(*effective)),
    }
    if counters:
        row["counters"] = {"unsettled": unsettled, **dict(zip(COUNTERS, counts, strict=True))}
    return row

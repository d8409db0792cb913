"""The deliveries that clients and branches hold, one by one."""

from __future__ import annotations

from collections.abc import Iterator

from escrowmq.core.messages.entry import Entry
from escrowmq.core.ports import Holder
from escrowmq.core.queues.consumer import Consumer


def each_held(holder: Holder) -> Iterator[tuple[Consumer, Entry]]:
    """Yield every delivery that `holder` holds, with its consumer."""
    for consumer, entries in holder.held():
        for entry in entries:
            yield consumer, entry

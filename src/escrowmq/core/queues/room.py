"""The room in a queue with limits (`x-max-length`, `x-max-length-bytes`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.core.messages.entry import Run
from escrowmq.core.queues.outcome import Outcome
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.host import Host
    from escrowmq.core.queues.queue import Queue

MOST: Final = 2000
MOST_BYTES: Final = 8 << 20
"""Messages that are dropped together, and bytes of their bodies, apart from the last one."""
_ALIKE: Final = 4


def has_room(queue: Queue, promised: tuple[int, int] | None, count: int, size: int) -> bool:
    """Return whether a queue has room for `count` more messages, of `size` bytes together. Messages that are not
    visible yet take room, and so do those that are `promised` to prepared branches.
    """
    most, most_bytes = queue.options.max_length, queue.options.max_length_bytes
    if promised is not None:
        count += promised[0]
        size += promised[1]
    for _, run, contents in queue.unsynced:
        count += len(contents) if isinstance(run, Run) else run.count
        size += sum(map(len, contents)) if isinstance(run, Run) else run.size
    return (most is None or len(queue.order) + count <= most) and (
        most_bytes is None or queue.bytes + size <= most_bytes
    )


def taken_over_limit(queue: Queue, host: Host) -> tuple[list[Entry], bool]:
    """Remove and return entries at the head that exceed the limits, and whether those are all of them. There are fewer
    if their dead letters go to many queues, or if a limit is new and very many exceed it.
    """
    most, most_bytes = queue.options.max_length, queue.options.max_length_bytes
    portion = None
    if queue.options.dead_letter_exchange is not None:
        portion = host.dead_letters.portion(Outcome.DROPPED)
    found: list[Entry] = []
    total = 0
    while (most is not None and len(queue.order) > most) or (
        most_bytes is not None and queue.bytes > most_bytes and len(queue.order)
    ):
        over = len(queue.order) - most if most is not None else 1
        if portion is not None:
            head = queue.head()
            if head is None:
                break
            if not portion.admits(queue, head):
                host.budget.left -= portion.places
                return found, False
            over = 1
        queue.change()
        try:
            taken = queue.order.take(min(max(over, 1), MOST - len(found)))
        except LogUnreadable as error:
            host.unavailable.suspend(queue, error)
            break
        size = queue.size_of(taken)
        queue.bytes -= size
        found += taken
        total += size
        if len(found) >= MOST or total >= MOST_BYTES:
            host.budget.left -= len(found) // _ALIKE
            return found, False
    return found, True


def drop_over_limit(queue: Queue, host: Host) -> None:
    """Drop the entries at the head that exceed the limits. If some are left for the next piece of work, the queue stays
    dirty, and exceeds its limits until then.

    This happens only at the end of a turn. Dropped entries may be dead-lettered to other queues, and a publish in this
    turn relies on the next positions of those queues.
    """
    dropped, all_of_them = taken_over_limit(queue, host)
    if dropped:
        host.dead_letters.send(queue, dropped, Outcome.DROPPED)
    if not all_of_them:
        host.dirty[queue] = None

"""The lifetime of a queue's messages (`x-message-ttl`, `expiration`), and of the queue itself (`x-expires`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import ref

from escrowmq.core.queues.outcome import Outcome

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadline
    from escrowmq.core.messages.entry import Entry
    from escrowmq.core.queues.host import Host
    from escrowmq.core.queues.queue import Queue

STEP_BYTES: Final = 1 << 20  # bytes of bodies that expire in one step
STEP: Final = 1000  # messages that expire in one step


class Lifetime:
    """The deadlines of one queue. It does not keep the queue alive: the memory of a deleted queue is free at once."""

    __slots__ = ("_expiry", "_host", "_queue", "_unused", "_used_at")

    def __init__(self, queue: Queue, host: Host) -> None:
        self._queue = ref(queue)
        self._host = host
        self._expiry: Deadline | None = None
        self._unused: Deadline | None = None
        self._used_at = host.now
        self.renew()

    # -- messages

    def arm(self) -> None:
        """Set a deadline for the entry at the head. It lies after the expiry time, so that a TTL of 0 lasts for
        a turn.
        """
        queue = self._queue()
        head = None if queue is None else queue.head()
        if head is None or not head.run.expires_at:
            return
        at = max(head.run.expires_at, self._host.now) + 1  # overdue entries expire in parts, one in each turn
        deadline = self._expiry
        if deadline is not None and deadline.action is not None and deadline.at <= at:
            return
        if deadline is not None:
            deadline.cancel()
        self._expiry = self._host.deadlines.set(at, self._expire)

    def _expire(self) -> None:
        self.expire_before(self._host.now)

    def expire_before(self, end: int) -> None:
        """Dead-letter messages at the head that expire before `end`, up to a number and a size."""
        queue = self._queue()
        if queue is None:
            return
        portion = self._host.dead_letters.portion(Outcome.EXPIRED)
        dead: list[Entry] = []
        size = 0
        head = queue.head()
        while head is not None and 0 < head.run.expires_at < end and len(dead) < STEP and size < STEP_BYTES:
            if not portion.admits(queue, head):
                break
            queue.change()
            dead += queue.order.take(1)
            size += len(head.content)
            head = queue.head()
        if dead:
            if queue.limited:
                queue.bytes -= queue.size_of(dead)
            self._host.dead_letters.send(queue, dead, Outcome.EXPIRED)
        self.arm()

    # -- the queue

    def renew(self) -> None:
        """Begin to count the time without use, if that is limited, since the limit is new."""
        queue = self._queue()
        if self._unused is not None:
            self._unused.cancel()
            self._unused = None
        if queue is not None and queue.options.expires is not None:
            self._used_at = self._host.now
            self._unused = self._host.deadlines.set(self._host.now + queue.options.expires, self._check_use)

    def touch(self) -> None:
        """Restart the queue's own expiry, since the queue is in use."""
        self._used_at = self._host.now

    def _check_use(self) -> None:
        queue = self._queue()
        if queue is None:
            return
        due = (self._host.now if queue.consumers else self._used_at) + (queue.options.expires or 0)
        if due > self._host.now:
            self._unused = self._host.deadlines.set(due, self._check_use)
        else:
            queue.delete()

    def end(self) -> None:
        """Cancel the deadlines of a deleted queue."""
        for deadline in (self._expiry, self._unused):
            if deadline is not None:
                deadline.cancel()

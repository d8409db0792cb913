"""Queues whose next messages cannot be read from the log. They keep every message, and try again (DUR-4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.conditions import BrokerError, Condition
from escrowmq.core.records.references import Range, Reference
from escrowmq.core.records.unreadable import LogUnreadable

if TYPE_CHECKING:
    from escrowmq.core.deadlines import Deadlines
    from escrowmq.core.queues.discipline import Pager
    from escrowmq.core.queues.queue import Queue

RETRY_MS: Final = 5000
"""Time between two attempts to read the messages of an unavailable queue."""


class Schedule(Protocol):
    """The part of the engine that is needed here."""

    now: int
    deadlines: Deadlines
    pager: Pager


class Unavailable:
    """The queues that are unavailable, with the reason of each.

    An unavailable queue accepts messages, but it delivers, expires and drops none. It can be purged and deleted.
    """

    __slots__ = ("_host", "_needed", "_unmeasured", "changed", "reasons")

    def __init__(self, host: Schedule) -> None:
        self._host = host
        self._unmeasured: dict[Queue, list[Range]] = {}
        self._needed: dict[Queue, list[Callable[[], None]]] = {}
        self.reasons: dict[Queue, str] = {}
        self.changed: Callable[[Queue, str], None] = _nobody
        """Called with the reason when a queue becomes unavailable, and with an empty text when that ends."""

    def suspend(self, queue: Queue, error: LogUnreadable, needed: Callable[[], None] | None = None) -> None:
        """Note that messages which `queue` needs cannot be read. They are read again after `RETRY_MS`, and with
        `needed` the queue waits until that succeeds, too. It raises LogUnreadable.
        """
        if needed is not None:
            self._needed.setdefault(queue, []).append(needed)
        if queue.fault:
            return
        queue.change()
        queue.fault = self.reasons[queue] = str(error)
        self._host.deadlines.set(self._host.now + RETRY_MS, lambda: self._retry(queue))
        self.changed(queue, queue.fault)

    def measure(self, queue: Queue, references: Iterable[Reference]) -> None:
        """Count the bytes of the messages that recovery has found in `queue`, which limits them.

        If some messages cannot be read, the queue becomes unavailable, and they are counted later.
        """
        for reference in references:
            try:
                queue.bytes += self._size(reference)
            except LogUnreadable as error:
                self._unmeasured.setdefault(queue, []).append(Range(reference.first, reference.length))
                self.suspend(queue, error)

    def _measure_rest(self, queue: Queue) -> None:
        """Count the messages that could not be counted, except those that have left. Raises LogUnreadable."""
        ranges = self._unmeasured.get(queue, [])
        while ranges:
            left = [reference for backlog in queue.order.backlogs() for reference in backlog.within(*ranges[-1])]
            queue.bytes += sum(map(self._size, left))
            ranges.pop()
        self._unmeasured.pop(queue, None)

    def _size(self, reference: Reference) -> int:
        return sum(map(len, self._host.pager.load(reference).contents))

    def forget(self, queue: Queue) -> None:
        """Forget a deleted queue."""
        self.reasons.pop(queue, None)
        self._unmeasured.pop(queue, None)
        self._needed.pop(queue, None)

    def _retry(self, queue: Queue) -> None:
        if queue.deleted:
            return
        try:
            for needed in self._needed.get(queue, ()):
                needed()
            self._measure_rest(queue)
            queue.probe()
        except LogUnreadable:
            self._host.deadlines.set(self._host.now + RETRY_MS, lambda: self._retry(queue))
            return
        self._needed.pop(queue, None)
        del self.reasons[queue]
        queue.resume()
        self.changed(queue, "")


def unavailable(queue: Queue, reason: str) -> BrokerError:
    """Return the error for a client that asks for messages of an unavailable queue."""
    return BrokerError(
        Condition.UNAVAILABLE,
        f"queue '{queue.name}' in vhost '{queue.vhost}' is unavailable, and keeps its messages: {reason}",
    )


def _nobody(queue: Queue, reason: str) -> None:
    del queue, reason

"""Messages that leave their queues undelivered: purged, dropped by a stream, or deleted with their queue."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from escrowmq.core.counters import count_left
from escrowmq.core.queues.backlog import Backlog
from escrowmq.core.records.kinds import Kind
from escrowmq.core.records.references import TRANSIENT, Reference, merged
from escrowmq.core.records.settling import encode_settle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from escrowmq.core.ports import Log
    from escrowmq.core.queues.outcome import Outcome
    from escrowmq.core.queues.queue import Queue
    from escrowmq.core.queues.withdrawal import Withdrawal


class Removals:
    """Records removals, and releases the content of removed messages in the log. `waiting` has those whose content is
    not released yet.
    """

    __slots__ = ("_log", "waiting")

    def __init__(self, log: Log) -> None:
        self._log = log
        self.waiting: deque[Withdrawal] = deque()

    def forget(self, queue: Queue, references: list[Reference], outcome: Outcome) -> None:
        """Note that the messages of `references` have left `queue` for good."""
        count_left(queue, outcome, sum([reference.length for reference in references]))
        if queue.durable:
            ranges = merged([(r.first, r.length) for r in references if r.lsn and not r.start & TRANSIENT])
            if ranges:
                self._log.append(Kind.SETTLE, encode_settle(queue.ident, outcome, ranges))
        if queue.marks:
            gone = Backlog.of(*sorted(references))
            queue.unmark([position for position in queue.marks if position in gone])
        self.let_go(references)

    def withdraw(self, queue: Queue, gone: Withdrawal, outcome: Outcome) -> None:
        """Note that `gone` have left `queue` for good, all at once."""
        if queue.durable:
            ranges = gone.durable_ranges()
            if ranges:
                self._log.append(Kind.SETTLE, encode_settle(queue.ident, outcome, ranges))
        if queue.marks:
            queue.unmark([position for position in queue.marks if position in gone])
        self.release_in_pieces(gone)

    def release_in_pieces(self, gone: Withdrawal) -> None:
        """Release the content of `gone` in the log: one piece now, the others in later turns."""
        if gone.release(self._log):
            self.waiting.append(gone)

    def let_go(self, references: Iterable[Reference]) -> None:
        """Release the content of the messages of `references` in the log."""
        for reference in references:
            if reference.lsn:
                self._log.release(reference.lsn, reference.length)

    def step(self) -> None:
        """Release a piece of the content that waits."""
        if not self.waiting[0].release(self._log):
            self.waiting.popleft()

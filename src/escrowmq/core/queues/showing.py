"""Messages of commits, and of dead letters to many queues, become visible in their queues: in pieces if these are many.

They are visible everywhere from the sync on, as far as a client can tell: a queue that is asked for its messages, or
for their number, takes in first what is on disk (`Queue.take_in`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from escrowmq.core.budget import Budget
    from escrowmq.core.leftover import LeftOver
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.queue import Queue

TOGETHER: Final = 250
"""Queues up to which messages become visible in one piece. Each takes 1 to 3 microseconds."""


class ShowingHost(Protocol):
    """The part of the engine that is needed here."""

    log: Log
    requests: Budget
    left_over: LeftOver


class Showing:
    """The queues with messages that wait for a sync."""

    __slots__ = ("_host", "_sealed", "together")

    def __init__(self, host: ShowingHost) -> None:
        self._host = host
        self._sealed: dict[Queue, None] = {}
        self.together = TOGETHER

    def seal(self, queue: Queue) -> None:
        """Note that `queue` has messages that are invisible until the log is synced."""
        self._sealed[queue] = None

    def synced(self, lsn: int) -> None:
        """Show the messages whose commit is below `lsn`, up to which the log is synced."""
        if len(self._sealed) <= self.together:
            self._sealed = {queue: None for queue in self._sealed if not queue.deleted and queue.unseal(lsn)}
        else:
            sealed, self._sealed = self._sealed, {}
            self.show(sealed)

    def show(self, queues: Collection[Queue]) -> None:
        """Show the messages of `queues` that wait for nothing, in pieces. The others become visible with a sync."""
        if len(queues) > self.together:
            self._host.left_over.begin(self._showing(queues))
            return
        synced = self._host.log.synced_lsn
        for queue in queues:
            if not queue.deleted and queue.unseal(synced):
                self._sealed[queue] = None

    def _showing(self, queues: Iterable[Queue]) -> Iterator[None]:
        host, requests = self._host, self._host.requests
        for queue in queues:
            if not queue.deleted and queue.unsynced and queue.unseal(host.log.synced_lsn):
                self.seal(queue)
            requests.left -= 1
            if requests.left <= 0:
                yield

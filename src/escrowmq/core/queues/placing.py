"""One publish to very many queues. Its messages get their positions at once, and become visible in pieces.

The publish is one record. Messages that arrive in one of the queues meanwhile follow behind those of the publish, as
they do behind a commit that is not synced yet (`Queue.unsynced`). A client that asks a queue for its messages, or for
their number, finds those of the publish there at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.messages.entry import Run

if TYPE_CHECKING:
    from escrowmq.core.budget import Budget
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.queue import Queue

WIDE: Final = 250
"""A publish to more queues is placed in pieces."""
RESERVED: Final = 8
"""Queues in which places are reserved for one unit of the turn's budget."""


class Host(Protocol):
    """The part of the engine that placing needs."""

    now: int
    log: Log
    requests: Budget

    def seal(self, queue: Queue) -> None:
        """Note that `queue` has runs that are invisible until the log is synced."""
        ...


class GradualPublish:
    """A run that has its places in `queues`. It is `done` when all of it is visible."""

    __slots__ = ("_host", "_queues", "done")

    def __init__(
        self, host: Host, envelope: Envelope, contents: Sequence[bytes], queues: Sequence[Queue], lsn: int
    ) -> None:
        """`lsn` is the address of the block in the log, or 0."""
        self._host = host
        self._queues = queues
        self.done = False
        time, count = host.now, len(contents)
        for queue in queues:
            if queue.captured:
                queue.change()
            first = queue.next_position
            queue.next_position = first + count
            queue.unsynced.append((0, Run(envelope, first, time, lsn if queue.durable else 0), contents))

    def steps(self) -> Iterator[None]:
        """Make the messages visible, and yield whenever the turn's budget is used up. It must be carried through."""
        host, requests = self._host, self._host.requests
        for queue in self._queues:
            if not queue.deleted and queue.unseal(host.log.synced_lsn):
                host.seal(queue)  # a commit before them is not on disk yet
            requests.left -= 1
            if requests.left <= 0:
                yield
        self._queues = ()
        self.done = True

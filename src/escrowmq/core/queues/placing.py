"""One publish to very many queues, in pieces.

1. Its runs are made. Nothing has changed yet.
2. In one step, the record is written, and the messages get their positions.
3. The messages become visible.

A publish to more than `RECORDED` queues does this for one part of them after the other, because step 2 takes time for
each queue. A crash between two parts leaves the messages in some of the queues; their publisher has no confirm then.

Messages that arrive in one of the queues after step 2 follow behind those of the publish, as they do behind a commit
that is not synced yet (`Queue.unsynced`). A client that asks a queue for its messages, or for their number, finds those
of the publish there at once.
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
RECORDED: Final = 5000
"""The queues in one record. Step 2 takes about 0.7 microseconds for each."""
_PIECE: Final = 64
_MADE: Final = 8  # units of the turn's budget for the runs of a piece


class Host(Protocol):
    """The part of the engine that placing needs."""

    now: int
    log: Log
    requests: Budget

    def record(self, envelope: Envelope, contents: list[bytes], queues: Sequence[Queue]) -> int:
        """Record a publish that is in no transaction. Return the LSN of its block, or 0 if it is not in the log."""
        ...

    def seal(self, queue: Queue) -> None:
        """Note that `queue` has runs that are invisible until the log is synced."""
        ...


class GradualPublish:
    """A run for `queues`. It is `done` when all of it is visible; then `lsn` is the LSN up to which the log must be
    synced before the confirm (0: no wait).
    """

    __slots__ = ("_contents", "_envelope", "_host", "_queues", "done", "lsn")

    def __init__(self, host: Host, envelope: Envelope, contents: list[bytes], queues: Sequence[Queue]) -> None:
        self._host = host
        self._envelope = envelope
        self._contents = contents
        self._queues = queues
        self.done = False
        self.lsn = 0

    def steps(self) -> Iterator[None]:
        """Do it, and yield whenever the turn's budget is used up. The steps must be carried through."""
        queues, self._queues = self._queues, ()
        for begin in range(0, len(queues), RECORDED):
            yield from self._place(queues[begin : begin + RECORDED])
        self.done = True

    def _place(self, queues: Sequence[Queue]) -> Iterator[None]:
        """Place the messages in some of the queues, with one record."""
        host, requests, envelope = self._host, self._host.requests, self._envelope
        runs: list[Run] = []
        while len(runs) < len(queues):
            runs += [Run(envelope, 0, 0) for _ in range(min(_PIECE, len(queues) - len(runs)))]
            requests.left -= _MADE
            if requests.left <= 0:
                yield
        queues = [queue for queue in queues if not queue.deleted]
        self._write(queues, runs)
        requests.left -= len(runs) // _PIECE * _MADE
        for queue in queues:
            if not queue.deleted and queue.unseal(host.log.synced_lsn):
                host.seal(queue)  # a commit before them is not on disk yet
            requests.left -= 1
            if requests.left <= 0:
                yield

    def _write(self, queues: list[Queue], runs: list[Run]) -> None:
        host, contents = self._host, self._contents
        lsn = host.record(self._envelope, contents, queues)
        if lsn:
            self.lsn = host.log.end_lsn
        time, count = host.now, len(contents)
        for queue, run in zip(queues, runs, strict=False):
            if queue.captured:
                queue.change()
            run.time = time
            if queue.durable:
                run.lsn = lsn
            run.first = queue.next_position
            queue.next_position += count
            queue.unsynced.append((0, run, contents))

"""One publish to very many queues, in pieces.

1. Its runs are made, and queues that are full deliver what they can. Nothing else has changed yet.
2. In one step, the record is written, and the messages get their positions. Queues that are full refuse them here.
3. The messages become visible.

A publish to more than `RECORDED` queues does this for one part of them after the other, because step 2 takes time for
each queue. A crash between two parts leaves the messages in some of the queues; their publisher has no confirm then.
A publish with something `Beside` it has only one part, and its messages become visible when that is synced. If there
are queues that refuse messages, each message is placed on its own.

Messages that arrive in one of the queues after step 2 follow behind those of the publish, as they do behind a commit
that is not synced yet (`Queue.unsynced`). A client that asks a queue for its messages, or for their number, finds those
of the publish there at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.core.budget import DEAD_LETTERED
from escrowmq.core.messages.entry import Run
from escrowmq.core.queues.room import has_room

if TYPE_CHECKING:
    from escrowmq.core.branches.decision import Recorded
    from escrowmq.core.budget import Budget
    from escrowmq.core.messages.envelope import Envelope
    from escrowmq.core.ports import Log
    from escrowmq.core.queues.queue import Queue

WIDE: Final = 250
"""A publish to more queues is placed in pieces."""
RECORDED: Final = 5000
"""The queues in one record. Step 2 takes about 0.7 microseconds for each."""
LIMITED: Final = 2000
"""The same if there are queues that refuse messages, whose room takes another microsecond to check."""
_PIECE: Final = 64
_MADE: Final = 8  # units of the turn's budget for the runs of a piece


class Beside(Protocol):
    """What is recorded together with the messages of a publish, such as their delivery tags (SET-8)."""

    @property
    def wanted(self) -> bool:
        """Whether the publish is still wanted. It is given up if not, unless its record is written."""
        ...

    def work(self, begin: int, end: int) -> Recorded:
        """Return the change that belongs to the messages from number `begin` to `end`."""
        ...


class Host(Protocol):
    """The part of the engine that placing needs."""

    now: int
    log: Log
    requests: Budget
    promised: dict[Queue, tuple[int, int]]

    def record(
        self, envelope: Envelope, contents: list[bytes], queues: Sequence[Queue], work: Recorded | None = None
    ) -> int:
        """Record a publish that is in no transaction, with `work`. Return the LSN of its block, or 0 if it is not in
        the log.
        """
        ...

    def seal(self, queue: Queue) -> None:
        """Note that `queue` has runs that are invisible until the log is synced."""
        ...

    def when_synced(self, lsn: int, work: Iterator[None]) -> None:
        """Do work in pieces as soon as the log is synced up to `lsn`."""
        ...

    def dead_letter_refused(self, queue: Queue, envelope: Envelope, content: bytes) -> int:
        """Dead-letter a message that `queue` has refused, if it wants that. Return the LSN to wait for, or 0."""
        ...


class GradualPublish:
    """A run for `queues`. It is `done` when all of it is visible, or will be with the next sync. Then `lsn` is the LSN
    up to which the log must be synced before the confirm (0: no wait), and `refused` has the numbers of the messages
    that a queue refused.
    """

    __slots__ = ("_beside", "_contents", "_envelope", "_host", "_queues", "_refuses", "done", "lsn", "refused")

    def __init__(
        self,
        host: Host,
        envelope: Envelope,
        contents: list[bytes],
        queues: Sequence[Queue],
        *,
        refuses: bool = False,
        beside: Beside | None = None,
    ) -> None:
        """`refuses` tells whether one of the queues may refuse messages."""
        self._host = host
        self._envelope = envelope
        self._contents = contents
        self._queues = queues
        self._refuses = refuses
        self._beside = beside
        self.done = False
        self.lsn = 0
        self.refused: tuple[int, ...] = ()

    def steps(self) -> Iterator[None]:
        """Do it, and yield whenever the turn's budget is used up. The steps must be carried through."""
        queues, self._queues = self._queues, ()
        part = len(queues) if self._beside is not None else LIMITED if self._refuses else RECORDED
        count = len(self._contents)
        for begin, end in [(i, i + 1) for i in range(count)] if self._refuses else [(0, count)]:
            for at in range(0, len(queues), part):
                yield from self._place(queues[at : at + part], begin, end)
        self.done = True

    def _place(self, queues: Sequence[Queue], begin: int, end: int) -> Iterator[None]:
        """Place the messages from number `begin` to `end` in some of the queues, with one record."""
        host, requests, envelope = self._host, self._host.requests, self._envelope
        runs: list[Run] = []
        while len(runs) < len(queues):
            some = queues[len(runs) : len(runs) + _PIECE]
            if self._refuses:
                self._make_room(some, len(self._contents[begin]))
            runs += [Run(envelope, 0, 0) for _ in some]
            requests.left -= _MADE
            if requests.left <= 0:
                yield
        if self._beside is not None and not self._beside.wanted:
            return
        queues = [queue for queue in queues if not queue.deleted]
        full: list[Queue] = []
        if self._refuses:
            queues, full = self._divided(queues, len(self._contents[begin]))
        if full and begin not in self.refused:
            self.refused += (begin,)
        sealed = self._write(queues, runs, begin, end)
        requests.left -= len(runs) // _PIECE * _MADE
        for queue in full:
            if queue.options.overflow == "reject-publish-dlx":
                self.lsn = max(self.lsn, host.dead_letter_refused(queue, envelope, self._contents[begin]))
                requests.left -= DEAD_LETTERED
                if requests.left <= 0:
                    yield
        if sealed > host.log.synced_lsn:
            host.when_synced(sealed, self._show(queues))
        else:
            yield from self._show(queues)

    @staticmethod
    def _make_room(queues: Sequence[Queue], size: int) -> None:
        for queue in queues:
            if queue.refuses and not queue.deleted:
                queue.accepts(1, size)  # delivers what consumers can get now, if the queue is full

    def _divided(self, queues: Sequence[Queue], size: int) -> tuple[list[Queue], list[Queue]]:
        """Divide queues into those that take a message, and those that are full."""
        promised = self._host.promised
        takers: list[Queue] = []
        full: list[Queue] = []
        for queue in queues:
            takes = not queue.refuses or has_room(queue, promised.get(queue), 1, size)
            (takers if takes else full).append(queue)
        return takers, full

    def _show(self, queues: Sequence[Queue]) -> Iterator[None]:
        """Make the messages visible."""
        host, requests = self._host, self._host.requests
        for queue in queues:
            if not queue.deleted and queue.unseal(host.log.synced_lsn):
                host.seal(queue)  # a commit before them is not on disk yet
            requests.left -= 1
            if requests.left <= 0:
                yield

    def _write(self, queues: Sequence[Queue], runs: list[Run], begin: int, end: int) -> int:
        """Write the record and give the messages their positions. Return the LSN up to which the log must be synced
        before they are visible (0: no wait).
        """
        host, contents = self._host, self._contents
        if end - begin < len(contents):
            contents = contents[begin:end]
        work = None
        if self._beside is not None and begin not in self.refused:
            work = self._beside.work(begin, end)
        before = host.log.end_lsn
        lsn = host.record(self._envelope, contents, queues, work)
        written = host.log.end_lsn if host.log.end_lsn > before else 0
        self.lsn = max(self.lsn, written)
        sealed = written if self._beside is not None else 0
        time, count = host.now, len(contents)
        for queue, run in zip(queues, runs, strict=False):
            if queue.watched:
                queue.change()
            run.time = time
            if queue.durable:
                run.lsn = lsn
            run.first = queue.next_position
            queue.next_position += count
            queue.unsynced.append((sealed, run, contents))
        return sealed
